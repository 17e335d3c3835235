package certificates_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"software.sslmate.com/src/go-pkcs12"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// eventuallySecret waits until a Secret is as it should be.
func eventuallySecret(t *testing.T, w *rig.World, name, what string, check func(*corev1.Secret) string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	rig.Eventually(t, what, func(ctx context.Context) string {
		if err := w.Get(ctx, name, secret); err != nil {
			return err.Error()
		}
		return check(secret)
	})
	return secret
}

// wants turns a condition into what Eventually wants to hear.
func wants(is bool, what any) string {
	if is {
		return ""
	}
	return fmt.Sprintf("%v", what)
}

// TestDriftIsRepaired lets a user and the spec change what a Secret is beside key and
// certificate, on a real API server, which says who owns what: it is put right, nothing
// is issued, and what others added stays.
func TestDriftIsRepaired(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	crt := newCertificate(w, "web", "ca")
	crt.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"team": "web"}, Annotations: map[string]string{"note": "hi"}}
	w.Create(t, crt)
	crt = awaitReady(t, w, "web")
	first := secretOf(t, w, "web")

	amend(t, w, secretOf(t, w, "web"), func(s *corev1.Secret) {
		s.Labels["team"], s.Labels["theirs"], s.Annotations["theirs"] = "other", "1", "2"
		s.Annotations[certmanagerv1.AltNamesAnnotation] = "forged"
		delete(s.Annotations, "note")
	})
	eventuallySecret(t, w, "web", "what a user changed is put right", func(s *corev1.Secret) string {
		return wants(s.Labels["team"] == "web" && s.Annotations["note"] == "hi" && s.Annotations[certmanagerv1.AltNamesAnnotation] == "web.example.com", s.ObjectMeta)
	})
	amend(t, w, crt, func(c *certmanagerv1.Certificate) {
		c.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Annotations: map[string]string{"more": "1"}}
		c.Spec.AdditionalOutputFormats = []certmanagerv1.CertificateAdditionalOutputFormat{{Type: "DER"}, {Type: "CombinedPEM"}}
	})
	eventuallySecret(t, w, "web", "another template and formats are taken up", func(s *corev1.Secret) string {
		_, team := s.Labels["team"]
		_, note := s.Annotations["note"]
		combined := string(s.Data["tls.key"]) + "\n" + string(s.Data["tls.crt"])
		return wants(!team && !note && s.Annotations["more"] == "1" && string(s.Data["tls-combined.pem"]) == combined && len(s.Data["key.der"]) > 0, s.ObjectMeta)
	})
	amend(t, w, secretOf(t, w, "web"), func(s *corev1.Secret) { s.Data["key.der"] = []byte("forged") })
	eventuallySecret(t, w, "web", "a forged format is put right", func(s *corev1.Secret) string {
		return wants(string(s.Data["key.der"]) != "forged", "forged")
	})
	amend(t, w, crt, func(c *certmanagerv1.Certificate) {
		c.Spec.SecretTemplate, c.Spec.AdditionalOutputFormats = nil, nil
	})
	last := eventuallySecret(t, w, "web", "what is not wanted any more goes", func(s *corev1.Secret) string {
		_, more := s.Annotations["more"]
		return wants(!more && len(s.Data) == 3, s.ObjectMeta)
	})
	if last.Labels["theirs"] != "1" || last.Annotations["theirs"] != "2" {
		t.Errorf("what others added is gone: %v %v", last.Labels, last.Annotations)
	}
	if !bytes.Equal(first.Data["tls.crt"], last.Data["tls.crt"]) || !bytes.Equal(first.Data["tls.key"], last.Data["tls.key"]) {
		t.Error("it was issued again")
	}
	if crt := awaitReady(t, w, "web"); *crt.Status.Revision != 1 {
		t.Errorf("revision %d", *crt.Status.Revision)
	}
}

// TestChangesAreNotPaced changes a Certificate twice while the clock stands still: each change reaches the Secret.
// A rival who undoes the last one waits for the clock.
func TestChangesAreNotPaced(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	cfg, now := w.Config(), time.Now()
	cfg.Now = func() time.Time { return now }
	w.Run(t, cfg)
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"))
	crt := awaitReady(t, w, "web")
	for _, formats := range [][]certmanagerv1.CertificateAdditionalOutputFormat{{{Type: "DER"}}, {{Type: "CombinedPEM"}}, {}} {
		amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec.AdditionalOutputFormats = formats })
		eventuallySecret(t, w, "web", fmt.Sprintf("the formats are %v", formats), func(s *corev1.Secret) string {
			_, der := s.Data["key.der"]
			_, combined := s.Data["tls-combined.pem"]
			return wants(len(s.Data) == 3+len(formats) && der == slices.Contains(formats, certmanagerv1.CertificateAdditionalOutputFormat{Type: "DER"}) &&
				combined == slices.Contains(formats, certmanagerv1.CertificateAdditionalOutputFormat{Type: "CombinedPEM"}), s.ObjectMeta)
		})
	}
	forge := func(s *corev1.Secret) { s.Annotations[certmanagerv1.AltNamesAnnotation] = "forged" }
	amend(t, w, secretOf(t, w, "web"), forge)
	w.Create(t, newCertificate(w, "another", "ca"))
	awaitReady(t, w, "another") // meanwhile: an unpaced repair would have come before
	if s := secretOf(t, w, "web"); s.Annotations[certmanagerv1.AltNamesAnnotation] != "forged" {
		t.Error("what a rival has changed was put right a moment after the last repair")
	}
}

// opensPKCS12 says why a keystore does not hold the Secret's key under a password.
func opensPKCS12(s *corev1.Secret, password string) string {
	_, leaf, _, err := pkcs12.DecodeChain(s.Data["keystore.p12"], password)
	if err != nil {
		return err.Error()
	}
	want, err := pki.DecodePrivateKey(s.Data["tls.key"])
	if err != nil {
		return err.Error()
	}
	if !pki.PublicKeysEqual(leaf.PublicKey, want.Public()) {
		return "another key"
	}
	return ""
}

// TestKeystores makes keystores, and makes them again when their password changes, without
// the certificate being issued again. Without its password nothing is stored.
func TestKeystores(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	crt := newCertificate(w, "web", "ca")
	ref := cmmeta.SecretKeySelector{Name: "store", Key: "password"}
	crt.Spec.Keystores = &certmanagerv1.CertificateKeystores{
		PKCS12: &certmanagerv1.PKCS12Keystore{Create: true, Profile: certmanagerv1.PKCS12Modern2023, PasswordSecretRef: ref},
		JKS:    &certmanagerv1.JKSKeystore{Create: true, Password: new("changeit")},
	}
	w.Create(t, crt)
	rig.Eventually(t, "the Certificate says which password is missing", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil {
			return err.Error()
		}
		c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
		return wants(c != nil && strings.Contains(c.Message, `Secret "store" of spec.keystores.pkcs12.passwordSecretRef does not exist`), c)
	})
	password := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "store"}, Data: map[string][]byte{"password": []byte("first")}}
	w.Create(t, password)
	crt = awaitReady(t, w, "web")
	first := secretOf(t, w, "web")
	if why := opensPKCS12(first, "first"); why != "" {
		t.Error(why)
	}
	for _, key := range []string{"keystore.jks", "truststore.jks", "truststore.p12"} {
		if len(first.Data[key]) == 0 {
			t.Errorf("%s is missing", key)
		}
	}
	amend(t, w, password, func(s *corev1.Secret) { s.Data["password"] = []byte("second") })
	last := eventuallySecret(t, w, "web", "the keystore has the new password", func(s *corev1.Secret) string { return opensPKCS12(s, "second") })
	if !bytes.Equal(first.Data["tls.crt"], last.Data["tls.crt"]) {
		t.Error("it was issued again")
	}
	amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec.Keystores = nil })
	eventuallySecret(t, w, "web", "keystores that are not wanted go", func(s *corev1.Secret) string { return wants(len(s.Data) == 3, len(s.Data)) })
}

// TestTemporaryCertificate: it stands in while nobody has approved, and is no certificate to be Ready for.
func TestTemporaryCertificate(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	crt := newCertificate(w, "web", "ca")
	crt.Annotations = map[string]string{certmanagerv1.IssueTemporaryAnnotation: "true"}
	w.Create(t, crt) // by an issuer that is not there yet
	eventuallySecret(t, w, "web", "a temporary certificate is there", func(s *corev1.Secret) string {
		leaf, err := pki.DecodeCertificate(s.Data["tls.crt"])
		return wants(err == nil && pki.IsTemporary(leaf), err)
	})
	rig.Eventually(t, "the Certificate says that it is not the one asked for", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil {
			return err.Error()
		}
		c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
		return wants(c != nil && c.Status == "False" && c.Reason == "IncorrectIssuer", c)
	})
	withCA(t, w)
	awaitReady(t, w, "web")
	if leaf, err := pki.DecodeCertificate(secretOf(t, w, "web").Data["tls.crt"]); err != nil || pki.IsTemporary(leaf) {
		t.Errorf("the temporary certificate has stayed: %v", err)
	}
}

// TestOpaqueSecret issues into a Secret that somebody has made without a type: the type of a Secret cannot be changed,
// so the Secret keeps it, and what somebody has put into it.
func TestOpaqueSecret(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Data: map[string][]byte{"mine": []byte("kept")}})
	crt := newCertificate(w, "web", "ca")
	w.Create(t, crt)
	awaitReady(t, w, "web")
	secret := secretOf(t, w, "web")
	if secret.Type != corev1.SecretTypeOpaque || string(secret.Data["mine"]) != "kept" || len(secret.Data["tls.crt"]) == 0 {
		t.Errorf("type %s, keys %v", secret.Type, slices.Collect(maps.Keys(secret.Data)))
	}
	amend(t, w, secret, func(s *corev1.Secret) { delete(s.Data, "tls.crt") })
	eventuallySecret(t, w, "web", "the certificate is put back", func(s *corev1.Secret) string {
		return wants(s.Type == corev1.SecretTypeOpaque && len(s.Data["tls.crt"]) > 0, s.Type)
	})
}

// TestOneOwnerOfASecret lets two Certificates name one Secret: the older is issued, the
// other says why it is not.
func TestOneOwnerOfASecret(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	one, two := newCertificate(w, "one", "ca"), newCertificate(w, "two", "ca")
	one.Spec.SecretName, two.Spec.SecretName = "shared", "shared"
	w.Create(t, one)
	awaitReady(t, w, "one")
	w.Create(t, two)
	rig.Eventually(t, "the second says whose the Secret is", func(ctx context.Context) string {
		if err := w.Get(ctx, "two", two); err != nil {
			return err.Error()
		}
		c := certmanagerv1.FindCertificateCondition(two.Status.Conditions, certmanagerv1.CertificateConditionReady)
		return wants(c != nil && c.Status == "False" && c.Reason == "IncorrectCertificate" && strings.Contains(c.Message, `"one"`), c)
	})
	if err := w.Get(t.Context(), "two-1", &certmanagerv1.CertificateRequest{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a request was made for the second: %v", err)
	}
}

// TestFightOverASecret lets another writer replace the key again and again, as fast as it
// can: five certificates are issued, and the condition says who does it and what helps.
func TestFightOverASecret(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"))
	crt := awaitReady(t, w, "web")
	other, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	forged, err := pki.EncodePKCS8(other)
	if err != nil {
		t.Fatal(err)
	}
	overBudget := func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil {
			return err.Error()
		}
		c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
		if c != nil && c.Reason == "IssuanceBudgetExceeded" {
			return wants(strings.Contains(c.Message, `"rival"`) && strings.Contains(c.Message, "the spec is changed"), c)
		}
		secret := &corev1.Secret{}
		if err := w.Get(ctx, "web", secret); err != nil || bytes.Equal(secret.Data["tls.key"], forged) {
			return fmt.Sprintf("being issued: %v", err)
		}
		before := secret.DeepCopy()
		secret.Data["tls.key"] = forged
		if err := w.Client.Patch(ctx, secret, client.MergeFrom(before), client.FieldOwner("rival")); err != nil {
			return err.Error()
		}
		return "the key was replaced"
	}
	rig.Eventually(t, "the fight is over", overBudget)
	if n := *crt.Status.Revision; n != 5 {
		t.Errorf("issued %d times, want 5", n)
	}
	amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec.DNSNames = []string{"other.example.com"} })
	rig.Eventually(t, "a change of the spec is a way out", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil {
			return err.Error()
		}
		return wants(*crt.Status.Revision == 6, crt.Status.Conditions)
	})
	awaitReady(t, w, "web")
}

// TestNewCAIsFollowed replaces the key of an issuer's CA. The issuer's status says since when; what the old CA has
// signed is left alone until its time, or until an annotation asks for all of it, and is issued again once.
func TestNewCAIsFollowed(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"))
	awaitReady(t, w, "web")
	root := awaitReady(t, w, "root")
	issuer := &certmanagerv1.ClusterIssuer{}
	await := func(what string, reached func(*certmanagerv1.CAIssuerStatus) bool) string {
		rig.Eventually(t, what, func(ctx context.Context) string {
			if err := w.Client.Get(ctx, client.ObjectKey{Name: w.ClusterName("ca")}, issuer); err != nil {
				return err.Error()
			}
			return wants(issuer.Status.CA != nil && reached(issuer.Status.CA), issuer.Status)
		})
		return issuer.Status.CA.Authority
	}
	first := await("the status says what the issuer signs with", func(ca *certmanagerv1.CAIssuerStatus) bool { return !ca.FirstSeen.IsZero() })
	amend(t, w, root, func(c *certmanagerv1.Certificate) { c.Spec.CommonName = "another root" })
	await("the status says that the CA is another one", func(ca *certmanagerv1.CAIssuerStatus) bool { return ca.Authority != first })

	web := awaitReady(t, w, "web")
	if *web.Status.Revision != 1 {
		t.Fatalf("issued again at once: revision %d", *web.Status.Revision)
	}
	issuer.Annotations = map[string]string{certmanagerv1.ReissueNowAnnotation: "true"}
	if err := w.Client.Update(t.Context(), issuer); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the certificate is signed by the new CA", func(ctx context.Context) string {
		secret := &corev1.Secret{}
		if err := w.Get(ctx, "web", secret); err != nil {
			return err.Error()
		}
		leaf, err := pki.DecodeCertificate(secret.Data["tls.crt"])
		return wants(err == nil && leaf.Issuer.CommonName == "another root", err)
	})
	rig.Eventually(t, "the status tells of it, which is written after the Secret", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", web); err != nil {
			return err.Error()
		}
		return wants(*web.Status.Revision > 1, web.Status)
	})
	if web = awaitReady(t, w, "web"); *web.Status.Revision != 2 {
		t.Errorf("issued more than once: revision %d", *web.Status.Revision)
	}
}
