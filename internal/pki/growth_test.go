package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"

	"chancery.dev/internal/rig/growth"
)

// TestUsagesGrow: usages of a request are compared at a cost that grows with their number, with those that are asked
// for and with those that a CA may give. A request has room for some ten thousand.
func TestUsagesGrow(t *testing.T) {
	const most = 10_000
	usagesOf := func(n int) (out []asn1.ObjectIdentifier) {
		for i := range n {
			out = append(out, asn1.ObjectIdentifier{1, 3, 1000 + i})
		}
		return out
	}
	certificate := func(n int) *x509.Certificate {
		value, err := asn1.Marshal(usagesOf(n))
		if err != nil {
			t.Fatal(err)
		}
		return &x509.Certificate{Extensions: []pkix.Extension{{Id: oidExtKeyUsage, Value: value}}}
	}
	t.Run("in a request", func(t *testing.T) {
		growth.Linear(t, most, func(n int) func() {
			a, b := usagesOf(n), usagesOf(n)
			return func() {
				if !sameExtended(a, b) {
					t.Error("they differ")
				}
			}
		})
	})
	t.Run("of a CA", func(t *testing.T) {
		growth.Linear(t, most, func(n int) func() {
			cert, ca := certificate(n), certificate(n)
			return func() {
				if err := checkUsages(cert, ca); err != nil {
					t.Error(err)
				}
			}
		})
	})
}
