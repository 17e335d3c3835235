package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"

	"chancery.dev/internal/rig/slow"
)

// TestRFC9881: the keys of appendix C of RFC 9881 in the form of a seed are read, and its certificates are verified. Of
// the other forms, the message says how to convert what has a seed.
func TestRFC9881(t *testing.T) {
	t.Parallel()
	example := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join("testdata", "rfc9881", name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for algorithm, signature := range map[string]x509.SignatureAlgorithm{MLDSA44: x509.MLDSA44, MLDSA65: x509.MLDSA65, MLDSA87: x509.MLDSA87} {
		key, err := DecodePrivateKey(example("key-" + strings.ToLower(algorithm) + ".pem"))
		if err != nil {
			t.Fatal(err)
		}
		cert, err := DecodeCertificate(example("cert-" + strings.ToLower(algorithm) + ".pem"))
		if err != nil {
			t.Fatal(err)
		}
		if err := cert.CheckSignatureFrom(cert); err != nil || cert.SignatureAlgorithm != signature || !PublicKeysEqual(cert.PublicKey, key.Public()) {
			t.Errorf("%s: %v, %s", algorithm, err, cert.SignatureAlgorithm)
		}
		if facts := FactsOfKey(cert.PublicKey); facts.Algorithm != algorithm || facts.Size != 0 {
			t.Errorf("%s: %+v", algorithm, facts)
		}
		text, err := EncodePrivateKey(key, "")
		if again, failed := DecodePrivateKey(text); err != nil || failed != nil || !PublicKeysEqual(again.Public(), key.Public()) || len(text) != 128 {
			t.Errorf("%s: %v, %v, %d bytes of PEM", algorithm, err, failed, len(text))
		}
	}
	for form, says := range map[string]string{"both": "openssl pkey -provparam ml-dsa.output_formats=seed-only", "expanded": "without seed"} {
		if _, err := DecodePrivateKey(example("key-mldsa44-" + form + ".pem")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", form, err)
		}
	}
}

// TestMLDSA: such keys have no size and one encoding, sign what other keys sign, and do nothing else.
func TestMLDSA(t *testing.T) {
	t.Parallel()
	root := issueFor(t, "root", true, mustKey(t, MLDSA87), nil)
	for _, algorithm := range []string{MLDSA44, MLDSA65, MLDSA87} {
		key := mustKey(t, algorithm)
		if got := (KeySpec{Algorithm: algorithm, Size: 2048}).ViolationsOf(FactsOfKey(key.Public())); len(got) > 0 || (KeySpec{Algorithm: algorithm}).Slow() {
			t.Errorf("%s: violations %q", algorithm, got)
		}
		if got := (KeySpec{Algorithm: Ed25519}).ViolationsOf(FactsOfKey(key.Public())); !slices.Equal(got, []string{ViolationKeyAlgorithm}) {
			t.Errorf("%s for Ed25519: violations %q", algorithm, got)
		}
		csr := mustCSR(t, CSRTemplate{Subject: pkix.Name{CommonName: "leaf"}, EncodeUsages: true, SignatureAlgorithm: "Pure" + algorithm}, key)
		if facts, err := InspectCSR(csr); err != nil || facts.Usages.Bits != x509.KeyUsageDigitalSignature || csr.CheckSignature() != nil {
			t.Errorf("%s: %v, usages %b", algorithm, err, facts.Usages.Bits)
		}
		for _, name := range []string{"key encipherment", "data encipherment", "key agreement", "encipher only", "decipher only"} {
			if _, err := CreateCSR(CSRTemplate{Usages: []string{"digital signature", name}}, key); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s for %s: %v", algorithm, name, err)
			}
		}
		if _, err := CreateCSR(CSRTemplate{SignatureAlgorithm: "PureEd25519"}, key); err == nil || !strings.Contains(err.Error(), algorithm) {
			t.Errorf("%s: %v", algorithm, err)
		}
		ca := issueFor(t, "ca", true, key, root)
		for _, other := range []string{RSA, ECDSA, Ed25519, MLDSA44} {
			leaf := issueFor(t, "leaf", false, mustKey(t, other), ca)
			if err := leaf.cert.CheckSignatureFrom(ca.cert); err != nil || CheckLimits(leaf.cert, []*x509.Certificate{ca.cert, root.cert}) != nil {
				t.Errorf("%s below %s: %v", other, algorithm, err)
			}
		}
		old := issue(t, "root", true, nil)
		for _, pair := range [][2]*pair{{old, root}, {root, old}} { // a CA is replaced
			link, err := NewLink(pair[1].cert, pair[0].cert, pair[0].key, testTime)
			if err != nil || link.CheckSignatureFrom(pair[0].cert) != nil || !PublicKeysEqual(link.PublicKey, pair[1].cert.PublicKey) {
				t.Errorf("a link from %s to %s: %v", pair[0].cert.PublicKeyAlgorithm, pair[1].cert.PublicKeyAlgorithm, err)
			}
		}
		if err := ca.cert.CheckSignatureFrom(root.cert); err != nil || ca.cert.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign {
			t.Errorf("%s: %v, key usage %b", algorithm, err, ca.cert.KeyUsage)
		}
	}
}

// TestKeystoresOfMLDSA: the libraries read back what they have written.
func TestKeystoresOfMLDSA(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{MLDSA44, MLDSA65, MLDSA87} {
		k := mustKeystore(t, mustKey(t, algorithm))
		for _, profile := range []PKCS12Profile{LegacyRC2, LegacyDES, Modern2023, Modern2026} {
			key, leaf, _, err := pkcs12.DecodeChain(must(t)(EncodePKCS12(k, profile)), storePassword)
			if err != nil {
				t.Fatalf("%s, %s: %v", algorithm, profile, err)
			}
			if signer, is := key.(crypto.Signer); !is || !PublicKeysEqual(signer.Public(), k.Key.Public()) || !PublicKeysEqual(leaf.PublicKey, k.Key.Public()) {
				t.Errorf("%s, %s: another key is read", algorithm, profile)
			}
		}
		store := keystore.New()
		if err := store.Load(bytes.NewReader(must(t)(EncodeJKS(k))), []byte(storePassword)); err != nil {
			t.Fatal(err)
		}
		entry, err := store.GetPrivateKeyEntry(k.Alias, []byte(storePassword))
		if err != nil {
			t.Fatal(err)
		}
		key, err := x509.ParsePKCS8PrivateKey(entry.PrivateKey)
		if signer, is := key.(crypto.Signer); err != nil || !is || !PublicKeysEqual(signer.Public(), k.Key.Public()) {
			t.Errorf("%s: JKS: %v, or another key is read", algorithm, err)
		}
	}
}

// TestKeytoolListsMLDSA: Java lists the CA certificates of a truststore, whatever it knows of their keys.
func TestKeytoolListsMLDSA(t *testing.T) {
	t.Parallel()
	keytool := program(t, "keytool")
	k := mustKeystore(t, mustKey(t, ECDSA))
	k.CA = []*x509.Certificate{issueFor(t, "root", true, mustKey(t, MLDSA65), nil).cert}
	for name, data := range map[string][]byte{"jks": must(t)(EncodeJKSTruststore(k)), "p12": must(t)(EncodePKCS12Truststore(k, Modern2023))} {
		out, err := keytool(data, "-list", "-storepass:env", "STORE_PASSWORD", "-keystore")
		if err != nil || !strings.Contains(out, "trustedCertEntry") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// oldModule is set where the tests are built with a FIPS module that has no ML-DSA.
const oldModule = "CHANCERY_TEST_OLD_FIPS_MODULE"

// TestOldFIPSModule: a program that is built with GOFIPS140=v1.0.0 has no ML-DSA, and says so.
func TestOldFIPSModule(t *testing.T) {
	if os.Getenv(oldModule) == "" {
		slow.Test(t, slow.Builds)
		cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-run=^TestOldFIPSModule$", ".")
		cmd.Env = append(os.Environ(), "GOFIPS140=v1.0.0", oldModule+"=true")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if _, err := GenerateKey(KeySpec{Algorithm: MLDSA65}); err == nil || !strings.Contains(err.Error(), "choose another privateKey.algorithm") {
		t.Errorf("make a key: %v", err)
	}
	for _, name := range []string{"key-mldsa65.pem", "cert-mldsa65.pem"} {
		text, err := os.ReadFile(filepath.Join("testdata", "rfc9881", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodePrivateKey(text); err == nil {
			t.Errorf("%s is read as a key", name)
		}
		if cert, err := DecodeCertificate(text); err == nil && FactsOfKey(cert.PublicKey) != (PublicKeyFacts{}) {
			t.Errorf("%s has a key that is known", name)
		}
	}
}
