package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// hugeKey is an RSA key of more bits than a modular exponentiation should be made
// with, in no more PEM than the limits of spec §9.3 allow.
func hugeKey(t *testing.T, bits int) *rsa.PublicKey {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits-1)))
	if err != nil {
		t.Fatal(err)
	}
	n.SetBit(n, bits-1, 1)
	n.SetBit(n, 0, 1)
	return &rsa.PublicKey{N: n, E: 1<<31 - 1}
}

// forgedRequest is a certificate request for a key, with a signature by nobody.
func forgedRequest(t *testing.T, public *rsa.PublicKey) []byte {
	t.Helper()
	key, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	type info struct {
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	der, err := asn1.Marshal(struct {
		Info      info
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		info{Subject: asn1.RawValue{FullBytes: []byte{0x30, 0}}, PublicKey: asn1.RawValue{FullBytes: key}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: make([]byte, public.Size()), BitLength: 8 * public.Size()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der})
}

// What anybody can put into an object is refused before work is done that grows with
// the square of its size.
func TestHugeKeysAreRefused(t *testing.T) {
	huge := hugeKey(t, 250_000)
	request := forgedRequest(t, huge)
	if len(request) > MaxChainPEM {
		t.Fatalf("%d bytes of PEM are refused for their size alone", len(request))
	}
	key, err := GenerateKey(KeySpec{Algorithm: ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<31, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, huge, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der})
	for name, decode := range map[string]func() error{
		"request": func() error { _, err := DecodeCSR(request); return err },
		"chain":   func() error { _, err := DecodeChain(certificate); return err },
		"bundle":  func() error { _, err := DecodeBundle(certificate); return err },
	} {
		if err := decode(); err == nil || !strings.Contains(err.Error(), "250000 bits") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOversizedInputIsNotDecoded(t *testing.T) {
	filler := func(limit int) []byte { return bytes.Repeat([]byte("-----BEGIN X-----\n"), limit/18+1) }
	for name, err := range map[string]error{
		"certificate": errorOf(DecodeCertificate(filler(MaxCertificatePEM))),
		"chain":       errorOf(DecodeChain(filler(MaxChainPEM))),
		"bundle":      errorOf(DecodeBundle(filler(MaxBundlePEM))),
		"key":         errorOf(DecodePrivateKey(filler(MaxPrivateKeyPEM))),
		"request":     errorOf(DecodeCSR(filler(MaxChainPEM))),
	} {
		if err == nil || !strings.Contains(err.Error(), "more bytes of PEM than the") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// Just below the limits, hostile PEM must not cost more than real PEM does.
func TestHostilePEMIsCheap(t *testing.T) {
	for name, text := range map[string][]byte{
		"begins only":    bytes.Repeat([]byte("-----BEGIN CERTIFICATE-----\n"), MaxBundlePEM/28),
		"dashes only":    bytes.Repeat([]byte("-"), MaxBundlePEM),
		"headers only":   append([]byte("-----BEGIN CERTIFICATE-----\n"), bytes.Repeat([]byte("a: b\n"), MaxBundlePEM/5-8)...),
		"other blocks":   bytes.Repeat(pem.EncodeToMemory(&pem.Block{Type: "X"}), MaxBundlePEM/40),
		"empty ones":     bytes.Repeat(pem.EncodeToMemory(&pem.Block{Type: pemCertificate}), MaxBundlePEM/60),
		"unended blocks": bytes.Repeat([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n"), MaxBundlePEM/33),
	} {
		began := time.Now()
		if _, err := DecodeBundle(text[:min(len(text), MaxBundlePEM)]); err == nil {
			t.Errorf("%s: no error", name)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s: %s", name, took)
		}
	}
}
