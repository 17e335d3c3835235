package app

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/signer/vault"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider"
	"chancery.dev/internal/solver/dns01/provider/acmedns"
	"chancery.dev/internal/solver/dns01/provider/exec"
	"chancery.dev/internal/solver/dns01/provider/limit"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
	"chancery.dev/internal/solver/dns01/provider/webhook"
)

// DNS01Config configures the self check of DNS-01, and the providers that are programs.
type DNS01Config struct {
	// Quorum is how many of a zone's name servers have to answer the record; 0 means all.
	Quorum int
	// Programs are the provider programs that may be run, NAME=PATH or NAME=unix:SOCKET;
	// the name * stands for every provider without a program of its own.
	Programs []string
	// ExecInIssuers lets Issuers, not only ClusterIssuers, name any provider.
	ExecInIssuers bool
	// WebhookURLsInIssuers lets Issuers, not only ClusterIssuers, name the address of a webhook.
	WebhookURLsInIssuers bool
	// ProviderQPS is how many calls a second a provider may get with one credential; 0 means no limit.
	// ProviderBurst is how many calls may come at once.
	ProviderQPS   float64
	ProviderBurst int
}

// resolver returns what finds zones and records.
func (c *Config) resolver(deps *controller.Deps) (*dns01.Resolver, error) {
	acme := c.ACME
	nameservers := acme.RecursiveNameservers
	if len(nameservers) == 0 {
		nameservers = dns01.SystemNameservers("/etc/resolv.conf")
	}
	resolver, err := dns01.NewResolver(dns01.Options{
		Nameservers: nameservers, RecursiveOnly: acme.RecursiveNameserversOnly, AuthoritativePort: acme.AuthoritativePort,
		Quorum: acme.DNS01.Quorum, Now: deps.Now, UserAgent: c.UserAgent, Egress: c.IssuerEgress.policy(),
	})
	if err != nil {
		return nil, fmt.Errorf("--dns01-recursive-nameservers: %w", err)
	}
	return resolver, nil
}

// ownAccount returns what reports whether a service account is that of the controller.
func ownAccount(deps *controller.Deps) func(context.Context, types.NamespacedName) (bool, error) {
	self := &secrets.Identity{}
	return func(ctx context.Context, account types.NamespacedName) (bool, error) {
		return self.IsServiceAccount(ctx, deps.Manager.GetClient(), account)
	}
}

// dns01Providers returns what makes the providers of DNS-01. Their programs end with ctx.
func (c *Config) dns01Providers(ctx context.Context, deps *controller.Deps, log logr.Logger) (dns01.Factory, error) {
	acme := c.ACME
	limits := limit.New(limit.Options{QPS: acme.DNS01.ProviderQPS, Burst: acme.DNS01.ProviderBurst, Now: deps.Now})
	programs, err := exec.ParsePrograms(acme.DNS01.Programs)
	if err != nil {
		return nil, fmt.Errorf("--dns01-provider-programs: %w", err)
	}
	pool, err := exec.New(ctx, exec.Options{Programs: programs, Environ: os.Environ(), Limits: limits, Log: log})
	if err != nil {
		return nil, fmt.Errorf("--dns01-provider-programs: %w", err)
	}
	webhooks, err := webhook.New(deps.Manager.GetConfig(), limits)
	if err != nil {
		return nil, err
	}
	return provider.Factory(provider.Options{
		Secrets: deps.Secrets, Token: vault.TokenRequests(deps.Manager.GetClient(), ownAccount(deps)),
		RFC2136: rfc2136.Options{Now: deps.Now, Queues: rfc2136.NewQueues(), Limits: limits},
		AcmeDNS: acmedns.New(nil, c.UserAgent, limits), Webhook: webhooks, Programs: pool,
		WebhookServers:       webhook.Direct{Secrets: deps.Secrets, Limits: limits, UserAgent: c.UserAgent},
		WebhookURLsInIssuers: acme.DNS01.WebhookURLsInIssuers, Egress: c.IssuerEgress.policy(),
		ClusterIssuerAmbient: c.Ambient.ClusterIssuers, IssuerAmbient: c.Ambient.Issuers, ExecInIssuers: acme.DNS01.ExecInIssuers,
	}), nil
}
