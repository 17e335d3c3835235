// Package provider makes the DNS providers that solver configurations name. Each
// provider is a package below; this one only chooses.
//
// It reads credentials when it is asked, so that a changed Secret takes effect
// with the next call, and keeps none.
package provider

import (
	"context"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// The reasons of this package's faults.
const (
	// ReasonUnsupported: the configured provider is not built in.
	ReasonUnsupported = "ProviderUnsupported"
	// ReasonNotConfigured: the solver names no provider.
	ReasonNotConfigured = "SolverNotConfigured"
)

// Options configure the providers.
type Options struct {
	// Secrets reads credentials.
	Secrets solver.SecretReader
	// RFC2136 configures dynamic updates.
	RFC2136 rfc2136.Options
}

// Factory returns the function that makes providers.
func Factory(o Options) dns01.Factory {
	return func(ctx context.Context, u dns01.Use) (dns01.Provider, error) {
		config, namespace := u.Config, u.Namespace
		if config.RFC2136 != nil {
			return rfc2136.FromConfig(ctx, config.RFC2136, namespace, o.Secrets, o.RFC2136)
		}
		name := nameOf(config)
		if name == "" {
			return nil, fault.Terminal(ReasonNotConfigured,
				"the dns01 solver names no provider: set one, for example rfc2136")
		}
		return nil, fault.Terminal(ReasonUnsupported,
			"the DNS provider %s is not built in: use rfc2136 (dynamic updates), or point a CNAME from "+
				"_acme-challenge to a zone that takes them and set cnameStrategy: Follow", name)
	}
}

// nameOf returns the field of the provider that is configured, or "".
func nameOf(c *acmev1.DNS01Solver) string {
	switch {
	case c.Akamai != nil:
		return "akamai"
	case c.CloudDNS != nil:
		return "cloudDNS"
	case c.Cloudflare != nil:
		return "cloudflare"
	case c.Route53 != nil:
		return "route53"
	case c.AzureDNS != nil:
		return "azureDNS"
	case c.DigitalOcean != nil:
		return "digitalocean"
	case c.AcmeDNS != nil:
		return "acmeDNS"
	case c.Webhook != nil:
		return "webhook"
	}
	return ""
}
