package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

func TestKeysRoundTrip(t *testing.T) {
	for _, c := range []struct {
		spec     KeySpec
		encoding string
		block    string
	}{
		{KeySpec{}, "", "RSA PRIVATE KEY"},
		{KeySpec{Algorithm: RSA, Size: 3072}, PKCS8, "PRIVATE KEY"},
		{KeySpec{Algorithm: ECDSA}, PKCS1, "EC PRIVATE KEY"},
		{KeySpec{Algorithm: ECDSA, Size: 384}, PKCS8, "PRIVATE KEY"},
		{KeySpec{Algorithm: ECDSA, Size: 521}, "", "EC PRIVATE KEY"},
		{KeySpec{Algorithm: Ed25519}, PKCS1, "PRIVATE KEY"},
		{KeySpec{Algorithm: Ed25519, Size: 4096}, PKCS8, "PRIVATE KEY"},
	} {
		key, err := GenerateKey(c.spec)
		if err != nil {
			t.Fatalf("%+v: %v", c.spec, err)
		}
		if v := c.spec.ViolationsOf(FactsOfKey(key.Public())); len(v) > 0 {
			t.Errorf("%+v: a key made for the spec violates %q", c.spec, v)
		}
		text, err := EncodePrivateKey(key, c.encoding)
		if err != nil {
			t.Fatalf("%+v: %v", c.spec, err)
		}
		if block, rest := pem.Decode(text); block == nil || block.Type != c.block || len(rest) > 0 {
			t.Errorf("%+v in %q: want exactly one block %s, got %.30q", c.spec, c.encoding, c.block, text)
		}
		back, err := DecodePrivateKey(text)
		if err != nil {
			t.Fatalf("%+v: %v", c.spec, err)
		}
		if !PublicKeysEqual(back.Public(), key.Public()) {
			t.Errorf("%+v: another key came back", c.spec)
		}
	}
}

func TestGenerateKeyRefuses(t *testing.T) {
	for _, spec := range []KeySpec{{RSA, 1024}, {RSA, 16384}, {ECDSA, 224}, {ECDSA, 2048}, {"DSA", 0}, {"rsa", 2048}} {
		if _, err := GenerateKey(spec); err == nil || !strings.Contains(err.Error(), "privateKey.") {
			t.Errorf("%+v: error %v must name the field", spec, err)
		}
	}
}

func TestViolations(t *testing.T) {
	rsaKey, p256, edKey := mustKey(t, RSA).Public(), mustKey(t, ECDSA).Public(), mustKey(t, Ed25519).Public()
	for _, c := range []struct {
		spec KeySpec
		key  crypto.PublicKey
		want []string
	}{
		{KeySpec{}, rsaKey, nil},
		{KeySpec{RSA, 4096}, rsaKey, []string{ViolationKeySize}},
		{KeySpec{ECDSA, 256}, rsaKey, []string{ViolationKeyAlgorithm}},
		{KeySpec{ECDSA, 0}, p256, nil},
		{KeySpec{ECDSA, 384}, p256, []string{ViolationKeySize}},
		{KeySpec{Ed25519, 512}, edKey, nil},
		{KeySpec{}, nil, []string{ViolationKeyAlgorithm}},
	} {
		if got := c.spec.ViolationsOf(FactsOfKey(c.key)); !slices.Equal(got, c.want) {
			t.Errorf("%+v against %T: violations %q, want %q", c.spec, c.key, got, c.want)
		}
	}
}

func TestDecodePrivateKeyRefuses(t *testing.T) {
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(x25519)
	if err != nil {
		t.Fatal(err)
	}
	good, err := EncodePKCS8(mustKey(t, ECDSA))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"empty":         {nil, "no private key found"},
		"no PEM":        {[]byte("secret-words"), "no private key found"},
		"certificate":   {EncodeCertificates(issue(t, "x", false, nil).cert), `"CERTIFICATE", not a private key`},
		"encrypted":     {pemBlock("ENCRYPTED PRIVATE KEY", []byte{1}), "without a passphrase"},
		"old encrypted": {pem.EncodeToMemory(&pem.Block{Type: pemPKCS1, Headers: map[string]string{"DEK-Info": "AES-128-CBC,00"}}), "without a passphrase"},
		"garbage":       {pemBlock(pemPKCS8, []byte("secret-words")), "does not parse"},
		"cannot sign":   {pemBlock(pemPKCS8, der), "cannot sign"},
		"too large":     {append(good, bytes.Repeat([]byte("\n"), MaxPrivateKeyPEM)...), "13000"},
	} {
		_, err := DecodePrivateKey(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret-words") {
			t.Errorf("%s: error %v, want %q and nothing of the text", name, err, c.want)
		}
	}
}

func TestDecodePrivateKeySkipsCurve(t *testing.T) {
	key := mustKey(t, ECDSA)
	text, err := EncodePrivateKey(key, PKCS1)
	if err != nil {
		t.Fatal(err)
	}
	// What "openssl ecparam -genkey" writes first: the OID of P-256.
	curve := pemBlock("EC PARAMETERS", []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7})
	back, err := DecodePrivateKey(append(curve, text...))
	if err != nil || !PublicKeysEqual(back.Public(), key.Public()) {
		t.Errorf("key after EC PARAMETERS: %v", err)
	}
}

func TestPublicKeys(t *testing.T) {
	a, b := mustKey(t, ECDSA).Public(), mustKey(t, ECDSA).Public()
	ed := mustKey(t, Ed25519).Public()
	if !PublicKeysEqual(a, a) || PublicKeysEqual(a, b) || PublicKeysEqual(a, ed) || PublicKeysEqual(nil, a) || PublicKeysEqual(a, nil) || PublicKeysEqual("x", "x") {
		t.Error("equality of public keys is wrong")
	}
	fa, errA := PublicKeyFingerprint(a)
	fb, errB := PublicKeyFingerprint(b)
	if errA != nil || errB != nil || fa == fb {
		t.Errorf("fingerprints %x %x, %v %v", fa, fb, errA, errB)
	}
	if _, err := PublicKeyFingerprint("x"); err == nil {
		t.Error("a fingerprint of no key")
	}
}

func TestSignatureAlgorithms(t *testing.T) {
	size := func(algorithm string, bits int) crypto.PublicKey {
		key, err := GenerateKey(KeySpec{algorithm, bits})
		if err != nil {
			t.Fatal(err)
		}
		return key.Public()
	}
	rsaKey, p256 := size(RSA, 2048), size(ECDSA, 256)
	for _, c := range []struct {
		key  crypto.PublicKey
		name string
		want x509.SignatureAlgorithm // 0: refused
	}{
		{rsaKey, "", x509.SHA256WithRSA},
		{size(RSA, 3072), "", x509.SHA384WithRSA},
		{p256, "", x509.ECDSAWithSHA256},
		{size(ECDSA, 384), "", x509.ECDSAWithSHA384},
		{size(ECDSA, 521), "", x509.ECDSAWithSHA512},
		{size(Ed25519, 0), "", x509.PureEd25519},
		{rsaKey, "SHA512WithRSA", x509.SHA512WithRSA},
		{rsaKey, "SHA384WithRSA", x509.SHA384WithRSA},
		{p256, "ECDSAWithSHA512", x509.ECDSAWithSHA512},
		{p256, "SHA256WithRSA", 0},
		{rsaKey, "PureEd25519", 0},
		{rsaKey, "MD5WithRSA", 0},
		{"no key", "", 0},
	} {
		got, err := signatureAlgorithm(c.name, c.key)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%q with %T: %v, %v; want %v", c.name, c.key, got, err, c.want)
		}
	}
}

// FuzzDecodePrivateKey: a key that is taken can be written, and is the same key then. Errors do not quote the text.
func FuzzDecodePrivateKey(f *testing.F) {
	for _, algorithm := range []string{ECDSA, Ed25519} {
		for _, encoding := range []string{PKCS1, PKCS8} {
			text, err := EncodePrivateKey(mustKey(f, algorithm), encoding)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----"))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := DecodePrivateKey(text)
		if err != nil {
			return
		}
		for _, encoding := range []string{PKCS1, PKCS8} {
			written, err := EncodePrivateKey(key, encoding)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := DecodePrivateKey(written); err != nil || !PublicKeysEqual(key.Public(), again.Public()) {
				t.Errorf("%s is not read as the same key: %v", encoding, err)
			}
		}
	})
}

// TestSlowKeysAreRefused: who writes the Secret of a CA issuer chooses how long each signature takes.
func TestSlowKeysAreRefused(t *testing.T) {
	t.Parallel()
	bounds.Holds(t, "RSA primes", func(n int) limits.Outcome {
		key, err := rsa.GenerateMultiPrimeKey(rand.Reader, n, 2048) //nolint:staticcheck // Go signs with such keys still
		if err != nil {
			t.Fatal(err)
		}
		_, err = DecodePrivateKey(pem.EncodeToMemory(&pem.Block{Type: pemPKCS1, Bytes: x509.MarshalPKCS1PrivateKey(key)}))
		return bounds.Refusal(t, err, "3 primes")
	})
	bounds.Holds(t, "RSA bits", func(n int) limits.Outcome {
		large := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), uint(n-1))}, Primes: make([]*big.Int, limits.RSAPrimes)}
		return bounds.Refusal(t, checkSigningKey(large), "8193 bits")
	})
}
