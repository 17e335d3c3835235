package acmeorder_test

import (
	"context"
	"crypto"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/signer/acmeorder"
)

// bench is an Adapter on an API that keeps objects.
type bench struct {
	api      client.Client
	signer   *acmeorder.Adapter
	accounts *accounts.Registry
	now      time.Time
	key      crypto.Signer
	// issuers are all that there are; said are the events about them.
	issuers []*certmanagerv1.Issuer
	said    []string
	// patch, if set, is called in place of each write of an account's key.
	patch func(write func() error) error
}

func (b *bench) all(context.Context) ([]certmanagerv1.GenericIssuer, error) {
	var out []certmanagerv1.GenericIssuer
	for _, i := range b.issuers {
		out = append(out, i)
	}
	return out, nil
}

// secrets reads Secrets from the API.
type secrets struct{ client.Client }

func (s secrets) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
}

// direct is a client without a cache.
type direct struct{ client.Client }

func (d direct) Get(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	return d.Client.Get(ctx, key, obj)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	now := func() time.Time { return b.now }
	b.accounts = accounts.New(accounts.Options{Now: now})
	b.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&acmev1.Order{}).Build()
	b.signer = acmeorder.New(acmeorder.Config{
		Objects: direct{b.api}, Issuers: b.all, Secrets: secrets{b.api}, Accounts: b.accounts,
		Now:                      now,
		ClusterResourceNamespace: "cluster",
		Annotations: func(all map[string]string) map[string]string {
			return map[string]string{"kept": all["kept"]}
		},
	})
	if b.key, err = pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) csr(t *testing.T, cn string, names ...string) []byte {
	t.Helper()
	csr, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: cn}, AltNames: pki.AltNames{DNSNames: names}}, b.key)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func issuer() *certmanagerv1.Issuer {
	return &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "i"},
		Spec:       certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{Profile: "short"}},
	}
}

// request is a CertificateRequest for which the spec's test vector holds.
func request(csr []byte) (*certmanagerv1.CertificateRequest, signer.Request) {
	cr := &certmanagerv1.CertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web-1", UID: "uid-1",
			Labels: map[string]string{"team": "web"}, Annotations: map[string]string{"acme.cert-manager.io/http01-override-ingress-name": "x"},
		},
		Spec: certmanagerv1.CertificateRequestSpec{IssuerRef: cmmeta.IssuerReference{Name: "i"}, Request: csr, Duration: &metav1.Duration{Duration: time.Hour}},
	}
	return cr, signer.Request{
		Source: cr, SourceKind: certmanagerv1.CertificateRequestKind, ResourceNamespace: "ns", CSR: csr, Duration: time.Hour,
		IssuerName: "i", IssuerKind: "Issuer", IssuerGroup: "cert-manager.io",
	}
}

// order is the Order for a request.
func (b *bench) order(t *testing.T, issuer certmanagerv1.GenericIssuer, r signer.Request) *acmev1.Order {
	t.Helper()
	o, err := b.signer.Order(issuer, r)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func wantFault(t *testing.T, err error, kind fault.Kind, reason, text string) {
	t.Helper()
	f := fault.Of(err)
	if f == nil || f.Kind != kind || f.Reason != reason || !strings.Contains(err.Error(), text) {
		t.Errorf("got %+v (%v), want %s %s with %q", f, err, kind, reason, text)
	}
}

// TestOrderOfCertificateRequest pins what an Order takes from its request (spec §3.4), and that it is the same again.
func TestOrderOfCertificateRequest(t *testing.T) {
	b := newBench(t)
	is := issuer()
	is.Spec.ACME.Profile = ""
	cr, r := request(b.csr(t, "", "a.example.com"))
	o := b.order(t, is, r)
	if o.Name != "web-1-376322184" || o.Namespace != "ns" || !metav1.IsControlledBy(o, cr) {
		t.Errorf("%s/%s, owners %+v", o.Namespace, o.Name, o.OwnerReferences)
	}
	if o.Labels["team"] != "web" || o.Annotations["acme.cert-manager.io/http01-override-ingress-name"] != "x" || o.Spec.Duration != nil {
		t.Errorf("labels %v, annotations %v, duration %v", o.Labels, o.Annotations, o.Spec.Duration)
	}
	if again := b.order(t, is, r); !equality.Semantic.DeepEqual(o, again) {
		t.Errorf("%+v, then %+v", o, again)
	}
}

// TestProfileOfOneCertificate: the annotation rules, also where it says nothing.
func TestProfileOfOneCertificate(t *testing.T) {
	for annotation, want := range map[string]string{"tlsserver": "tlsserver", "": ""} {
		b := newBench(t)
		cr, r := request(b.csr(t, "", "a.example.com"))
		cr.Annotations[acmev1.ProfileAnnotation] = annotation
		if got := b.order(t, issuer(), r).Spec.Profile; got != want {
			t.Errorf("annotation %q: profile %q", annotation, got)
		}
	}
}

func TestOrderFollowsIssuer(t *testing.T) {
	b := newBench(t)
	is := issuer()
	is.Spec.ACME.EnableDurationFeature = true
	_, r := request(b.csr(t, "a.example.com", "a.example.com"))
	o := b.order(t, is, r)
	if o.Spec.Profile != "short" || o.Spec.Duration == nil || o.Spec.Duration.Duration != time.Hour || o.Spec.CommonName != "a.example.com" {
		t.Errorf("spec %+v", o.Spec)
	}
}

// TestOrderOfSigningRequest: spec §4.5.
func TestOrderOfSigningRequest(t *testing.T) {
	b := newBench(t)
	name := strings.Repeat("long-", 12) + "name"
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: "uid-2", Annotations: map[string]string{"kept": "yes", "dropped": "yes"},
	}}
	r := signer.Request{
		Source: csr, SourceKind: "CertificateSigningRequest", ResourceNamespace: "cluster", CSR: b.csr(t, "", "a.example.com"),
		Duration: time.Hour, IssuerName: "i", IssuerKind: "ClusterIssuer", IssuerGroup: "cert-manager.io",
	}
	o := b.order(t, issuer(), r)
	if o.Namespace != "cluster" || !metav1.IsControlledBy(o, csr) || o.OwnerReferences[0].APIVersion != "certificates.k8s.io/v1" {
		t.Errorf("in %s, owners %+v", o.Namespace, o.OwnerReferences)
	}
	if !strings.HasPrefix(o.Name, name[:51]) || len(o.Name) > 63 {
		t.Errorf("name %s", o.Name)
	}
	want := cmmeta.IssuerReference{Name: "i", Kind: "ClusterIssuer", Group: "cert-manager.io"}
	if o.Spec.IssuerRef != want || o.Spec.Profile != "short" || o.Annotations["kept"] != "yes" || o.Annotations["dropped"] != "" {
		t.Errorf("spec %+v, annotations %v", o.Spec, o.Annotations)
	}
}

// TestProfileOfSigningRequest: an Order for a CertificateSigningRequest has the issuer's profile, and the name that it
// had when it had none: one that is open at the upgrade is not made a second time.
func TestProfileOfSigningRequest(t *testing.T) {
	b := newBench(t)
	for name, before := range map[string]string{"agent": "agent-2246524512", strings.Repeat("long-", 12): "long-long-long-long-long-long-long-long-long-long-lo-3275941849"} {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-2", Annotations: map[string]string{}}}
		r := signer.Request{
			Source: csr, SourceKind: "CertificateSigningRequest", ResourceNamespace: "cluster", CSR: b.csr(t, "", "a.example.com"),
			Duration: time.Hour, IssuerName: "i", IssuerKind: "ClusterIssuer", IssuerGroup: "cert-manager.io",
		}
		if o := b.order(t, issuer(), r); o.Name != before || o.Spec.Profile != "short" {
			t.Errorf("Order %s with profile %q, was %s", o.Name, o.Spec.Profile, before)
		}
		csr.Annotations[acmev1.ProfileAnnotation] = "tlsserver"
		if o := b.order(t, issuer(), r); o.Name == before || o.Spec.Profile != "tlsserver" {
			t.Errorf("with an annotation: Order %s with profile %q", o.Name, o.Spec.Profile)
		}
	}
}

func TestRequestsThatNoOrderCanServe(t *testing.T) {
	b := newBench(t)
	_, garbage := request([]byte("no PEM"))
	_, err := b.signer.Order(issuer(), garbage)
	wantFault(t, err, fault.KindTerminal, "RequestParsingError", "Failed to decode CSR")
	_, capitals := request(b.csr(t, "A.example.com", "a.example.com"))
	if _, err = b.signer.Order(issuer(), capitals); err != nil { // RFC 4343: it is the same name
		t.Error(err)
	}
	_, stray := request(b.csr(t, "b.example.com", "a.example.com"))
	_, err = b.signer.Order(issuer(), stray)
	wantFault(t, err, fault.KindTerminal, "InvalidOrder", `"b.example.com" does not exist in ["a.example.com"]`)
}
