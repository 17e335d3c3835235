package takeover

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/renewal"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/slow"
)

// fixtureSize is how many Certificates the fixture has: one of each shape, or many. CHANCERY_TAKEOVER_CERTIFICATES says
// another number, such as the 3,000 of docs/takeover.md: go test -timeout 20m -run TestTakeover.
func fixtureSize(t *testing.T) int {
	t.Helper()
	text := os.Getenv("CHANCERY_TAKEOVER_CERTIFICATES")
	switch {
	case text == "" && slow.Runs(slow.Takeover):
		return 300
	case text == "":
		return len(keyShapes()) * len(specShapes())
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// keyShapes are the private keys that the fixture has, and specShapes what its Certificates ask for otherwise: forty
// shapes in all.
func keyShapes() []certmanagerv1.CertificatePrivateKey {
	return []certmanagerv1.CertificatePrivateKey{
		{},
		{Algorithm: certmanagerv1.RSAKeyAlgorithm, Encoding: certmanagerv1.PKCS8, Size: 3072, RotationPolicy: certmanagerv1.RotationPolicyNever},
		{Algorithm: certmanagerv1.ECDSAKeyAlgorithm, Size: 384, RotationPolicy: certmanagerv1.RotationPolicyAlways},
		{Algorithm: certmanagerv1.Ed25519KeyAlgorithm, Encoding: certmanagerv1.PKCS8},
	}
}

func specShapes() []func(*certmanagerv1.CertificateSpec) {
	return []func(*certmanagerv1.CertificateSpec){
		func(*certmanagerv1.CertificateSpec) {},
		func(s *certmanagerv1.CertificateSpec) { s.CommonName = s.DNSNames[0] },
		func(s *certmanagerv1.CertificateSpec) {
			s.DNSNames, s.IPAddresses = nil, []string{"10.0.0.7", "fd00::7"}
		},
		func(s *certmanagerv1.CertificateSpec) {
			s.URIs, s.Usages = []string{"spiffe://example.com/shop"}, []certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth, certmanagerv1.UsageDigitalSignature}
		},
		func(s *certmanagerv1.CertificateSpec) {
			s.Subject, s.EmailAddresses = &certmanagerv1.X509Subject{Organizations: []string{"Example"}, Countries: []string{"DE"}}, []string{"a@example.com"}
		},
		func(s *certmanagerv1.CertificateSpec) { s.LiteralSubject = "CN=literal,O=Example,DC=example,DC=com" },
		func(s *certmanagerv1.CertificateSpec) { s.IsCA, s.CommonName = true, "sub" },
		func(s *certmanagerv1.CertificateSpec) {
			s.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"team": "shop"}, Annotations: map[string]string{"note": "1"}}
			s.AdditionalOutputFormats = []certmanagerv1.CertificateAdditionalOutputFormat{{Type: certmanagerv1.OutputFormatDER}, {Type: certmanagerv1.OutputFormatCombinedPEM}}
		},
		func(s *certmanagerv1.CertificateSpec) {
			password := cmmeta.SecretKeySelector{Name: "password", Key: "password"}
			s.Keystores = &certmanagerv1.CertificateKeystores{PKCS12: &certmanagerv1.PKCS12Keystore{Create: true, PasswordSecretRef: password}}
		},
		func(s *certmanagerv1.CertificateSpec) {
			s.Duration, s.RenewBefore = &metav1.Duration{Duration: 30 * 24 * time.Hour}, &metav1.Duration{Duration: 5 * 24 * time.Hour}
		},
	}
}

// fixture is what cert-manager has issued.
type fixture struct {
	*original

	ca    *x509.Certificate
	caPEM []byte
	caKey crypto.Signer
	keys  []crypto.Signer
	now   time.Time
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// fill makes a ClusterIssuer with a CA, and n Certificates as cert-manager leaves them: ready, with Secret and request.
func (o *original) fill(n int) *fixture {
	t := o.t
	t.Helper()
	f := &fixture{original: o, now: time.Now().Truncate(time.Second)}
	f.caKey = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: f.now.Add(-time.Hour), NotAfter: f.now.Add(10 * 365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, root, root, f.caKey.Public(), f.caKey))(t)
	f.ca = must(x509.ParseCertificate(der))(t)
	f.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	_, ed := must2(ed25519.GenerateKey(rand.Reader))(t)
	f.keys = []crypto.Signer{
		must(rsa.GenerateKey(rand.Reader, 2048))(t), must(rsa.GenerateKey(rand.Reader, 3072))(t), must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t), ed,
	}
	o.create(&corev1.Secret{
		// cert-manager's default for the Secrets of ClusterIssuers, which the stand-in does not change.
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "root"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": f.caPEM, "tls.key": must(pki.EncodePrivateKey(f.caKey, ""))(t)},
	})
	o.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "password"}, Data: map[string][]byte{"password": []byte("changeit")}})
	issuer := &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}},
	}
	o.create(issuer)
	issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{
		Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue, Reason: "KeyPairVerified", Message: "Signing CA verified", ObservedGeneration: 1,
		LastTransitionTime: &metav1.Time{Time: f.now},
	}}
	o.status(issuer)
	for i := range n {
		f.issue(i)
	}
	return f
}

func must2[A, B any](a A, b B, err error) func(*testing.T) (A, B) {
	return func(t *testing.T) (A, B) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
}

func (o *original) status(object client.Object) {
	o.t.Helper()
	if err := o.client.Status().Update(o.t.Context(), object); err != nil {
		o.t.Fatalf("status of %s: %v", nameOf(object), err)
	}
}

// issue makes the i-th Certificate of the fixture, and what cert-manager makes for it (spec §2.3 to §2.5).
func (f *fixture) issue(i int) {
	t := f.t
	t.Helper()
	shapes := specShapes()
	kind := i / len(shapes) % len(f.keys)
	name := fmt.Sprintf("crt-%d", i)
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: certmanagerv1.CertificateSpec{
		SecretName: name, DNSNames: []string{name + ".example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "ca", Kind: "ClusterIssuer"},
	}}
	shapes[i%len(shapes)](&crt.Spec)
	if shape := keyShapes()[kind]; kind > 0 {
		crt.Spec.PrivateKey = &shape
	}
	f.create(crt)
	key := f.keys[kind]
	request := must(certificate.NewRequest(crt, certificate.Action{Name: name + "-1", Revision: 1, Key: name + "-abcde"}, key, certificate.DefaultAnnotationFilter()))(t)
	f.create(request)
	notBefore := f.now.Add(-24 * time.Hour).Add(time.Duration(i) * time.Minute)
	chain := f.sign(request, notBefore)
	request.Status.Certificate, request.Status.CA = chain, f.caPEM
	request.Status.Conditions = []certmanagerv1.CertificateRequestCondition{
		{Type: certmanagerv1.CertificateRequestConditionApproved, Status: cmmeta.ConditionTrue, Reason: "cert-manager.io", LastTransitionTime: &metav1.Time{Time: f.now}},
		{Type: certmanagerv1.CertificateRequestConditionReady, Status: cmmeta.ConditionTrue, Reason: "Issued", Message: "Certificate fetched from issuer successfully", LastTransitionTime: &metav1.Time{Time: f.now}},
	}
	f.status(request)
	secret := must(facts.Target{
		Certificate: crt, Issuer: request.Spec.IssuerRef, Chain: chain, CA: f.caPEM, Key: must(facts.EncodeKey(crt, key))(t), Passwords: facts.Passwords{PKCS12: "changeit"},
	}.Secret())(t)
	delete(secret.Annotations, facts.KeystoresAnnotation) // an addition
	//nolint:staticcheck // as the controller does
	if err := f.client.Patch(t.Context(), secret, client.Apply, client.ForceOwnership, client.FieldOwner(facts.FieldManager)); err != nil {
		t.Fatal(err)
	}
	leaf := must(facts.DecodeLeaf(chain))(t)
	revision := 1
	crt.Status = certmanagerv1.CertificateStatus{
		NotBefore: &metav1.Time{Time: leaf.NotBefore}, NotAfter: &metav1.Time{Time: leaf.NotAfter}, Revision: &revision,
		RenewalTime: &metav1.Time{Time: renewal.Of(crt, leaf.NotBefore, leaf.NotAfter, time.Time{}).Plain},
		Conditions: []certmanagerv1.CertificateCondition{{
			Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue, Reason: "Ready", ObservedGeneration: 1,
			Message: "Certificate is up to date and has not expired", LastTransitionTime: &metav1.Time{Time: f.now},
		}},
	}
	f.status(crt)
}

// sign signs a request with the CA of the fixture.
func (f *fixture) sign(r *certmanagerv1.CertificateRequest, notBefore time.Time) []byte {
	t := f.t
	t.Helper()
	csr := must(pki.DecodeCSR(r.Spec.Request))(t)
	usages := must(pki.ParseUsages(r.Spec.Usages, r.Spec.IsCA, nil))(t)
	i := pki.Issuance{NotBefore: notBefore, Duration: certmanagerv1.DefaultCertificateDuration, IsCA: r.Spec.IsCA, Usages: usages}
	if r.Spec.Duration != nil {
		i.Duration = r.Spec.Duration.Duration
	}
	leaf := must(pki.Sign(must(pki.NewTemplate(csr, i))(t), f.ca, f.caKey))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})
}

// replaceCA has the ClusterIssuer sign with another CA.
func (f *fixture) replaceCA() {
	t := f.t
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "other"}, NotBefore: f.now.Add(-time.Hour), NotAfter: f.now.Add(10 * 365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, root, root, key.Public(), key))(t)
	secret := &corev1.Secret{}
	if err := f.client.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "root"}, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data = map[string][]byte{"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "tls.key": must(pki.EncodePrivateKey(key, ""))(t)}
	if err := f.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func managedBy(manager string) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{Manager: manager}}
}
