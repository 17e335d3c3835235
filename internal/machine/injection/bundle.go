package injection

import (
	"crypto/x509"
	"encoding/pem"
	"time"
)

// bundle is what a PEM text holds.
type bundle struct {
	certs []*x509.Certificate
	// strange is how many PEM blocks are no certificate.
	strange int
}

// parse reads the certificates of a text of at most pki.MaxBundlePEM bytes, and leaves out everything else.
func parse(text []byte) bundle {
	var b bundle
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return b
		}
		text = rest
		cert, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			b.strange++
			continue
		}
		b.certs = append(b.certs, cert)
	}
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
