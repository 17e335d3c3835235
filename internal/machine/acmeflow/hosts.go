package acmeflow

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// HostRule lets the Issuers of a namespace use the shared responder for hosts.
type HostRule struct {
	// Namespace of the Issuers; * stands for all.
	Namespace string
	// Pattern is a host or an IP address, *.domain for all hosts below a domain, or * for all.
	Pattern string
}

// ParseHostRule reads NAMESPACE=PATTERN.
func ParseHostRule(text string) (HostRule, error) {
	namespace, pattern, ok := strings.Cut(text, "=")
	pattern = strings.ToLower(pattern)
	host := strings.TrimPrefix(pattern, "*.")
	ip, err := netip.ParseAddr(pattern)
	if err == nil {
		pattern = ip.String()
	}
	_, below := netip.ParseAddr(host) // *.192.0.2.1 is no pattern
	isHost := len(validation.IsDNS1123Subdomain(host)) == 0 && below != nil
	if !ok || namespace != "*" && len(validation.IsDNS1123Label(namespace)) > 0 || pattern != "*" && err != nil && !isHost {
		return HostRule{}, fmt.Errorf("must be NAMESPACE=PATTERN, such as shop=*.shop.example.com or *=*, not %q", text)
	}
	return HostRule{namespace, pattern}, nil
}

func (r HostRule) permits(namespace, host string) bool {
	host = strings.ToLower(host)
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
	}
	domain, below := strings.CutPrefix(r.Pattern, "*")
	return (r.Namespace == "*" || r.Namespace == namespace) &&
		(r.Pattern == host || below && strings.HasSuffix(host, domain) && host != domain)
}

// Refuses returns why the responder must not answer a Challenge; empty if it may. Requests for any host may reach the
// responder. A tenant with a CA of its own chooses the tokens, so an Issuer could make the responder answer for any
// host, and relay the token of another CA. The CA of a ClusterIssuer is the choice of the operator. The scheduler
// starts no Challenge that is refused.
func (s Settings) Refuses(c *acmev1.Challenge) string {
	spec := &c.Spec
	rules, limited := s.Hosts[spec.Type]
	if !limited || spec.IssuerRef.Kind == cmmeta.ClusterIssuerKind {
		return ""
	}
	for _, r := range rules {
		if r.permits(c.Namespace, spec.DNSName) {
			return ""
		}
	}
	flag := map[acmev1.ACMEChallengeType]string{acmev1.ChallengeTypeHTTP01: "http01", acmev1.ChallengeTypeTLSALPN01: "tlsalpn01"}[spec.Type]
	return fmt.Sprintf("The operator does not let Issuers of namespace %q have the responder answer %s challenges for %q: "+
		"use a ClusterIssuer or another kind of challenge, or start the controller with --%s-hosts %s=%s",
		c.Namespace, spec.Type, spec.DNSName, flag, c.Namespace, spec.DNSName)
}
