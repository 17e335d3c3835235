package selfsigned

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// secrets has the one Secret ns/key, or none if data is nil; err is what it says
// while it is away.
type secrets struct {
	data map[string][]byte
	err  error
}

func (s *secrets) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.data == nil || namespace != "ns" || name != "key" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return &corev1.Secret{Data: s.data}, nil
}

func newKey(t *testing.T) (pemText []byte, csr func(pki.CSRTemplate) []byte) {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.EncodePrivateKey(key, pki.PKCS1)
	if err != nil {
		t.Fatal(err)
	}
	return text, func(template pki.CSRTemplate) []byte {
		csr, err := pki.CreateCSR(template, key)
		if err != nil {
			t.Fatal(err)
		}
		return csr
	}
}

func issuer() *certmanagerv1.Issuer {
	return &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Name: "i", Namespace: "ns", Generation: 2},
		Spec:       certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{CRLDistributionPoints: []string{"http://crl"}}},
	}
}

func newRequest(csr []byte) signer.Request {
	return signer.Request{
		SourceKind: "CertificateRequest", ResourceNamespace: "ns", CSR: csr, Duration: time.Hour, IsCA: true,
		Usages: certmanagerv1.DefaultKeyUsages(), PrivateKeySecretName: "key",
	}
}

func clock() time.Time { return now }

func TestSign(t *testing.T) {
	key, csr := newKey(t)
	s := New(&secrets{data: map[string][]byte{"tls.key": key}}, clock)
	result, err := s.Sign(t.Context(), issuer(), newRequest(csr(pki.CSRTemplate{Subject: pkix.Name{CommonName: "me"}})))
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pki.DecodeChain(result.Bundle.Chain)
	if err != nil || len(certs) != 1 || string(result.Bundle.CA) != string(result.Bundle.Chain) {
		t.Fatalf("the certificate is its own CA: %d certificates, %v", len(certs), err)
	}
	cert := certs[0]
	if !pki.IsSelfSigned(cert) || !cert.IsCA || !cert.NotAfter.Equal(now.Add(time.Hour)) || len(cert.CRLDistributionPoints) != 1 {
		t.Errorf("certificate of %s until %s", cert.Subject, cert.NotAfter)
	}
	if result.Warning != "" {
		t.Errorf("warning %q", result.Warning)
	}
}

func TestEmptySubjectIsSignedWithWarning(t *testing.T) {
	key, csr := newKey(t)
	s := New(&secrets{data: map[string][]byte{"tls.key": key}}, clock)
	result, err := s.Sign(t.Context(), issuer(), newRequest(csr(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"a"}}})))
	if err != nil {
		t.Fatal(err)
	}
	if result.WarningReason != "BadConfig" || !strings.Contains(result.Warning, "commonName") || len(result.Bundle.Chain) == 0 {
		t.Errorf("warning %q: %q", result.WarningReason, result.Warning)
	}
	literal, err := s.Sign(t.Context(), issuer(), newRequest(csr(pki.CSRTemplate{LiteralSubject: "DC=com"})))
	if err != nil || literal.Warning != "" {
		t.Errorf("a subject of domain components is a subject: %q, %v", literal.Warning, err)
	}
}

func TestFaults(t *testing.T) {
	key, csr := newKey(t)
	strange, _ := newKey(t)
	good := csr(pki.CSRTemplate{Subject: pkix.Name{CommonName: "me"}, IsCA: true, EncodeUsages: true})
	request, signing := "CertificateRequest", "CertificateSigningRequest"
	secret := func(text []byte) *secrets { return &secrets{data: map[string][]byte{"tls.key": text}} }
	for _, c := range []struct {
		name    string
		kind    string
		secrets *secrets
		change  func(*signer.Request)
		want    fault.Kind
		reason  string
		says    string
	}{
		{"no annotation", request, secret(key), func(r *signer.Request) { r.PrivateKeySecretName = "" }, fault.KindTerminal, "MissingAnnotation", `"cert-manager.io/private-key-secret-name"`},
		{"no annotation", signing, secret(key), func(r *signer.Request) { r.PrivateKeySecretName = "" }, fault.KindTerminal, "MissingAnnotation", `"experimental.cert-manager.io/private-key-secret-name"`},
		{"no Secret", request, &secrets{}, nil, fault.KindPending, "MissingSecret", "ns/key"},
		{"no Secret", signing, &secrets{}, nil, fault.KindPending, "SecretNotFound", "ns/key"},
		{"server away", request, &secrets{err: errors.New("away")}, nil, fault.KindAfter, "ErrorGettingSecret", "away"},
		{"empty Secret", request, &secrets{data: map[string][]byte{}}, nil, fault.KindPending, "ErrorParsingKey", "missing or empty"},
		{"bad key", request, secret([]byte("x")), nil, fault.KindPending, "ErrorParsingKey", "ns/key"},
		{"bad request", request, secret(key), func(r *signer.Request) { r.CSR = nil }, fault.KindTerminal, "ErrorGenerating", "PEM"},
		{"bad usage", request, secret(key), func(r *signer.Request) { r.Usages = []certmanagerv1.KeyUsage{"fly"} }, fault.KindTerminal, "ErrorGenerating", `"fly"`},
		{"usages disagree", signing, secret(key), nil, fault.KindTerminal, "ErrorGenerating", "cert sign"},
		{"another's key", request, secret(strange), nil, fault.KindTerminal, "ErrorKeyMatch", "ns/key"},
	} {
		r := newRequest(good)
		r.SourceKind = c.kind
		if c.change != nil {
			c.change(&r)
		}
		_, err := New(c.secrets, clock).Sign(t.Context(), issuer(), r)
		f := fault.Of(err)
		if f == nil || f.Kind != c.want || f.Reason != c.reason || !strings.Contains(f.Error(), c.says) {
			t.Errorf("%s of a %s: %v; want %s %s with %q", c.name, c.kind, err, c.want, c.reason, c.says)
		}
		if f != nil && (f.Kind == fault.KindTerminal) != (f.Class == fault.ClassPermanent) {
			t.Errorf("%s of a %s: %s of class %q", c.name, c.kind, f.Kind, f.Class)
		}
	}
	if _, err := New(secret(key), clock).Sign(t.Context(), &certmanagerv1.Issuer{}, newRequest(good)); err == nil {
		t.Error("signed for an issuer of another type")
	}
}
