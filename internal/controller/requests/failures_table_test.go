package requests_test

import (
	"crypto"
	"crypto/x509/pkix"
	"errors"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
)

// disagree has a CSR whose usages are not those that its request asks for.
func disagree() want {
	return want{csr: pki.CSRTemplate{Subject: pkix.Name{CommonName: "x"}, EncodeUsages: true, Usages: []string{"client auth"}}, usages: []string{"server auth"}}
}

// by returns what is wanted of an issuer.
func by(issuer string, x want) want {
	x.issuer = issuer
	return x
}

// TestRequestsFail is the terminal rows of spec §3.4 and §4.5: condition, event and class.
func TestRequestsFail(t *testing.T) {
	t.Parallel()
	w := newTroubled(t)
	key := map[string]string{certmanagerv1.PrivateKeySecretNameAnnotation: "other-key"}
	other, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	w.storeKey(t, "other-key", encoded(t, other))
	w.storeKey(t, "own-key", encoded(t, w.key))
	own := map[string]string{certmanagerv1.PrivateKeySecretNameAnnotation: "own-key"}
	selfDisagrees := by(bySelf, disagree())
	selfDisagrees.annotations = own
	elsewhere := pki.CSRTemplate{Subject: pkix.Name{CommonName: "a.example.com"}, AltNames: pki.AltNames{DNSNames: []string{"b.example.com"}}}
	blocked := pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"blocked.example.com"}}}
	for _, c := range []struct {
		name string
		want want
		// request and signing are the reasons of the two kinds; "" where the row is not of that kind.
		request, signing string
		words            string
	}{
		{"ca-garbage", want{issuer: byCA, garbage: true}, "SigningError", "", "certificate request"},
		{"ca-disagrees", by(byCA, disagree()), "SigningError", "SigningError", "usages"},
		{"ca-bad-usage", want{issuer: byCA, usages: []string{"cert sign"}, csr: pki.CSRTemplate{EncodeBasicConstraints: true, IsCA: true, Subject: pkix.Name{CommonName: "x"}}}, "SigningError", "SigningError", "isCA"},
		{"self-no-annotation", want{issuer: bySelf}, "MissingAnnotation", "MissingAnnotation", "private-key-secret-name"},
		{"self-other-key", want{issuer: bySelf, annotations: key}, "ErrorKeyMatch", "ErrorKeyMatch", w.Namespace + "/other-key"},
		{"self-disagrees", selfDisagrees, "ErrorGenerating", "ErrorGenerating", "usages"},
		{"self-garbage", want{issuer: bySelf, garbage: true, annotations: own}, "ErrorGenerating", "", "certificate request"},
		{"acme-disagrees", by(byACME, disagree()), "SigningError", "SigningError", "usages"},
		{"acme-ca", want{issuer: byACME, csr: pki.CSRTemplate{
			EncodeBasicConstraints: true, IsCA: true, Subject: pkix.Name{CommonName: "x.example.com"}, AltNames: pki.AltNames{DNSNames: []string{"x.example.com"}},
		}}, "SigningError", "SigningError", "isCA is false, but the encoded certificate request says true"},
		{"acme-garbage", want{issuer: byACME, garbage: true}, "RequestParsingError", "", "Failed to decode CSR"},
		{"acme-forged", want{issuer: byACME, forged: true}, "RequestParsingError", "", "is not signed by its own key"},
		{"ca-forged", want{issuer: byCA, forged: true}, "SigningError", "", "is not signed by its own key"},
		{"acme-cn-elsewhere", want{issuer: byACME, csr: elsewhere}, "InvalidOrder", "InvalidOrder", `"a.example.com" does not exist`},
		{"acme-blocked", want{issuer: byACME, csr: blocked}, "OrderFailed", "OrderFailed", "blocked.example.com"},
		{"csr-duration", want{issuer: byCA, annotations: map[string]string{certmanagerv1.CSRDurationAnnotation: "1 year"}}, "", "ErrorParseDuration", certmanagerv1.CSRDurationAnnotation},
		{"csr-too-short", want{issuer: byCA, annotations: map[string]string{certmanagerv1.CSRDurationAnnotation: "9m"}}, "", "InvalidDuration", "10m0s"},
		{"csr-missing", want{issuer: byNobody}, "", "IssuerNotFound", "does not exist"},
		{"csr-not-ready", want{issuer: byBroken}, "", "IssuerNotReady", "no-such-secret"},
	} {
		if c.request != "" {
			t.Run(c.name+" CertificateRequest", func(t *testing.T) {
				t.Parallel()
				cr := w.certificateRequest(t, c.name, c.want)
				failed := w.requestReady(t, c.name, certmanagerv1.CertificateRequestReasonFailed, c.words)
				if failed.Status.FailureTime == nil || len(failed.Status.Certificate) > 0 {
					t.Errorf("status %+v", failed.Status)
				}
				class := certmanagerv1.FindCertificateRequestCondition(failed.Status.Conditions, certmanagerv1.CertificateRequestConditionFailureClass)
				if class == nil || class.Reason != "Permanent" || class.Status != cmmeta.ConditionTrue {
					t.Errorf("the class of the failure is %+v", class)
				}
				w.said(t, cr, corev1.EventTypeWarning, c.request, c.words)
			})
		}
		if c.signing != "" {
			t.Run(c.name+" CSR", func(t *testing.T) {
				t.Parallel()
				csr := w.signingRequest(t, c.name, c.want)
				w.signingHas(t, c.name, certificatesv1.CertificateFailed, c.signing, c.words)
				w.said(t, csr, corev1.EventTypeWarning, c.signing, c.words)
			})
		}
	}
}

func (w *troubled) storeKey(t *testing.T, name string, text []byte) {
	t.Helper()
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{cmmeta.TLSPrivateKeyKey: text}})
}

func encoded(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRequestsWait is the rows that wait: each says why, and goes on when what it waits for
// is there. A missing Secret waits in both kinds.
func TestRequestsWait(t *testing.T) {
	t.Parallel()
	w := newTroubled(t)
	const own = "clusterissuers.cert-manager.io/"
	for _, c := range []struct {
		name, secret   string // what the Secret holds at first; "" for no Secret
		signing, words string
	}{
		{"no-secret", "", "SecretNotFound", "does not exist"},
		{"bad-secret", "no key", "ErrorParsingKey", "tls.key"},
	} {
		x := want{issuer: bySelf, annotations: map[string]string{certmanagerv1.PrivateKeySecretNameAnnotation: c.name}}
		if c.secret != "" {
			w.storeKey(t, c.name, []byte(c.secret))
		}
		cr, csr := w.certificateRequest(t, c.name, x), w.signingRequest(t, c.name, x)
		w.requestReady(t, c.name, certmanagerv1.CertificateRequestReasonPending, c.words)
		w.said(t, csr, corev1.EventTypeWarning, c.signing, c.words)
		w.mend(t, c.name)
		w.signed(t, cr)
		w.signed(t, csr)
	}
	late := want{issuer: "late", form: own}
	cr, csr := w.certificateRequest(t, "late", want{issuer: "late"}), w.signingRequest(t, "late", late)
	w.requestReady(t, "late", certmanagerv1.CertificateRequestReasonPending, "does not exist")
	w.said(t, csr, corev1.EventTypeWarning, "IssuerNotFound", "does not exist")
	w.Create(t, &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("late")}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "late"}}})
	w.requestReady(t, "late", certmanagerv1.CertificateRequestReasonPending, "is not ready")
	w.said(t, csr, corev1.EventTypeWarning, "IssuerNotReady", "is not ready")
	root := &corev1.Secret{}
	if err := w.Get(t.Context(), "root", root); err != nil {
		t.Fatal(err)
	}
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Data: root.Data})
	w.signed(t, cr)
	w.signed(t, csr)
}

// TestRequestsHearOfTheSecretOfACA: requests wait for the Secret of a CA, and nobody says anything of the issuer, since
// it is paused. They are signed as soon as the Secret is there.
func TestRequestsHearOfTheSecretOfACA(t *testing.T) {
	t.Parallel()
	w := newTroubled(t)
	issuer := &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("early"), Annotations: map[string]string{cmmeta.PausedAnnotation: "true"}},
		Spec:       certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "early"}},
	}
	w.Create(t, issuer)
	issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue, ObservedGeneration: issuer.Generation}}
	root := &corev1.Secret{}
	if err := errors.Join(w.Client.Status().Update(t.Context(), issuer), w.Get(t.Context(), "root", root)); err != nil {
		t.Fatal(err)
	}
	cr, csr := w.certificateRequest(t, "early", want{issuer: "early"}), w.signingRequest(t, "early", want{issuer: "early", form: "clusterissuers.cert-manager.io/"})
	w.requestReady(t, "early", certmanagerv1.CertificateRequestReasonPending, "does not exist")
	w.said(t, csr, corev1.EventTypeWarning, "SecretMissing", "does not exist")
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "early"}, Data: root.Data})
	w.signed(t, cr)
	w.signed(t, csr)
}

// mend puts the right key into a Secret, which it makes if need be.
func (w *troubled) mend(t *testing.T, name string) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), name, secret); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if secret.Name == "" {
		w.storeKey(t, name, encoded(t, w.key))
		return
	}
	secret.Data = map[string][]byte{cmmeta.TLSPrivateKeyKey: encoded(t, w.key)}
	if err := w.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// TestWarnings: what is signed although something is odd says so.
func TestWarnings(t *testing.T) {
	t.Parallel()
	w := newTroubled(t)
	long := want{issuer: byCA, duration: 1000 * time.Hour}
	bare := want{issuer: bySelf, csr: pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"a.example.com"}}},
		annotations: map[string]string{certmanagerv1.PrivateKeySecretNameAnnotation: "own"}}
	w.mend(t, "own")
	for name, c := range map[string]struct {
		want          want
		reason, words string
	}{
		"outlives": {long, "CertificateOutlivesCA", "renew the CA or ask for a shorter duration"},
		"bare":     {bare, "BadConfig", "empty subject"},
	} {
		cr, csr := w.certificateRequest(t, name, c.want), w.signingRequest(t, name, c.want)
		for _, o := range []client.Object{cr, csr} {
			w.signed(t, o)
			w.said(t, o, corev1.EventTypeWarning, c.reason, c.words)
		}
	}
}

// TestApprovalByOthers: with the built-in approver off nothing happens unasked; a denial is
// acknowledged on a CertificateRequest and left alone on a CertificateSigningRequest.
func TestApprovalByOthers(t *testing.T) {
	t.Parallel()
	w := newTroubled(t, func(cfg *app.Config) {
		cfg.ApproveSigners = request.SignerPatterns{"clusterissuers.cert-manager.io/" + cfg.ClusterResourceNamespace + "-root"}
	})
	const form = "clusterissuers.cert-manager.io/"
	denied := w.certificateRequest(t, "denied", want{issuer: byCA})
	approved := w.certificateRequest(t, "approved", want{issuer: byCA})
	external := w.certificateRequest(t, "external", want{issuer: byCA, group: "example.com"})
	csr := w.signingRequest(t, "denied", want{issuer: byCA, form: form, verdict: certificatesv1.CertificateDenied})
	later := w.signingRequest(t, "later", want{issuer: byCA, form: form})
	w.signed(t, later) // by now all the others have been looked at
	for _, cr := range []*certmanagerv1.CertificateRequest{denied, approved, external} {
		if err := w.Get(t.Context(), cr.Name, cr); err != nil || len(cr.Status.Conditions) > 0 {
			t.Errorf("%s was touched: %+v, %v", cr.Name, cr.Status, err)
		}
	}
	w.judge(t, denied, certmanagerv1.CertificateRequestConditionDenied)
	w.judge(t, approved, certmanagerv1.CertificateRequestConditionApproved)
	w.signed(t, approved)
	if failed := w.requestReady(t, "denied", "Denied", "denied by an approval controller"); failed.Status.FailureTime == nil || len(failed.Status.Certificate) > 0 {
		t.Errorf("status %+v", failed.Status)
	}
	if err := w.Get(t.Context(), csr.Name, csr); err != nil || len(csr.Status.Conditions) != 1 || len(csr.Status.Certificate) > 0 {
		t.Errorf("a denied CertificateSigningRequest was touched: %+v, %v", csr.Status, err)
	}
	if err := w.Get(t.Context(), external.Name, external); err != nil || len(external.Status.Conditions) > 0 {
		t.Errorf("a request to an external issuer was touched: %+v, %v", external.Status, err)
	}
}

// judge approves or denies a CertificateRequest as a person would.
func (w *troubled) judge(t *testing.T, cr *certmanagerv1.CertificateRequest, verdict certmanagerv1.CertificateRequestConditionType) {
	t.Helper()
	certmanagerv1.SetCertificateRequestCondition(cr, certmanagerv1.CertificateRequestCondition{Type: verdict, Status: cmmeta.ConditionTrue, Reason: "Test"}, time.Now())
	if err := w.Client.Status().Update(t.Context(), cr); err != nil {
		t.Fatal(err)
	}
}
