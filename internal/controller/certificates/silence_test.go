package certificates_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// issuingSays waits until the condition Issuing is True and says something.
func issuingSays(t *testing.T, w *rig.World, name, what string) *certmanagerv1.Certificate {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	rig.Eventually(t, name+" says "+what, func(ctx context.Context) string {
		if err := w.Get(ctx, name, crt); err != nil {
			return err.Error()
		}
		c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
		return wants(c != nil && c.Status == cmmeta.ConditionTrue && strings.Contains(c.Message, what), crt.Status.Conditions)
	})
	return crt
}

// TestSecretThatCannotBeWritten renews into an immutable Secret: the Certificate says
// so, is not written to again and again, and is stored when the Secret is out of the way.
func TestSecretThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"))
	crt := awaitReady(t, w, "web")
	secret := secretOf(t, w, "web")
	amend(t, w, secret, func(s *corev1.Secret) { s.Immutable = new(true) })
	amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec.DNSNames = []string{"other.example.com"} })
	crt = issuingSays(t, w, "web", "immutable")
	if nextKeys(t.Context(), w) == "" {
		t.Error("the next private key is in no Secret while the certificate waits to be stored")
	}
	w.Create(t, newCertificate(w, "another", "ca"))
	awaitReady(t, w, "another") // meanwhile: whoever retries would have
	again := &certmanagerv1.Certificate{}
	if err := w.Get(t.Context(), "web", again); err != nil || again.ResourceVersion != crt.ResourceVersion {
		t.Errorf("written to again: %v %+v", err, again.Status.Conditions)
	}
	if err := w.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, w, "web")
}

// TestKeystoreThatCannotBeMade changes the password of a keystore to one that PKCS#12
// has no way to write: what is stored stays, and nothing is issued because of it.
func TestKeystoreThatCannotBeMade(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	crt := newCertificate(w, "web", "ca")
	crt.Spec.Keystores = &certmanagerv1.CertificateKeystores{PKCS12: &certmanagerv1.PKCS12Keystore{
		Create: true, PasswordSecretRef: cmmeta.SecretKeySelector{Name: "store", Key: "password"},
	}}
	password := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "store"}, Data: map[string][]byte{"password": []byte("first")}}
	w.Create(t, password, crt)
	awaitReady(t, w, "web")
	first := secretOf(t, w, "web")
	amend(t, w, password, func(s *corev1.Secret) { s.Data["password"] = []byte("\U0001F511") })
	notRepaired(t, w, crt, "keystore.p12")
	if last := secretOf(t, w, "web"); *crt.Status.Revision != 1 || !bytes.Equal(first.Data["tls.crt"], last.Data["tls.crt"]) {
		t.Errorf("it was issued again: %+v", crt.Status)
	}
	amend(t, w, password, func(s *corev1.Secret) { s.Data["password"] = []byte("second") })
	eventuallySecret(t, w, "web", "the keystore has the new password", func(s *corev1.Secret) string { return opensPKCS12(s, "second") })
	awaitReady(t, w, "web") // and says nothing any more
}

// notRepaired waits until a Certificate says why its Secret cannot be brought up to date,
// and holds it against being Ready all the same.
func notRepaired(t *testing.T, w *rig.World, crt *certmanagerv1.Certificate, why string) {
	t.Helper()
	rig.Eventually(t, "the condition says what is wrong", func(ctx context.Context) string {
		if err := w.Get(ctx, crt.Name, crt); err != nil {
			return err.Error()
		}
		c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
		return wants(c != nil && c.Status == cmmeta.ConditionFalse && c.Reason == certificate.ReasonSecretNotRepaired && strings.Contains(c.Message, why), crt.Status.Conditions)
	})
	if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
		t.Errorf("not ready, though the certificate is good: %+v", crt.Status.Conditions)
	}
}

// TestTemplateThatCannotBeWritten gives a Certificate in order a template that the schema
// lets through, and the API server does not: the condition says so once, and no more is
// tried than that.
func TestTemplateThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"))
	crt := awaitReady(t, w, "web")
	amend(t, w, crt, func(c *certmanagerv1.Certificate) {
		c.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"team": "two words"}}
	})
	notRepaired(t, w, crt, "metadata.labels")
	w.Create(t, newCertificate(w, "another", "ca"))
	awaitReady(t, w, "another") // meanwhile: whoever retries would have
	again := &certmanagerv1.Certificate{}
	if err := w.Get(t.Context(), "web", again); err != nil || again.ResourceVersion != crt.ResourceVersion {
		t.Errorf("written to again: %v %+v", err, again.Status.Conditions)
	}
	amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec.SecretTemplate.Labels["team"] = "words" })
	eventuallySecret(t, w, "web", "the template is taken up", func(s *corev1.Secret) string { return wants(s.Labels["team"] == "words", s.Labels) })
	awaitReady(t, w, "web")
}

// TestIssuerWithAnotherCAIsFollowed lets an issuer name another Secret to sign with.
func TestIssuerWithAnotherCAIsFollowed(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	other := newCertificate(w, "other", "selfsigned")
	other.Spec.IsCA, other.Spec.CommonName = true, "other root"
	w.Create(t, other, newCertificate(w, "web", "ca"))
	awaitReady(t, w, "other")
	awaitReady(t, w, "web")
	issuer := &certmanagerv1.ClusterIssuer{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: w.ClusterName("ca")}, issuer); err != nil {
		t.Fatal(err)
	}
	amend(t, w, issuer, func(i *certmanagerv1.ClusterIssuer) {
		i.Spec.CA.SecretName = "other"
		i.Annotations = map[string]string{certmanagerv1.ReissueNowAnnotation: certmanagerv1.LabelTrue}
	})
	eventuallySecret(t, w, "web", "the certificate is signed by the other CA", func(s *corev1.Secret) string {
		leaf, err := pki.DecodeCertificate(s.Data["tls.crt"])
		return wants(err == nil && leaf.Issuer.CommonName == "other root", err)
	})
}
