package acmeflow

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// FuzzHostRule: a rule permits a host if and only if a second reading, label by label, says so: no rule for a domain is
// one for its neighbours.
func FuzzHostRule(f *testing.F) {
	f.Add("shop=*.shop.example.com", "shop", "www.shop.example.com")
	f.Add("*=192.0.2.1", "a", "::ffff:192.0.2.1")
	f.Add("*=*", "a", "xshop.example.com")
	f.Add("a=2001:DB8::1", "a", "2001:db8:0::1")
	f.Fuzz(func(t *testing.T, text, namespace, host string) {
		rule, err := ParseHostRule(text)
		if err != nil {
			return
		}
		if again, err := ParseHostRule(rule.Namespace + "=" + rule.Pattern); err != nil || again != rule {
			t.Errorf("%q is read as %+v, and that as %+v, %v", text, rule, again, err)
		}
		if got, want := rule.permits(namespace, host), permitted(rule, namespace, host); got != want {
			t.Errorf("%q permits %q for %q: %t, want %t", text, host, namespace, got, want)
		}
	})
}

func permitted(rule HostRule, namespace, host string) bool {
	if rule.Namespace != "*" && rule.Namespace != namespace {
		return false
	}
	if rule.Pattern == "*" {
		return host != ""
	}
	if ip, err := netip.ParseAddr(strings.ToLower(host)); err == nil {
		return rule.Pattern == ip.String()
	}
	labels, pattern := strings.Split(strings.ToLower(host), "."), strings.Split(rule.Pattern, ".")
	if pattern[0] != "*" {
		return slices.Equal(labels, pattern)
	}
	at := len(labels) - (len(pattern) - 1)
	return at > 0 && strings.Join(labels[:at], ".") != "" && slices.Equal(labels[at:], pattern[1:])
}
