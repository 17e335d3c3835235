package order

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"slices"
	"strings"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/pki"
)

// Identifiers are those that an Order asks for (spec §5.3 c): the DNS names in small letters (RFC 4343), then the
// addresses, each sorted and without duplicates. A common name counts as a DNS name or as an address; one that is
// neither is left out.
func Identifiers(spec acmev1.OrderSpec) []acme.Identifier {
	names := pki.CanonicalDNSNames(spec.DNSNames)
	var addresses []string
	for _, a := range spec.IPAddresses {
		addresses = append(addresses, canonical(a))
	}
	switch cn := spec.CommonName; {
	case isAddress(cn):
		addresses = append(addresses, canonical(cn))
	case isDomainName(cn):
		names = append(names, pki.CanonicalDNSNames([]string{cn})...)
	}
	var ids []acme.Identifier
	for _, n := range sortedSet(names) {
		ids = append(ids, acme.DNS(n))
	}
	for _, a := range sortedSet(addresses) {
		ids = append(ids, acme.Identifier{Type: acme.IdentifierIP, Value: a})
	}
	return ids
}

func sortedSet(values []string) []string {
	slices.Sort(values)
	return slices.Compact(values)
}

// canonical is the one text of an address (RFC 8738 §3), so that no address counts twice.
func canonical(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	return acme.IP(a).Value
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// isDomainName reports whether s is a fully qualified name: two labels or more, of
// letters, digits, hyphens and underscores, the first perhaps a wildcard.
func isDomainName(s string) bool {
	s = strings.TrimPrefix(s, "*.")
	labels := strings.Split(strings.TrimSuffix(s, "."), ".")
	if len(s) > 253 || len(labels) < 2 {
		return false
	}
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, notInLabel) {
			return false
		}
	}
	return true
}

func notInLabel(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// ChainMatches reports whether the issuer of a PEM chain's last certificate has the preferred common name.
func ChainMatches(preferred string, chain []byte) bool {
	var last []byte
	for rest := bytes.TrimSpace(chain); len(rest) > 0; {
		block, more := pem.Decode(rest)
		if block == nil {
			break
		}
		last, rest = block.Bytes, more
	}
	c, err := x509.ParseCertificate(last)
	return err == nil && c.Issuer.CommonName == preferred
}
