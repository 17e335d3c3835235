package selfsigned

import (
	"crypto/x509/pkix"
	"testing"

	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/signer/contract"
	"chancery.dev/internal/signer"
)

func TestContract(t *testing.T) {
	key, csr := newKey(t)
	contract.Run(t, contract.Harness{
		New:     func() signer.Signer { return New(&secrets{data: map[string][]byte{"tls.key": key}}, clock) },
		Issuer:  issuer(),
		Request: newRequest(csr(pki.CSRTemplate{Subject: pkix.Name{CommonName: "me"}})),
	})
}
