package conformance

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/tool"
)

// sans, keyUsage and basicConstraints are the extensions whose criticality is looked at
// (RFC 5280 §4.2.1.6, §4.2.1.3, §4.2.1.9).
func sans() asn1.ObjectIdentifier             { return asn1.ObjectIdentifier{2, 5, 29, 17} }
func keyUsage() asn1.ObjectIdentifier         { return asn1.ObjectIdentifier{2, 5, 29, 15} }
func basicConstraints() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 29, 19} }

// skew is how far two clocks may be apart, and how far a CA dates its certificates back.
const skew = 2 * time.Hour

// verify looks at everything that was asked for.
func (a *asked) verify(t *testing.T, got given) {
	t.Helper()
	certs, err := pki.DecodeChain(got.chain)
	if err != nil {
		t.Fatal(err)
	}
	leaf := certs[0]
	if !pki.PublicKeysEqual(leaf.PublicKey, a.key.Public()) {
		t.Error("the certificate is for another key")
	}
	if !slices.Equal(leaf.DNSNames, []string{a.dnsName}) {
		t.Errorf("the names are %q, want %q", leaf.DNSNames, a.dnsName)
	}
	a.verifyExtensions(t, leaf)
	a.verifyValidity(t, leaf)
	a.verifyChain(t, certs, got)
}

func (a *asked) verifyExtensions(t *testing.T, leaf *x509.Certificate) {
	t.Helper()
	bare := len(leaf.Subject.ToRDNSequence()) == 0
	if !a.subject.Decides && bare != a.bare {
		t.Errorf("the subject is %q", leaf.Subject)
	}
	critical := map[string]bool{}
	for _, e := range leaf.Extensions {
		critical[e.Id.String()] = e.Critical
	}
	if is, there := critical[sans().String()]; !there || is != bare {
		t.Errorf("subject %q: subjectAltName is there: %t, critical: %t (RFC 5280 §4.2.1.6)", leaf.Subject, there, is)
	}
	if is, there := critical[keyUsage().String()]; there && !is {
		t.Error("keyUsage is not critical")
	}
	if !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) {
		t.Errorf("extended usages %v lack server auth", leaf.ExtKeyUsage)
	}
	if leaf.IsCA != a.isCA {
		t.Errorf("isCA is %t, want %t", leaf.IsCA, a.isCA)
	}
	if a.subject.Decides {
		return
	}
	want := x509.KeyUsageDigitalSignature
	if a.isCA {
		want |= x509.KeyUsageCertSign
	}
	if leaf.KeyUsage != want || len(leaf.ExtKeyUsage) != 1 {
		t.Errorf("usages %b and %v, want %b and server auth", leaf.KeyUsage, leaf.ExtKeyUsage, want)
	}
	if is, there := critical[basicConstraints().String()]; !there || !is || leaf.MaxPathLen != -1 && leaf.IsCA {
		t.Errorf("basicConstraints are there: %t, critical: %t, path length %d", there, is, leaf.MaxPathLen)
	}
}

func (a *asked) verifyValidity(t *testing.T, leaf *x509.Certificate) {
	t.Helper()
	validity := leaf.NotAfter.Sub(leaf.NotBefore)
	now := time.Now()
	if leaf.NotBefore.After(now) || leaf.NotAfter.Before(now) {
		t.Errorf("valid from %s until %s, now is %s", leaf.NotBefore, leaf.NotAfter, now)
	}
	if !a.subject.Decides && (validity < Duration || validity > Duration+skew) {
		t.Errorf("valid for %s, want %s", validity, Duration)
	}
}

// verifyChain checks the certificate as a TLS client would, by Go and by openssl.
func (a *asked) verifyChain(t *testing.T, certs []*x509.Certificate, got given) {
	t.Helper()
	if len(certs) > 1 && slices.ContainsFunc(certs, pki.IsSelfSigned) {
		t.Error("a self-signed certificate is in the chain")
	}
	if len(certs) > 1 && !bytes.Equal(certs[0].AuthorityKeyId, certs[1].SubjectKeyId) {
		t.Errorf("the certificate says that the key %x has signed it, but the next in the chain is %x", certs[0].AuthorityKeyId, certs[1].SubjectKeyId)
	}
	roots := a.subject.Roots
	switch {
	case a.subject.OwnKey:
		if !pki.IsSelfSigned(certs[0]) {
			t.Error("the certificate is not self-signed")
		}
		roots = poolOf(got.chain)
		a.openssl(t, got.chain, got.chain)
	case len(got.ca) > 0:
		a.openssl(t, got.ca, got.chain)
		if roots == nil {
			roots = poolOf(got.ca)
		}
	case roots == nil:
		t.Fatal("there is no root to verify the chain with: set Subject.Roots")
	}
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, DNSName: a.dnsName, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		t.Errorf("the chain does not verify: %v", err)
	}
}

func poolOf(text []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

// openssl asks OpenSSL for a second opinion.
func (a *asked) openssl(t *testing.T, root, chain []byte) {
	t.Helper()
	t.Run("openssl", func(t *testing.T) { a.opensslVerifies(t, tool.Path(t, "openssl"), root, chain) })
}

func (a *asked) opensslVerifies(t *testing.T, binary string, root, chain []byte) {
	t.Helper()
	dir := t.TempDir()
	rootFile, chainFile := filepath.Join(dir, "root.pem"), filepath.Join(dir, "chain.pem")
	for file, text := range map[string][]byte{rootFile: root, chainFile: chain} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certs, _ := pki.DecodeBundle(slices.Concat(root, chain)) // both were read before
	known, err := exec.CommandContext(t.Context(), binary, "list", "-signature-algorithms").CombinedOutput()
	if err != nil {
		t.Fatalf("openssl list: %v\n%s", err, known)
	}
	if slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return pki.IsMLDSA(c.PublicKey) }) && !bytes.Contains(known, []byte("ML-DSA")) {
		t.Log("this OpenSSL is older than ML-DSA (3.5): Go alone has verified the chain")
		return
	}
	said, err := exec.CommandContext(t.Context(), binary, "verify", "-partial_chain", "-CAfile", rootFile, "-untrusted", chainFile,
		"-purpose", "sslserver", "-verify_hostname", a.dnsName, chainFile).CombinedOutput()
	if err != nil {
		t.Errorf("openssl verify: %v\n%s", err, said)
	}
}
