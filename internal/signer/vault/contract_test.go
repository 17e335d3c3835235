package vault

import (
	"testing"

	"chancery.dev/internal/rig/signer/contract"
	"chancery.dev/internal/signer"
)

func TestContract(t *testing.T) {
	vault := newStandIn(t, plain)
	w := newWorld(t, vault)
	contract.Run(t, contract.Harness{
		New: func() signer.Signer { return New(w.Config) }, Issuer: w.issuer("team", w.byAppRole), Request: request(t, "r", "CertificateRequest"),
		Silence: func() func() {
			held := make(chan struct{})
			vault.with(func() { vault.held = held })
			return func() {
				close(held)
				vault.with(func() { vault.held = nil })
			}
		},
	})
}
