package requests_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/tppserver"
)

// venafiWorld is a world with a stand-in of Certificate Manager.
type venafiWorld struct {
	*rig.World

	t   *testing.T
	tpp *tppserver.Server
	// stop ends the controllers.
	stop func()
}

// newVenafiWorld adds an Issuer and a ClusterIssuer, both by the Secret "venafi".
func newVenafiWorld(t *testing.T) *venafiWorld {
	t.Helper()
	w := &venafiWorld{World: rig.NewWorld(t), t: t, tpp: tppserver.Start(t)}
	w.stop = w.Run(t, w.Config())
	spec := w.tpp.Spec("venafi")
	w.Create(t,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "venafi"}, StringData: map[string]string{"access-token": tppserver.Token}},
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{
			Name: "venafi", Annotations: map[string]string{certmanagerv1.VenafiCustomFieldsAnnotation: `[{"name":"Cost center","value":"42"}]`},
		}, Spec: certmanagerv1.IssuerSpec{Venafi: &spec}},
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("venafi")}, Spec: certmanagerv1.IssuerSpec{Venafi: &spec}})
	w.issuersAre(cmmeta.ConditionTrue, "Certificate Manager issuer started")
	return w
}

func (w *venafiWorld) issuersAre(status cmmeta.ConditionStatus, reason string) {
	w.t.Helper()
	rig.Eventually(w.t, "the issuers are "+reason, func(ctx context.Context) string {
		for name, issuer := range map[string]certmanagerv1.GenericIssuer{"venafi": &certmanagerv1.Issuer{}, w.ClusterName("venafi"): &certmanagerv1.ClusterIssuer{}} {
			var err error
			switch issuer := issuer.(type) {
			case *certmanagerv1.Issuer:
				err = w.Get(ctx, name, issuer)
			case *certmanagerv1.ClusterIssuer:
				err = w.Get(ctx, name, issuer)
			}
			ready := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
			if err != nil || ready == nil || ready.Status != status || ready.Reason != reason {
				return fmt.Sprintf("%s: %v, %+v", name, err, ready)
			}
		}
		return ""
	})
}

func (w *venafiWorld) csr(name string) []byte {
	w.t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		w.t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: name}, AltNames: pki.AltNames{DNSNames: []string{name}}}, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return csr
}

// ask makes a request of both kinds for one name, with annotations.
func (w *venafiWorld) ask(name string, annotations map[string]string) {
	w.t.Helper()
	w.Create(w.t,
		&certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: certmanagerv1.CertificateRequestSpec{
			Request: w.csr(name + ".cr.example.com"), IssuerRef: cmmeta.IssuerReference{Name: "venafi"},
		}},
		&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName(name), Annotations: annotations}, Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: w.csr(name + ".csr.example.com"), SignerName: "cert-manager.io/" + w.ClusterName("venafi"),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		}})
}

// seen returns both requests and the reason and message of the first one's condition Ready.
func (w *venafiWorld) seen(ctx context.Context, name string) (*certmanagerv1.CertificateRequest, *certificatesv1.CertificateSigningRequest, string) {
	cr, csr := &certmanagerv1.CertificateRequest{}, &certificatesv1.CertificateSigningRequest{}
	if err := w.Get(ctx, name, cr); err != nil {
		return cr, csr, err.Error()
	}
	if err := w.Get(ctx, w.ClusterName(name), csr); err != nil {
		return cr, csr, err.Error()
	}
	if c := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionReady); c != nil {
		return cr, csr, c.Reason + ": " + c.Message
	}
	return cr, csr, ""
}

// issued waits until both requests hold certificates that lead to the server's root.
func (w *venafiWorld) issued(name string) {
	w.t.Helper()
	rig.Eventually(w.t, name+" is issued", func(ctx context.Context) string {
		cr, csr, said := w.seen(ctx, name)
		if len(cr.Status.Certificate) == 0 || len(csr.Status.Certificate) == 0 {
			return fmt.Sprintf("%q; %+v", said, csr.Status.Conditions)
		}
		w.verify(cr.Status.Certificate, name+".cr.example.com")
		w.verify(csr.Status.Certificate, name+".csr.example.com")
		if block, _ := pem.Decode(cr.Status.CA); block == nil || string(block.Bytes) != string(w.tpp.Root.Certificate.Raw) {
			w.t.Error("status.ca is not the root")
		}
		return ""
	})
}

func (w *venafiWorld) verify(chainPEM []byte, name string) {
	w.t.Helper()
	chain, err := pki.DecodeChain(chainPEM)
	if err != nil {
		w.t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(w.tpp.Root.Certificate)
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: name}); err != nil || len(chain) != 2 {
		w.t.Errorf("%s: a chain of %d: %v", name, len(chain), err)
	}
}

// Both kinds of request by Certificate Manager, against the API server: handed in once
// although the controller is restarted, the pickup id kept on the request, waited for
// with the server's own words, issued.
func TestVenafi(t *testing.T) {
	t.Parallel()
	w := newVenafiWorld(t)
	w.tpp.Change(func(s *tppserver.State) { s.Pending = 1 << 20 })
	w.ask("web", map[string]string{certmanagerv1.VenafiCustomFieldsAnnotation: `[{"name":"Team","value":"web"}]`})
	rig.Eventually(t, "the requests wait with what the server says", func(ctx context.Context) string {
		cr, csr, said := w.seen(ctx, "web")
		switch {
		case cr.Annotations[certmanagerv1.VenafiPickupIDAnnotation] != tppserver.ZoneDN+`\web.cr.example.com`,
			csr.Annotations[certmanagerv1.CSRVenafiPickupIDAnnotation] != tppserver.ZoneDN+`\web.csr.example.com`:
			return fmt.Sprintf("annotations %v, %v", cr.Annotations, csr.Annotations)
		case !strings.HasPrefix(said, "Pending: ") || !strings.Contains(said, "Waiting for approval"):
			return said
		}
		return ""
	})
	w.stop()
	w.Run(t, w.Config())
	w.tpp.Change(func(s *tppserver.State) { s.Pending = 0 })
	w.issued("web")
	requests := map[string]int{}
	for _, e := range w.tpp.Take() {
		if e.Call == "POST /vedsdk/certificates/request" {
			requests[e.Text("ObjectName")+" "+fmt.Sprint(e.Body["CustomFields"])]++
		}
	}
	if len(requests) != 2 {
		t.Errorf("requests %v, want one of each", requests)
	}
	for what, n := range requests {
		fromIssuer := strings.HasPrefix(what, "web.cr.")
		if n != 1 || !strings.Contains(what, "map[Name:Team Values:[web]]") || strings.Contains(what, "Cost center") != fromIssuer {
			t.Errorf("handed in %d times: %s", n, what)
		}
	}
}

// What cannot be read fails a request for good; a token that has ended does not: the
// issuers say so, and the Secret's next version mends it all.
func TestVenafiTrouble(t *testing.T) {
	t.Parallel()
	w := newVenafiWorld(t)
	w.ask("bad", map[string]string{certmanagerv1.VenafiCustomFieldsAnnotation: "team: web"})
	rig.Eventually(t, "custom fields that are no JSON fail both", func(ctx context.Context) string {
		_, csr, said := w.seen(ctx, "bad")
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateFailed && c.Reason == "ErrorCustomFields" && strings.HasPrefix(said, "Failed: annotation "+certmanagerv1.VenafiCustomFieldsAnnotation) {
				return ""
			}
		}
		return fmt.Sprintf("%q; %+v", said, csr.Status.Conditions)
	})
	w.tpp.Change(func(s *tppserver.State) { s.Pending = 1 << 20 })
	w.ask("web", nil)
	rig.Eventually(t, "the requests are handed in", func(ctx context.Context) string {
		cr, csr, said := w.seen(ctx, "web")
		if cr.Annotations[certmanagerv1.VenafiPickupIDAnnotation] == "" || csr.Annotations[certmanagerv1.CSRVenafiPickupIDAnnotation] == "" {
			return said
		}
		return ""
	})
	w.tpp.Change(func(s *tppserver.State) { s.Tokens, s.Pending = map[string]bool{"new": true}, 0 })
	w.issuersAre(cmmeta.ConditionFalse, "AuthFailed")
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), "venafi", secret); err != nil {
		t.Fatal(err)
	}
	secret.Data["access-token"] = []byte("new")
	if err := w.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.issuersAre(cmmeta.ConditionTrue, "Certificate Manager issuer started")
	rig.Eventually(t, "the CertificateRequest is issued", func(ctx context.Context) string {
		cr, _, said := w.seen(ctx, "web")
		if len(cr.Status.Certificate) == 0 {
			return said
		}
		w.verify(cr.Status.Certificate, "web.cr.example.com")
		return ""
	})
}

// TestNothingIsHandedInThatNobodyApproves: Certificate Manager is given the encoded request as it is. One that asks for
// a CA certificate, while the request that approvers judge does not, is never handed in.
func TestNothingIsHandedInThatNobodyApproves(t *testing.T) {
	t.Parallel()
	w := newVenafiWorld(t)
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	disguised, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: "x"}, EncodeBasicConstraints: true, IsCA: true}, key)
	if err != nil {
		t.Fatal(err)
	}
	w.tpp.Take()
	w.Create(t,
		&certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.CertificateRequestSpec{
			Request: disguised, IssuerRef: cmmeta.IssuerReference{Name: "venafi"},
		}},
		&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("ca")}, Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: disguised, SignerName: "cert-manager.io/" + w.ClusterName("venafi"), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature},
		}})
	rig.Eventually(t, "both have failed", func(ctx context.Context) string {
		_, csr, said := w.seen(ctx, "ca")
		approved := slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateApproved
		})
		if !strings.HasPrefix(said, "Failed: ") || !strings.Contains(said, "isCA is false") || approved ||
			len(csr.Status.Conditions) == 0 || csr.Status.Conditions[0].Type != certificatesv1.CertificateFailed {
			return fmt.Sprintf("%q; %+v", said, csr.Status.Conditions)
		}
		return ""
	})
	for _, call := range w.tpp.Take() {
		if strings.Contains(fmt.Sprint(call), "/vedsdk/certificates/request") {
			t.Errorf("it was handed in: %+v", call)
		}
	}
}
