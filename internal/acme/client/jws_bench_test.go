package client

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"testing"
)

// BenchmarkSign is what one signed request costs, by kind of account key. An issuance makes about ten of them.
func BenchmarkSign(b *testing.B) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"RSA2048": rsaKey, "P256": ecKey, "Ed25519": edKey} {
		b.Run(name, func(b *testing.B) {
			k, err := newAccountKey(key)
			if err != nil {
				b.Fatal(err)
			}
			payload := []byte(`{"csr":"MIIBAzCBqg"}`)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := k.sign(payload, jwsHeader{url: "https://ca.example/acme/order/1", nonce: "bm9uY2U", kid: "https://ca.example/acct/1"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
