package injection

import (
	"crypto/x509"
	"fmt"
	"testing"

	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/growth"
)

// TestFitGrows: a bundle that is too large is cut at a cost that grows with the number of its certificates.
func TestFitGrows(t *testing.T) {
	const (
		size = 300 // bytes of a small certificate
		most = 8 * pki.MaxBundlePEM / size
	)
	growth.Linear(t, most, func(n int) func() {
		certificates := func(of string) (out []*x509.Certificate) {
			for i := range n {
				out = append(out, &x509.Certificate{Raw: fmt.Appendf(make([]byte, size), "%s %d", of, i)})
			}
			return out
		}
		ca, old := certificates("ca"), certificates("old")
		all := append(old, ca...)
		return func() {
			merge(now, all)
			fit(all, ca)
		}
	})
}
