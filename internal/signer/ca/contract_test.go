package ca

import (
	"testing"

	"chancery.dev/internal/rig/signer/contract"
	"chancery.dev/internal/signer"
)

func TestContract(t *testing.T) {
	root, store := newAuthority(t, "root", true, nil), &secrets{}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key})
	contract.Run(t, contract.Harness{
		New: func() signer.Signer { return newSigner(store) }, Issuer: issuerIn("team"), Request: newRequest(t),
	})
}
