package venafi

import (
	"context"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/tppserver"
	"chancery.dev/internal/signer"
)

// public is an authority that the system trusts: SaaS issuers name no bundle.
var public = sync.OnceValues(func() (*tppserver.Authority, error) { return tppserver.NewAuthority("public root", nil) })

// TestMain has the system trust the public authority, and it alone.
func TestMain(m *testing.M) {
	root, err := public()
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "venafi-test-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "roots.pem"), pki.EncodeCertificates(root.Certificate), 0o600)
	}
	if err == nil {
		err = errors.Join(os.Setenv("SSL_CERT_FILE", filepath.Join(dir, "roots.pem")), os.Setenv("SSL_CERT_DIR", dir))
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// secrets is a credential.Reader.
type secrets struct {
	mu   sync.Mutex
	data map[string]map[string][]byte
	err  error
}

func (s *secrets) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	data, ok := s.data[namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}, nil
}

func (s *secrets) put(name string, entries ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := map[string][]byte{}
	for i := 0; i < len(entries); i += 2 {
		data[entries[i]] = []byte(entries[i+1])
	}
	s.data[name] = data
}

// world is a Signer with its surroundings.
type world struct {
	*testing.T

	signer  *Signer
	secrets *secrets

	mu  sync.Mutex
	now time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, secrets: &secrets{data: map[string]map[string][]byte{}}, now: time.Now()}
	w.signer = New(Config{
		Secrets: w.secrets, UserAgent: "chancery-test", ClusterResourceNamespace: "cluster",
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
	})
	return w
}

func (w *world) step(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func issuer(name string, spec certmanagerv1.VenafiIssuer) *certmanagerv1.Issuer {
	return &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Generation: 1},
		Spec:       certmanagerv1.IssuerSpec{Venafi: &spec},
	}
}

// probe looks at an issuer.
func (w *world) probe(i *certmanagerv1.Issuer) (signer.Facts, *fault.Fault) {
	w.Helper()
	facts, err := w.signer.Probe(w.Context(), i)
	f := fault.Of(err)
	if (facts.Reason != "") == (f != nil) || err != nil && f == nil {
		w.Fatalf("%+v, %v: want facts or a fault", facts, err)
	}
	return facts, f
}

// inOrder fails the test unless an issuer can be used.
func (w *world) inOrder(i *certmanagerv1.Issuer) signer.Facts {
	w.Helper()
	const words = "Certificate Manager issuer started"
	facts, f := w.probe(i)
	if f != nil || !facts.Ready || facts.Reason != words || facts.Message != words {
		w.Fatalf("%+v, %v", facts, f)
	}
	return facts
}

// request makes a request of a kind for a new key.
func (w *world) request(kind string, key crypto.Signer, template pki.CSRTemplate) signer.Request {
	w.Helper()
	csr, err := pki.CreateCSR(template, key)
	if err != nil {
		w.Fatal(err)
	}
	source := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{
		Name: "web", UID: types.UID(fmt.Sprintf("%s-%d", kind, time.Now().UnixNano())), CreationTimestamp: metav1.NewTime(w.signer.Now()),
		Annotations: map[string]string{},
	}}
	if kind == certmanagerv1.CertificateRequestKind {
		source.Namespace = "ns"
	}
	return signer.Request{
		Source: source, SourceKind: kind, CSR: csr, Duration: 36 * time.Hour, Usages: certmanagerv1.DefaultKeyUsages(),
		IssuerName: "venafi", IssuerKind: cmmeta.DefaultIssuerKind, IssuerGroup: certmanagerv1.GroupName,
	}
}

const (
	requestKind = certmanagerv1.CertificateRequestKind
	signingKind = "CertificateSigningRequest"
)

func webTemplate() pki.CSRTemplate {
	return pki.CSRTemplate{Subject: pkix.Name{CommonName: "web.example.com"}, AltNames: pki.AltNames{DNSNames: []string{"web.example.com", "www.example.com"}}}
}

func newKey(t testing.TB, spec pki.KeySpec) crypto.Signer {
	t.Helper()
	key, err := pki.GenerateKey(spec)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// web is a request that every zone of the tests allows.
func (w *world) web(kind string) signer.Request {
	w.Helper()
	return w.request(kind, newKey(w.T, pki.KeySpec{Algorithm: "ECDSA"}), webTemplate())
}

// look calls Sign once, and again when that has brought something to persist, which is persisted.
func (w *world) look(i certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	w.Helper()
	result, err := w.signer.Sign(w.Context(), i, r)
	if len(result.Annotations) == 0 {
		return result, err
	}
	if f := fault.Of(err); f == nil || f.Kind != fault.KindPending {
		w.Fatalf("%v: want it to wait until %v is stored", err, result.Annotations)
	}
	maps.Copy(r.Source.GetAnnotations(), result.Annotations)
	return w.signer.Sign(w.Context(), i, r)
}

// finish steps the clock through every wait, and returns what was said meanwhile.
func (w *world) finish(i certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, []string, error) {
	w.Helper()
	var said []string
	for range 50 {
		result, err := w.look(i, r)
		f := fault.Of(err)
		if f == nil || f.Kind != fault.KindAfter {
			return result, said, err
		}
		said = append(said, f.Error())
		w.step(f.Delay)
	}
	w.Fatalf("no end: %q", said)
	return signer.Result{}, nil, nil
}

// verify checks that a bundle is what a verifier needs who trusts root alone.
func verify(t *testing.T, b signer.Bundle, root *x509.Certificate, r signer.Request) {
	t.Helper()
	chain, err := pki.DecodeChain(b.Chain)
	if err != nil {
		t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(root)
	for _, c := range chain[1:] {
		between.AddCert(c)
		if pki.IsSelfSigned(c) {
			t.Errorf("the chain holds the self-signed %q", c.Subject)
		}
	}
	csr, err := pki.DecodeCSR(r.CSR)
	if err != nil {
		t.Fatal(err)
	}
	if !pki.PublicKeysEqual(chain[0].PublicKey, csr.PublicKey) {
		t.Error("the leaf is for another key")
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: "www.example.com"}); err != nil {
		t.Error(err)
	}
	if block, _ := pem.Decode(b.CA); block == nil || string(block.Bytes) != string(root.Raw) {
		t.Error("CA is not the root")
	}
}

func calls(seen []tppserver.Exchange) []string {
	var out []string
	for _, e := range seen {
		out = append(out, e.Call)
	}
	return out
}

func find(t *testing.T, seen []tppserver.Exchange, call string) tppserver.Exchange {
	t.Helper()
	i := slices.IndexFunc(seen, func(e tppserver.Exchange) bool { return e.Call == call })
	if i < 0 {
		t.Fatalf("%s was not called: %v", call, calls(seen))
	}
	return seen[i]
}
