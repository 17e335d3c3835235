package app

import (
	"fmt"
	"time"
)

// ACMEConfig configures Orders, Challenges and their solvers.
type ACMEConfig struct {
	// MaxConcurrentChallenges caps the challenges in flight.
	MaxConcurrentChallenges int
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
	return ACMEConfig{MaxConcurrentChallenges: 60, CheckRetryPeriod: 10 * time.Second}
}

func (c ACMEConfig) validate() []error {
	var problems []error
	if c.MaxConcurrentChallenges < 0 {
		problems = append(problems, fmt.Errorf("--max-concurrent-challenges: must not be negative, but is %d", c.MaxConcurrentChallenges))
	}
	if c.CheckRetryPeriod < time.Second {
		problems = append(problems, fmt.Errorf("--dns01-check-retry-period: must be at least 1s, not %s", c.CheckRetryPeriod))
	}
	return problems
}
