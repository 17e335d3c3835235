package injection

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"

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

// TestOldCAsGrow: to find the CAs that have left the source costs as much as there are, and not their product with
// those that have not.
func TestOldCAsGrow(t *testing.T) {
	growth.Linear(t, 8*pki.MaxBundlePEM/300, func(n int) func() {
		var old, ca []*x509.Certificate
		for i := range n {
			old = append(old, &x509.Certificate{Raw: fmt.Appendf(nil, "old %d", i), NotAfter: now.Add(time.Hour)})
			ca = append(ca, &x509.Certificate{Raw: fmt.Appendf(nil, "ca %d", i), NotAfter: now.Add(time.Hour)})
		}
		o := overlap{on: true, after: time.Minute}
		return func() {
			if kept, _, dropped := o.step([][]*x509.Certificate{append(old, ca...)}, ca, now); len(kept) != 1 || dropped != 0 {
				t.Fatalf("%d bundles, %d dropped", len(kept), dropped)
			}
		}
	})
}
