package facts

import (
	"fmt"
	"slices"
	"testing"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/growth"
)

// TestViolationsGrow: to compare a spec with a request, and with a certificate, costs as much as they have names.
func TestViolationsGrow(t *testing.T) {
	growth.Linear(t, limits.CertificateNames, func(n int) func() {
		spec, names := &certmanagerv1.CertificateSpec{}, pki.AltNames{}
		for i := range n {
			spec.DNSNames = append(spec.DNSNames, fmt.Sprintf("h-%d.example.com", i))
			spec.IPAddresses = append(spec.IPAddresses, fmt.Sprintf("192.0.%d.%d", i/256, i%256))
			spec.URIs = append(spec.URIs, fmt.Sprintf("spiffe://example.com/%d", i))
			spec.EmailAddresses = append(spec.EmailAddresses, fmt.Sprintf("m-%d@example.com", i))
			spec.OtherNames = append(spec.OtherNames, certmanagerv1.OtherName{OID: "1.2.3", UTF8Value: fmt.Sprint(i)})
			names.OtherNames = append(names.OtherNames, pki.OtherName{OID: "1.2.3", Value: fmt.Sprint(i)})
		}
		names.DNSNames, names.IPAddresses, names.URIs = slices.Clone(spec.DNSNames), pki.CanonicalIPs(spec.IPAddresses), pki.CanonicalURIs(spec.URIs)
		names.EmailAddresses = slices.Clone(spec.EmailAddresses)
		slices.Reverse(names.DNSNames)
		slices.Reverse(names.URIs)
		return func() {
			if v, err := RequestViolations(spec, Request{CertificateRequest: &certmanagerv1.CertificateRequest{}, Names: names}); len(v) != 0 || err != nil {
				t.Fatal(v, err)
			}
			if v := Violations(spec, &Leaf{Names: names}); len(v) != 0 {
				t.Fatal(v)
			}
		}
	})
}
