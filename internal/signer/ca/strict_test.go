package ca

import (
	"bytes"
	"crypto/x509"
	"slices"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

// joins is the chain rule of spec §3.4 as cert-manager has it, without our quirk: each certificate once, they are one
// list from a certificate to the one above.
func joins(certs ...*x509.Certificate) bool {
	slices.SortFunc(certs, func(a, b *x509.Certificate) int { return bytes.Compare(a.Raw, b.Raw) })
	certs = slices.CompactFunc(certs, (*x509.Certificate).Equal)
	above, below := map[*x509.Certificate]*x509.Certificate{}, map[*x509.Certificate]bool{}
	for _, c := range certs {
		for _, by := range certs {
			if c == by || !bytes.Equal(c.RawIssuer, by.RawSubject) || c.CheckSignatureFrom(by) != nil {
				continue
			}
			if above[c] != nil || below[by] {
				return false
			}
			above[c], below[by] = by, true
		}
	}
	bottom := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return !below[c] })
	if bottom < 0 {
		return false
	}
	length := 1
	for c := above[certs[bottom]]; c != nil; c = above[c] {
		length++
	}
	return length == len(certs)
}

// TestCertManagerReadsWhatIsDelivered: who goes back to cert-manager has CAs there that it signs with. It reads tls.crt
// and the first certificate in ca.crt, and refuses two certificates of one name and key.
func TestCertManagerReadsWhatIsDelivered(t *testing.T) {
	r := newRotated(t, 10*time.Hour, 20*time.Hour, 30*time.Hour)
	sub := newAuthority(t, "sub", true, r.roots[2])
	rootCA := pki.Succeed([]*x509.Certificate{r.roots[2].cert}, []*x509.Certificate{r.roots[1].cert, r.roots[0].cert, r.ab, r.bc}, now)
	if !joins(r.roots[2].cert, rootCA[0]) {
		t.Error("it does not sign with the root")
	}
	for name, secret := range map[string]map[string][]byte{
		"the root":        {"tls.crt": pemOf(r.roots[2]), "tls.key": r.roots[2].key, "ca.crt": pki.EncodeCertificates(rootCA...)},
		"an intermediate": {"tls.crt": pemOf(sub), "tls.key": sub.key, "ca.crt": pki.EncodeCertificates(rootCA...)},
	} {
		store := &secrets{}
		store.put("team", "ca", secret)
		issuer := issuerIn("team")
		issuer.SetAnnotations(map[string]string{certmanagerv1.DeliverRootsAnnotation: "true"})
		for _, isCA := range []bool{true, false} {
			request := newRequest(t)
			request.IsCA = isCA
			result, err := newSigner(store).Sign(t.Context(), issuer, request)
			if err != nil {
				t.Fatal(err)
			}
			chain, err := pki.DecodeChain(result.Bundle.Chain)
			if err != nil {
				t.Fatal(err)
			}
			ca, err := pki.DecodeBundle(result.Bundle.CA)
			if err != nil {
				t.Fatal(err)
			}
			if isCA && !joins(append(slices.Clone(chain), ca[0])...) {
				t.Errorf("by %s: it does not sign with a CA", name)
			}
			if !joins(slices.Clone(chain)...) {
				t.Errorf("by %s: tls.crt is no chain, for a CA: %t", name, isCA)
			}
			if !isCA && joins(append(slices.Clone(chain), ca[0])...) {
				t.Errorf("by %s: links and the root join: the rule is not strict", name)
			}
		}
	}
}
