// Package conformance tests every type of issuer by the same table: both kinds of request, an Issuer and a
// ClusterIssuer, every kind of key, leaf certificates and CA certificates.
//
// The package runs real controllers on a real API server, so it tests the whole way from a request to its certificate.
// The tests of a type of issuer bring the CA side (a server, or a key in a Secret), and tell which rows of the table
// apply. Nothing in this package knows a type of issuer. Only tests import it.
package conformance

import (
	"crypto/x509"
	"go/version"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// Subject is a type of issuer under test, and what of the table applies to it. The World's controllers have to run.
type Subject struct {
	// Spec of the issuers to make. The Secrets that it names have to be in the World's
	// namespace, where both kinds of issuer look.
	Spec certmanagerv1.IssuerSpec
	// Annotations of the issuers.
	Annotations map[string]string
	// Keys are the algorithms that the type certifies; none means all.
	Keys []string
	// NoCA says that the type issues no CA certificates.
	NoCA bool
	// OwnKey says that the type signs with the requester's key, from a Secret.
	OwnKey bool
	// NeedsCommonName says that a request must have a subject.
	NeedsCommonName bool
	// Decides says that the other side decides on usages, subject and validity, whatever is asked.
	Decides bool
	// Roots are what the certificates have to lead to; nil means the CA that each request is given.
	Roots *x509.CertPool
	// Domain is below which names are asked for; empty means example.com.
	Domain string
}

// Duration is the validity that is asked for.
const Duration = 2 * time.Hour

// one is a line of the table.
type one struct {
	name string
	// csr says that the request is a CertificateSigningRequest.
	csr bool
	// cluster says that the issuer is a ClusterIssuer.
	cluster bool
	// form is a prefix of a signer name, for a CertificateSigningRequest.
	form string
	// algorithm of the key.
	algorithm string
	isCA      bool
	// bare says that the subject is empty.
	bare bool
}

// Run makes an Issuer and a ClusterIssuer of the type and goes through the table.
// prefix tells the objects of several Subjects in one World apart.
func Run(t *testing.T, w *rig.World, prefix string, s Subject) {
	t.Helper()
	namespaced := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: prefix, Annotations: s.Annotations}, Spec: s.Spec}
	clustered := &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName(prefix), Annotations: s.Annotations}, Spec: s.Spec}
	w.Create(t, namespaced, clustered)
	for _, issuer := range []certmanagerv1.GenericIssuer{namespaced, clustered} {
		awaitReady(t, w, issuer)
	}
	for _, line := range table(s) {
		t.Run(line.name, func(t *testing.T) {
			t.Parallel()
			if line.csr && line.algorithm == pki.MLDSA65 && !takesMLDSA(t, w) {
				t.Skip("the API server verifies a CertificateSigningRequest, and was built with a Go that knows no ML-DSA")
			}
			a := newAsked(t, w, prefix, s, line)
			a.create(t)
			got := a.await(t)
			a.verify(t, got)
		})
	}
}

// takesMLDSA reports whether the API server was built with Go 1.27 or newer.
func takesMLDSA(t *testing.T, w *rig.World) bool {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(w.Admin)
	if err != nil {
		t.Fatal(err)
	}
	built, err := c.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !version.IsValid(built.GoVersion) {
		t.Fatalf("the API server says that it was built with %q", built.GoVersion)
	}
	return version.Compare(built.GoVersion, "go1.27") >= 0
}

// table is every line that applies.
func table(s Subject) []one {
	keys := s.Keys
	if len(keys) == 0 {
		keys = []string{pki.RSA, pki.ECDSA, pki.Ed25519, pki.MLDSA65}
	}
	var lines []one
	add := func(l one, words ...string) {
		l.name = strings.Join(words, " ")
		lines = append(lines, l)
	}
	for _, algorithm := range keys {
		for _, isCA := range []bool{false, true} {
			if isCA && s.NoCA {
				continue
			}
			what := map[bool]string{false: "leaf", true: "CA"}[isCA]
			l := one{algorithm: algorithm, isCA: isCA, bare: algorithm == pki.ECDSA && !isCA && !s.NeedsCommonName}
			add(l, "CertificateRequest", "Issuer", algorithm, what)
			l.cluster = true
			add(l, "CertificateRequest", "ClusterIssuer", algorithm, what)
			l.csr, l.form = true, "cert-manager.io/"
			add(l, "CSR", "ClusterIssuer", algorithm, what)
			l.cluster, l.form = false, "issuers.cert-manager.io/"
			add(l, "CSR", "Issuer", algorithm, what)
		}
	}
	add(one{algorithm: pki.ECDSA, csr: true, cluster: true, form: "clusterissuers.cert-manager.io/"}, "CSR", "clusterissuers form")
	return lines
}

func awaitReady(t *testing.T, w *rig.World, issuer certmanagerv1.GenericIssuer) {
	t.Helper()
	object, ok := issuer.(client.Object)
	if !ok {
		t.Fatalf("%T is no API object", issuer)
	}
	rig.Eventually(t, "the issuer "+issuer.GetName()+" is ready", readyCheck(w, issuer, object))
}

// usages that are asked for: without key encipherment, which is for RSA only.
func usages(isCA bool) []certmanagerv1.KeyUsage {
	out := []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageServerAuth}
	if isCA {
		out = append(out, certmanagerv1.UsageCertSign)
	}
	return out
}

// reference to the issuer of a line.
func (l one) reference(w *rig.World, prefix string) cmmeta.IssuerReference {
	if l.cluster {
		return cmmeta.IssuerReference{Name: w.ClusterName(prefix), Kind: cmmeta.ClusterIssuerKind}
	}
	return cmmeta.IssuerReference{Name: prefix}
}

// signerName is the issuer of a line as a CertificateSigningRequest calls it.
func (l one) signerName(w *rig.World, prefix string) string {
	if l.cluster {
		return l.form + w.ClusterName(prefix)
	}
	return l.form + w.Namespace + "." + prefix
}

// objectName is unique in the cluster.
func (l one) objectName(prefix string) string {
	words := strings.ToLower(strings.ReplaceAll(l.name, " ", "-"))
	return strings.Join(slices.DeleteFunc([]string{prefix, words}, func(s string) bool { return s == "" }), "-")
}
