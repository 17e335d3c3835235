package stories_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func clusterIssuer(w *rig.World, name string, spec certmanagerv1.IssuerSpec) *certmanagerv1.ClusterIssuer {
	return &certmanagerv1.ClusterIssuer{ObjectMeta: named(w.ClusterName(name)), Spec: spec}
}

// certificate returns a Certificate with a small key by a ClusterIssuer of the world.
func certificate(w *rig.World, name, issuer string, dnsNames ...string) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{ObjectMeta: named(name), Spec: certmanagerv1.CertificateSpec{
		SecretName: name, DNSNames: dnsNames,
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		IssuerRef:  cmmeta.IssuerReference{Name: w.ClusterName(issuer), Kind: cmmeta.ClusterIssuerKind},
	}}
}

// withCA adds a self-signed root and a ClusterIssuer "ca" that signs with it.
func withCA(t *testing.T, w *rig.World) {
	t.Helper()
	root := certificate(w, "root", "selfsigned")
	root.Spec.IsCA, root.Spec.CommonName = true, "test root"
	w.Create(t,
		clusterIssuer(w, "selfsigned", certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}), root,
		clusterIssuer(w, "ca", certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}))
}

func condition(w *rig.World, name string, kind certmanagerv1.CertificateConditionType) func(context.Context) *certmanagerv1.CertificateCondition {
	return func(ctx context.Context) *certmanagerv1.CertificateCondition {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, name, crt); err != nil {
			return nil
		}
		return certmanagerv1.FindCertificateCondition(crt.Status.Conditions, kind)
	}
}

func awaitReady(t *testing.T, w *rig.World, name string) *certmanagerv1.Certificate {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	rig.Eventually(t, "Certificate "+name+" is ready and settled", func(ctx context.Context) string {
		if err := w.Get(ctx, name, crt); err != nil {
			return err.Error()
		}
		if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) ||
			certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing) != nil {
			return fmt.Sprintf("%+v", crt.Status.Conditions)
		}
		keys := &corev1.SecretList{}
		if err := w.Client.List(ctx, keys, client.InNamespace(w.Namespace), client.HasLabels{certmanagerv1.NextPrivateKeyLabel}); err != nil {
			return err.Error()
		}
		for _, key := range keys.Items {
			if metav1.IsControlledBy(&key, crt) {
				return "Secret " + key.Name + " is left"
			}
		}
		return ""
	})
	return crt
}

// verifySecret checks that a target Secret holds a chain to its CA, and its key.
func verifySecret(t *testing.T, w *rig.World, name string) (*corev1.Secret, *x509.Certificate) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), name, secret); err != nil {
		t.Fatal(err)
	}
	chain, err := pki.DecodeChain(secret.Data["tls.crt"])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		t.Fatal("ca.crt holds no certificate")
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		t.Errorf("chain of Secret %s: %v", name, err)
	}
	key, err := pki.DecodePrivateKey(secret.Data["tls.key"])
	if err != nil || !pki.PublicKeysEqual(key.Public(), chain[0].PublicKey) {
		t.Errorf("tls.key of Secret %s does not belong to tls.crt: %v", name, err)
	}
	return secret, chain[0]
}

// TestRule7CertificateByCA: a Certificate leads to one request, is renewed when its
// spec changes, and the Secret is what spec §2.4 says.
func TestRule7CertificateByCA(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	crt := certificate(w, "web", "ca", "a.example.com", "b.example.com")
	crt.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"team": "web"}, Annotations: map[string]string{"note": "hi"}}
	w.Create(t, crt)
	crt = awaitReady(t, w, "web")
	secret, leaf := verifySecret(t, w, "web")
	if crt.Status.Revision == nil || *crt.Status.Revision != 1 || !crt.Status.NotAfter.Time.Equal(leaf.NotAfter) || crt.Status.RenewalTime == nil {
		t.Errorf("status %+v", crt.Status)
	}
	for key, want := range map[string]string{
		"cert-manager.io/certificate-name": "web", "cert-manager.io/alt-names": "a.example.com,b.example.com",
		"cert-manager.io/common-name": "", "cert-manager.io/ip-sans": "", "cert-manager.io/uri-sans": "",
		"cert-manager.io/issuer-name": w.ClusterName("ca"), "cert-manager.io/issuer-kind": "ClusterIssuer", "cert-manager.io/issuer-group": "", "note": "hi",
	} {
		if got, ok := secret.Annotations[key]; !ok || got != want {
			t.Errorf("annotation %s is %q (there: %v), want %q", key, got, ok, want)
		}
	}
	if secret.Type != corev1.SecretTypeTLS || secret.Labels["controller.cert-manager.io/fao"] != "true" || secret.Labels["team"] != "web" {
		t.Errorf("type %s, labels %v", secret.Type, secret.Labels)
	}
	request := &certmanagerv1.CertificateRequest{}
	if err := w.Get(t.Context(), "web-1", request); err != nil {
		t.Fatal(err)
	}
	if request.Spec.Username != rig.Controller {
		t.Errorf("the request was made by %q, want %q", request.Spec.Username, rig.Controller)
	}

	changed := crt.DeepCopy()
	changed.Spec.DNSNames = []string{"c.example.com"}
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(crt)); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the amended Certificate is issued again", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil || *crt.Status.Revision != 2 {
			return fmt.Sprintf("revision %v, %v", crt.Status.Revision, err)
		}
		return ""
	})
	awaitReady(t, w, "web")
	if _, leaf := verifySecret(t, w, "web"); leaf.DNSNames[0] != "c.example.com" || len(leaf.DNSNames) != 1 {
		t.Errorf("names %v", leaf.DNSNames)
	}
	rig.Eventually(t, "the request of the old revision is gone", func(ctx context.Context) string {
		if err := w.Get(ctx, "web-1", request); client.IgnoreNotFound(err) == nil && err != nil {
			return ""
		}
		return "web-1 is there"
	})
}

func signingCondition(w *rig.World, name string, t certificatesv1.RequestConditionType) func(context.Context) string {
	return func(ctx context.Context) string {
		csr := &certificatesv1.CertificateSigningRequest{}
		if err := w.Get(ctx, w.ClusterName(name), csr); err != nil {
			return err.Error()
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == t {
				return ""
			}
		}
		return fmt.Sprintf("conditions %+v", csr.Status.Conditions)
	}
}

// TestRule8SigningRequests: by a ready ClusterIssuer approved and signed, by one
// that is missing or not ready failed, by a foreign one left alone.
func TestRule8SigningRequests(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	awaitReady(t, w, "root")
	w.Create(t, clusterIssuer(w, "broken", certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "no-such-secret"}}))
	rig.Eventually(t, "the issuers are set up", func(ctx context.Context) string {
		for _, name := range []string{"ca", "broken"} {
			issuer := &certmanagerv1.ClusterIssuer{}
			want := map[string]cmmeta.ConditionStatus{"ca": cmmeta.ConditionTrue, "broken": cmmeta.ConditionFalse}[name]
			if err := w.Get(ctx, w.ClusterName(name), issuer); err != nil || len(issuer.Status.Conditions) == 0 || issuer.Status.Conditions[0].Status != want {
				return fmt.Sprintf("%s: %+v, %v", name, issuer.Status.Conditions, err)
			}
		}
		return ""
	})
	for name, signerName := range map[string]string{
		"signed":    "cert-manager.io/" + w.ClusterName("ca"),
		"missing":   "cert-manager.io/" + w.ClusterName("nobody"),
		"not-ready": "cert-manager.io/" + w.ClusterName("broken"),
		"foreign":   "example.com/" + w.ClusterName("ca"),
		"unchecked": "clusterissuers.cert-manager.io/" + w.ClusterName("ca"),
	} {
		w.Create(t, w.SigningRequest(t, name, signerName))
	}
	rig.Eventually(t, "the request is signed", func(ctx context.Context) string {
		csr := &certificatesv1.CertificateSigningRequest{}
		if err := w.Get(ctx, w.ClusterName("signed"), csr); err != nil || len(csr.Status.Certificate) == 0 {
			return fmt.Sprintf("%v, conditions %+v", err, csr.Status.Conditions)
		}
		block, _ := pem.Decode(csr.Status.Certificate)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil || leaf.DNSNames[0] != "csr.example.com" || time.Until(leaf.NotAfter) < 80*24*time.Hour {
			t.Errorf("certificate %+v: %v", leaf, err)
		}
		return ""
	})
	rig.Eventually(t, "it is approved", signingCondition(w, "signed", certificatesv1.CertificateApproved))
	rig.Eventually(t, "a missing issuer fails the request", signingCondition(w, "missing", certificatesv1.CertificateFailed))
	rig.Eventually(t, "an issuer that is not ready fails the request", signingCondition(w, "not-ready", certificatesv1.CertificateFailed))
	for _, name := range []string{"foreign", "unchecked"} {
		csr := &certificatesv1.CertificateSigningRequest{}
		if err := w.Get(t.Context(), w.ClusterName(name), csr); err != nil || len(csr.Status.Conditions)+len(csr.Status.Certificate) > 0 {
			t.Errorf("%s was touched: %+v, %v", name, csr.Status, err)
		}
	}
}

// TestBadInputIsSaid: what the user did wrong stands where the user looks, and
// putting it right is enough.
func TestBadInputIsSaid(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	t.Run("two issuer types are refused", func(t *testing.T) {
		both := clusterIssuer(w, "both", certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}, CA: &certmanagerv1.CAIssuer{SecretName: "x"}})
		if err := w.Client.Create(t.Context(), both); err == nil || !strings.Contains(err.Error(), "exactly one") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no names are refused", func(t *testing.T) {
		nameless := certificate(w, "nameless", "ca")
		nameless.Namespace = w.Namespace
		if err := w.Client.Create(t.Context(), nameless); err == nil || !strings.Contains(err.Error(), "dnsNames") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a missing issuer is waited for", func(t *testing.T) {
		w.Create(t, certificate(w, "early", "ca", "early.example.com"))
		rig.Eventually(t, "the request says what is missing", func(ctx context.Context) string {
			request := &certmanagerv1.CertificateRequest{}
			if err := w.Get(ctx, "early-1", request); err != nil {
				return err.Error()
			}
			ready := certmanagerv1.FindCertificateRequestCondition(request.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
			if ready == nil || ready.Reason != "Pending" || !strings.Contains(ready.Message, w.ClusterName("ca")) {
				return fmt.Sprintf("%+v", request.Status.Conditions)
			}
			return ""
		})
		rig.Eventually(t, "the Certificate says it too", func(ctx context.Context) string {
			c := condition(w, "early", certmanagerv1.CertificateConditionIssuing)(ctx)
			if c == nil || !strings.Contains(c.Message, "does not exist") {
				return fmt.Sprintf("%+v", c)
			}
			return ""
		})
		withCA(t, w)
		awaitReady(t, w, "early")
	})
	t.Run("a missing CA Secret is waited for", func(t *testing.T) {
		w.Create(t, clusterIssuer(w, "lone", certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "lone"}}))
		rig.Eventually(t, "the issuer says so", func(ctx context.Context) string {
			issuer := &certmanagerv1.ClusterIssuer{}
			if err := w.Get(ctx, w.ClusterName("lone"), issuer); err != nil {
				return err.Error()
			}
			c := certmanagerv1.FindIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionReady)
			if c == nil || c.Reason != "ErrGetKeyPair" || !strings.Contains(c.Message, w.Namespace+"/lone") {
				return fmt.Sprintf("%+v", c)
			}
			return ""
		})
		w.Create(t, certificate(w, "patient", "lone", "patient.example.com"))
		root := &corev1.Secret{}
		awaitReady(t, w, "root")
		if err := w.Get(t.Context(), "root", root); err != nil {
			t.Fatal(err)
		}
		w.Create(t, &corev1.Secret{ObjectMeta: named("lone"), Data: root.Data})
		awaitReady(t, w, "patient")
	})
}
