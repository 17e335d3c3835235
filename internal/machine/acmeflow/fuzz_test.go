package acmeflow

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
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

// FuzzIdentifiers: an Order asks for each name and each address once, and for the same however often it is written.
func FuzzIdentifiers(f *testing.F) {
	f.Add("a.example", "b.example", "192.0.2.1", "a.example")
	f.Add("*.a.example", "*.a.example", "::ffff:192.0.2.1", "192.0.2.1")
	f.Add("", "a", "2001:DB8::1", "2001:db8:0::1")
	f.Fuzz(func(t *testing.T, name, other, address, common string) {
		spec := acmev1.OrderSpec{DNSNames: []string{name, other}, IPAddresses: []string{address}, CommonName: common}
		got := Identifiers(spec)
		seen := map[acme.Identifier]bool{}
		for _, id := range got {
			if seen[id] {
				t.Errorf("%+v twice", id)
			}
			seen[id] = true
		}
		slices.Reverse(spec.DNSNames)
		spec.DNSNames, spec.IPAddresses = append(spec.DNSNames, name), append(spec.IPAddresses, canonical(address))
		if again := Identifiers(spec); !slices.Equal(got, again) {
			t.Errorf("%+v and %+v", got, again)
		}
		if isAddress(common) && isDomainName(common) && strings.Count(common, ".") != 3 {
			t.Errorf("%q is an address and a name", common)
		}
	})
}
