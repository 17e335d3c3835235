package app

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/install"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/schedule"
	"chancery.dev/internal/machine/service"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/http01"
	"chancery.dev/internal/solver/tlsalpn01"
)

// ACMEConfig configures Orders, Challenges and their solvers.
type ACMEConfig struct {
	// NoARI asks no CA when it wants its certificates to be renewed.
	NoARI bool
	// LoosePaths makes the Ingresses of HTTP-01 without exact paths.
	LoosePaths bool
	// Limits cap the challenges in flight.
	Limits schedule.Options
	// AccountKeyAlgorithm is the algorithm of new account keys: RSA, ECDSA or Ed25519.
	AccountKeyAlgorithm string
	// CheckRetryPeriod is how often a self check that keeps failing is tried again.
	CheckRetryPeriod time.Duration
	// RecursiveNameservers are asked for zones, host:port or https:// addresses; none means those of /etc/resolv.conf.
	RecursiveNameservers []string
	// RecursiveNameserversOnly asks them about propagation, too, not the servers of the zones.
	RecursiveNameserversOnly bool
	// AuthoritativePort is the port of authoritative name servers; 0 means 53. It is for machines on which port 53 is
	// taken.
	AuthoritativePort int
	// DNS01 configures the rest of DNS-01.
	DNS01 DNS01Config
	// HTTP01Port is the port at which the self check of HTTP-01 connects; 0 means 80.
	HTTP01Port int
	// HTTP01Passes is how many right answers in a row the self check of HTTP-01 needs.
	HTTP01Passes int
	// HTTP01Address is where the responder itself listens; empty means that it does not.
	HTTP01Address string
	// HTTP01Responder is the Service, as namespace/name, whose endpoints answer HTTP-01 challenges: routes lead there.
	// ResponderNone means that CAs reach the responder without routes. Empty means ResponderNone if HTTP01Address is
	// set, otherwise the Service of an Installation, in the first of Namespaces or in ClusterResourceNamespace.
	HTTP01Responder string
	// HTTP01Pods says which HTTP-01 challenges get a pod of their own, and configures these pods.
	HTTP01Pods service.Pods
	// HTTP01CatchAll says that, beside routes, requests for any host may come to the responder.
	HTTP01CatchAll bool
	// HTTP01Hosts and TLSALPN01Hosts are the hosts that the responder answers for on behalf of Issuers,
	// NAMESPACE=PATTERN each. HTTP-01 needs them without routes, or with HTTP01CatchAll.
	HTTP01Hosts, TLSALPN01Hosts []string
	// HTTP01ExtraLabels are put on the routes, and on the Services that they lead to.
	HTTP01ExtraLabels map[string]string
	// HTTP01Nameservers resolve names for the self checks of HTTP-01 and TLS-ALPN-01.
	HTTP01Nameservers []string
	// TLSALPN01Port is the port at which the self check of TLS-ALPN-01 connects; 0 means 443.
	TLSALPN01Port int
	// TLSALPN01Address is where the responder itself answers handshakes of TLS-ALPN-01; empty means that it does not.
	TLSALPN01Address string
}

// ResponderNone is the HTTP01Responder of a controller that makes no routes.
const ResponderNone = "none"

// DefaultACMEConfig returns the defaults of spec §9.3.
func DefaultACMEConfig() ACMEConfig {
	return ACMEConfig{
		Limits: schedule.Options{Cap: schedule.DefaultCap}, AccountKeyAlgorithm: pki.RSA, CheckRetryPeriod: 10 * time.Second,
		DNS01: DNS01Config{ProviderQPS: 50, ProviderBurst: 500}, HTTP01Passes: 1,
		HTTP01Pods: service.Pods{
			Mode: service.ModeAuto, Image: install.DefaultImage, RunAsNonRoot: true,
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
	}
}

// solvers returns the solver of each challenge type. Without routes (nil), CAs reach the responder directly.
func (c *Config) solvers(resolver *dns01.Resolver, providers dns01.Factory, routes http01.Router) map[acmev1.ACMEChallengeType]solver.Solver {
	byRecord := dns01.New(resolver, providers)
	return map[acmev1.ACMEChallengeType]solver.Solver{
		acmev1.ChallengeTypeDNS01:        byRecord,
		acmev1.ChallengeTypeDNSAccount01: byRecord,
		acmev1.ChallengeTypeDNSPersist01: dns01.NewPersistent(resolver),
		acmev1.ChallengeTypeHTTP01: http01.New(http01.CheckOptions{
			Port: c.ACME.HTTP01Port, UserAgent: c.UserAgent, Nameservers: c.ACME.HTTP01Nameservers, Egress: c.IssuerEgress.policy(),
			Proxy: http.ProxyFromEnvironment, Passes: c.ACME.HTTP01Passes,
		}, routes),
		acmev1.ChallengeTypeTLSALPN01: tlsalpn01.New(tlsalpn01.CheckOptions{
			Port: c.ACME.TLSALPN01Port, Dialer: http01.NewDialer(c.ACME.HTTP01Nameservers, c.IssuerEgress.policy(), nil),
		}),
	}
}

// settings are those of the ACME flow.
func (c ACMEConfig) settings() acmeflow.Settings {
	s := acmeflow.DefaultSettings()
	s.CheckPeriod = c.CheckRetryPeriod
	s.Hosts = map[acmev1.ACMEChallengeType][]acmeflow.HostRule{acmev1.ChallengeTypeTLSALPN01: hostRules(c.TLSALPN01Hosts)}
	if c.HTTP01Responder == ResponderNone || c.HTTP01CatchAll {
		s.Hosts[acmev1.ChallengeTypeHTTP01] = hostRules(c.HTTP01Hosts)
	}
	return s
}

// hostRules reads rules that validate has looked at.
func hostRules(texts []string) []acmeflow.HostRule {
	var rules []acmeflow.HostRule
	for _, text := range texts {
		if r, err := acmeflow.ParseHostRule(text); err == nil {
			rules = append(rules, r)
		}
	}
	return rules
}
