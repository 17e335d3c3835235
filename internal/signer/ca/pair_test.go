package ca

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// TestAllOfAPairCounts: the root that is in ca.crt alone counts for what is kept, and so does an RSA key.
func TestAllOfAPairCounts(t *testing.T) {
	root := newAuthority(t, "root", true, nil)
	sub := newAuthority(t, "sub", true, root)
	pair, err := parsePair(t.Context(), &corev1.Secret{Data: map[string][]byte{
		cmmeta.TLSCertKey: pemOf(sub), cmmeta.TLSPrivateKeyKey: sub.key, cmmeta.TLSCAKey: pemOf(root),
	}})
	if err != nil {
		t.Fatal(err)
	}
	certificates := bytesPerByte * (len(sub.cert.Raw) + len(root.cert.Raw))
	if got := pair.size(); got != certificates {
		t.Errorf("%d bytes, want %d", got, certificates)
	}
	if pair.key, err = pki.GenerateKey(pki.KeySpec{Algorithm: pki.RSA, Size: 2048}); err != nil {
		t.Fatal(err)
	}
	if got, want := pair.size(), certificates+bytesPerKeyByte*2048/8; got != want {
		t.Errorf("with an RSA key %d bytes, want %d", got, want)
	}
	if pair.key, err = pki.GenerateKey(pki.KeySpec{Algorithm: pki.MLDSA44}); err != nil {
		t.Fatal(err)
	}
	if got, want := pair.size(), certificates+bytesPerMLDSAKey; got != want {
		t.Errorf("with an ML-DSA key %d bytes, want %d", got, want)
	}
}
