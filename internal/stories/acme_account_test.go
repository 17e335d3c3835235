package stories_test

import (
	"crypto/ecdsa"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"chancery.dev/internal/pki"
)

// TestAccountKeyAlgorithm: new accounts get a key of the kind that is configured, and
// certificates are issued with it.
func TestAccountKeyAlgorithm(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	cfg := w.Config()
	cfg.ACME.AccountKeyAlgorithm = pki.ECDSA
	w.Run(t, cfg)
	w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "web.example.com"))
	awaitReady(t, w.World, "web")
	account := &corev1.Secret{}
	if err := w.Get(t.Context(), "account", account); err != nil {
		t.Fatal(err)
	}
	key, err := pki.DecodePrivateKey(account.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := key.(*ecdsa.PrivateKey); !ok {
		t.Errorf("the account's key is a %T", key)
	}
}
