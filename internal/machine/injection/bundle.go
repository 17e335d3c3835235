package injection

import (
	"crypto/x509"
	"time"

	"chancery.dev/internal/pki"
)

// bundle is what a PEM text holds.
type bundle struct {
	certs []*x509.Certificate
	// strange is how many PEM blocks are no certificate.
	strange int
}

// parse reads the certificates of a text of at most pki.MaxBundlePEM bytes, and leaves out everything else.
func parse(text []byte) bundle {
	certs, leftOut := pki.Trust(text)
	return bundle{certs: certs, strange: len(leftOut)}
}

// merge returns the certificates of the bundles that are valid now or later, in order and each once.
func merge(now time.Time, bundles ...[]*x509.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	seen := map[string]bool{}
	for _, certs := range bundles {
		for _, c := range certs {
			if now.After(c.NotAfter) || seen[string(c.Raw)] {
				continue
			}
			seen[string(c.Raw)] = true
			out = append(out, c)
		}
	}
	return out
}
