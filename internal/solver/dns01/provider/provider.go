// Package provider makes the DNS providers that solver configurations name. Some are packages below this one; the
// others are programs that internal/…/provider/exec runs. This package chooses the provider, maps the API's fields to
// the programs' variables, and reads the Secrets.
//
// It reads the credentials anew for each call, and does not keep them. So a changed Secret takes effect with the next
// call.
package provider

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/acmedns"
	"chancery.dev/internal/solver/dns01/provider/exec"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
	"chancery.dev/internal/solver/dns01/provider/webhook"
	"chancery.dev/internal/solver/dns01/wire"
)

// The reasons of this package's faults.
const (
	// ReasonUnsupported: the configuration asks for what does not exist.
	ReasonUnsupported = "ProviderUnsupported"
	// ReasonNotAllowed: the operator does not allow it.
	ReasonNotAllowed = "ProviderNotAllowed"
	// ReasonAmbient: the issuer may not use credentials of the controller.
	ReasonAmbient = "AmbientCredentialsNotAllowed"
)

// Options configure the providers.
type Options struct {
	// Secrets reads credentials.
	Secrets credential.Reader
	// Token returns a token of a service account that is good for ten minutes and for the audiences alone.
	Token func(ctx context.Context, serviceAccount types.NamespacedName, audiences []string) (string, error)
	// RFC2136 configures dynamic updates.
	RFC2136 rfc2136.Options
	// AcmeDNS reaches acme-dns servers; nil means with the defaults.
	AcmeDNS *acmedns.Client
	// Webhook reaches webhook solvers; nil where there is no API server to reach them by.
	Webhook *webhook.Client
	// WebhookServers reaches those that are HTTPS servers.
	WebhookServers webhook.Direct
	// Programs runs the programs of all other providers; nil has none.
	Programs *exec.Pool
	// ClusterIssuerAmbient and IssuerAmbient say who may use credentials of the controller.
	ClusterIssuerAmbient, IssuerAmbient bool
	// ExecInIssuers lets Issuers, not only ClusterIssuers, use the field exec.
	ExecInIssuers bool
	// WebhookURLsInIssuers lets Issuers, not only ClusterIssuers, name the address of a webhook.
	WebhookURLsInIssuers bool
	// Egress says which addresses the servers of Issuers may have; nil means all.
	Egress *egress.Policy
}

// forIssuers returns the options for the solvers of Issuers, whose servers Egress judges.
func (o Options) forIssuers() Options {
	if o.Egress != nil {
		o.AcmeDNS, o.WebhookServers.Egress = o.AcmeDNS.Within(o.Egress), o.Egress
		o.RFC2136.Dial, o.RFC2136.Queues = o.Egress.Dialer(net.Dialer{}).DialContext, rfc2136.NewQueues()
	}
	return o
}

// Factory returns the function that makes providers.
func Factory(o Options) dns01.Factory {
	if o.AcmeDNS == nil {
		o.AcmeDNS = acmedns.New(nil, "", nil)
	}
	operators, tenants := o, o.forIssuers()
	return func(ctx context.Context, u dns01.Use) (dns01.Provider, error) {
		o := tenants
		if u.Ambient = o.IssuerAmbient; u.ClusterIssuer {
			o, u.Ambient = operators, o.ClusterIssuerAmbient
		}
		switch c := u.Config; {
		case c.RFC2136 != nil:
			return rfc2136.FromConfig(ctx, c.RFC2136, u.Namespace, o.Secrets, o.RFC2136)
		case c.AcmeDNS != nil:
			return o.AcmeDNS.Provider(ctx, c.AcmeDNS, u.Namespace, o.Secrets)
		case c.Webhook != nil:
			return o.webhook(ctx, c.Webhook, u)
		case c.Exec != nil && !u.ClusterIssuer && !o.ExecInIssuers:
			return nil, fault.Failed(fault.ClassConfiguration, ReasonNotAllowed, "exec: the operator does not let Issuers use it: "+
				"use a ClusterIssuer, or start the controller with --dns01-exec-in-issuers")
		}
		p, err := planOf(u.Config, u.Ambient)
		if err != nil {
			return nil, err
		}
		if p == nil {
			return nil, fault.Terminal(solver.ReasonNotConfigured, "the dns01 solver names no provider: set one, for example rfc2136")
		}
		config, err := o.resolve(ctx, p, u.Namespace)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.Config.Provider(), err)
		}
		if !u.ClusterIssuer {
			if err := o.judge(ctx, config.Configuration); err != nil {
				return nil, fault.After(dns01.MendPeriod, ReasonNotAllowed, "%s: %w", u.Config.Provider(), err)
			}
			config.Egress = o.egressOf(u)
		}
		config.Tenant = u.Tenant
		return o.Programs.Provider(config)
	}
}

// egressOf returns the limits that a program keeps for an Issuer. It has none if it may use the credentials of the
// machine: they come from addresses that are off limits, such as 169.254.169.254.
func (o Options) egressOf(u dns01.Use) *wire.Egress {
	if o.Egress == nil || u.Ambient {
		return nil
	}
	allow, deny := o.Egress.Ranges()
	return &wire.Egress{Allow: allow, Deny: deny}
}

// webhook makes the provider of either kind of webhook.
func (o Options) webhook(ctx context.Context, c *acmev1.WebhookProvider, u dns01.Use) (dns01.Provider, error) {
	switch {
	case c.URL == "":
		return o.Webhook.Provider(c, u)
	case !u.ClusterIssuer && !o.WebhookURLsInIssuers:
		return nil, fault.Failed(fault.ClassConfiguration, ReasonNotAllowed, "webhook: the operator does not let Issuers use url: "+
			"use a ClusterIssuer, or start the controller with --dns01-webhook-urls-in-issuers")
	}
	return o.WebhookServers.Provider(ctx, c, u)
}

// resolve reads the Secrets of a plan.
func (o Options) resolve(ctx context.Context, p *plan, namespace string) (exec.Config, error) {
	c := exec.Config{TTL: p.ttl, Configuration: wire.Configuration{
		Provider: p.provider, Config: p.config, Secrets: map[string]string{}, Ambient: p.ambient,
	}}
	for variable, ref := range p.secrets {
		value, err := credential.Value(ctx, o.Secrets, namespace, ref.Name, ref.Key)
		if err != nil {
			return c, fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "%w", err)
		}
		c.Secrets[variable] = value
	}
	if p.allOf != "" {
		secret, err := o.Secrets.Secret(ctx, namespace, p.allOf)
		if err != nil {
			return c, fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "reading Secret %s/%s: %w", namespace, p.allOf, err)
		}
		for variable, value := range secret.Data {
			c.Secrets[variable] = string(value)
		}
	}
	if t := p.token; t != nil {
		account := types.NamespacedName{Namespace: namespace, Name: t.account}
		c.Identity = account.String() + " " + strings.Join(t.audiences, " ")
		c.Late = func(ctx context.Context) (map[string]string, error) {
			token, err := o.Token(ctx, account, t.audiences)
			if err != nil {
				return nil, fmt.Errorf("asking for a token of service account %s: %w", account, err)
			}
			return map[string]string{t.variable: token}, nil
		}
	}
	return c, nil
}

// judge returns an error if a setting or a credential for a program names a host at an address that Egress does not
// permit: its value is or holds an address, or the name of the variable says that its value is a host.
func (o Options) judge(ctx context.Context, c wire.Configuration) error {
	for _, variables := range []map[string]string{c.Config, c.Secrets} {
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			for _, host := range hostsIn(name, variables[name]) {
				if err := o.Egress.Target(ctx, host, egress.SystemLookup); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return nil
}
