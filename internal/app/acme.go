package app

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
	"chancery.dev/internal/solver/http01"
)

// userAgent is what ACME servers, DNS over HTTPS servers and routes are told.
const userAgent = "chancery"

// ACMEConfig configures Orders, Challenges and their solvers.
type ACMEConfig struct {
	// MaxConcurrentChallenges caps the challenges in flight.
	MaxConcurrentChallenges int
	// AccountKeyAlgorithm is that of account keys to make: RSA, ECDSA or Ed25519.
	AccountKeyAlgorithm string
	// CheckRetryPeriod is how often a self check that keeps failing is tried again.
	CheckRetryPeriod time.Duration
	// RecursiveNameservers are asked for zones, host:port or https:// addresses; none
	// means those of /etc/resolv.conf.
	RecursiveNameservers []string
	// RecursiveNameserversOnly has propagation asked of them too.
	RecursiveNameserversOnly bool
	// AuthoritativePort is where authoritative name servers listen; 0 means 53. For
	// machines on which that port is taken.
	AuthoritativePort int
	// HTTP01Port is where the self check expects the route to the responder; 0 means 80.
	HTTP01Port int
	// HTTP01Address is where the responder itself listens; empty means that it does not.
	HTTP01Address string
	// HTTP01Nameservers resolve the names that the self check of HTTP-01 asks.
	HTTP01Nameservers []string
}

// DefaultACMEConfig returns the defaults of spec §9.3.
func DefaultACMEConfig() ACMEConfig {
	return ACMEConfig{MaxConcurrentChallenges: 60, AccountKeyAlgorithm: pki.RSA, CheckRetryPeriod: 10 * time.Second}
}

func (c ACMEConfig) validate() []error {
	var problems []error
	if c.MaxConcurrentChallenges < 0 {
		problems = append(problems, fmt.Errorf("--max-concurrent-challenges: must not be negative, but is %d", c.MaxConcurrentChallenges))
	}
	if !slices.Contains([]string{pki.RSA, pki.ECDSA, pki.Ed25519}, c.AccountKeyAlgorithm) {
		problems = append(problems, fmt.Errorf("--acme-account-key-algorithm: must be RSA, ECDSA or Ed25519, not %q", c.AccountKeyAlgorithm))
	}
	if c.CheckRetryPeriod < time.Second {
		problems = append(problems, fmt.Errorf("--dns01-check-retry-period: must be at least 1s, not %s", c.CheckRetryPeriod))
	}
	return problems
}

// solvers returns the solver of each challenge type.
func (c ACMEConfig) solvers(secrets solver.SecretReader, now func() time.Time) (map[acmev1.ACMEChallengeType]solver.Solver, error) {
	nameservers := c.RecursiveNameservers
	if len(nameservers) == 0 {
		nameservers = dns01.SystemNameservers("/etc/resolv.conf")
	}
	resolver, err := dns01.NewResolver(dns01.Options{
		Nameservers: nameservers, RecursiveOnly: c.RecursiveNameserversOnly, AuthoritativePort: c.AuthoritativePort,
		Now: now, UserAgent: userAgent,
	})
	if err != nil {
		return nil, fmt.Errorf("--dns01-recursive-nameservers: %w", err)
	}
	factory := provider.Factory(provider.Options{Secrets: secrets, RFC2136: rfc2136.Options{Now: now}})
	return map[acmev1.ACMEChallengeType]solver.Solver{
		acmev1.ChallengeTypeDNS01: dns01.New(resolver, factory),
		acmev1.ChallengeTypeHTTP01: http01.New(http01.CheckOptions{
			Port: c.HTTP01Port, UserAgent: userAgent, Nameservers: c.HTTP01Nameservers, Proxy: http.ProxyFromEnvironment,
		}),
	}, nil
}

// settings are the times of the ACME flow.
func (c ACMEConfig) settings() acmeflow.Settings {
	s := acmeflow.DefaultSettings()
	s.CheckPeriod = c.CheckRetryPeriod
	return s
}
