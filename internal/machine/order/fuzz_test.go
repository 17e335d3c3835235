package order

import (
	"slices"
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
)

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
