package venafi

import (
	"testing"

	"chancery.dev/internal/rig/signer/contract"
	"chancery.dev/internal/rig/tppserver"
	"chancery.dev/internal/signer"
)

func TestContract(t *testing.T) {
	w, tpp := newWorld(t), tppserver.Start(t)
	w.secrets.put("ns/venafi", "username", "me", "password", "secret")
	contract.Run(t, contract.Harness{
		New: func() signer.Signer { return New(w.signer.Config) }, Issuer: issuer("venafi", tpp.Spec("venafi")), Request: w.web(requestKind),
		Silence: tpp.Silence,
	})
}
