package injection_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// newPair returns a certificate for localhost; without a parent, a root.
func newPair(t *testing.T, parent *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "root"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	above, by := template, crypto.PrivateKey(key)
	if parent != nil {
		template.Subject.CommonName, template.IsCA, template.KeyUsage = "leaf", false, x509.KeyUsageDigitalSignature
		template.DNSNames, template.ExtKeyUsage = []string{"localhost"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		above, by = parent.Leaf, parent.PrivateKey
	}
	raw, err := x509.CreateCertificate(nil, template, above, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}
}

// TestRootsAndLinks: ca.crt of a CA that was replaced has the new root, the old one and a link, and all three go into
// the bundle. The API server asks webhooks with certificates of both roots, and no others.
func TestRootsAndLinks(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	inject(t, w, config(w))
	old, root := newPair(t, nil), newPair(t, nil)
	link, err := pki.NewLink(root.Leaf, old.Leaf, old.PrivateKey.(crypto.Signer), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ca := pki.EncodeCertificates(root.Leaf, old.Leaf, link)
	serving := newWebhook(t)
	serving.pair.Store(newPair(t, old))
	hook := serving.hook(w, "linked", "/linked")
	hook.Annotations = map[string]string{certmanagerv1.InjectCAFromSecretAnnotation: w.Namespace + "/linked"}
	w.Create(t, secretWith("linked", ca), hook)
	t.Cleanup(func() { _ = w.Client.Delete(context.Background(), hook) })
	rig.Eventually(t, "the bundle is what ca.crt is", func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(hook), hook); err != nil {
			return err.Error()
		}
		if got := hook.Webhooks[0].ClientConfig.CABundle; !bytes.Equal(got, ca) {
			return string(got)
		}
		return ""
	})
	admit := func(ctx context.Context) error {
		return w.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, GenerateName: "asks-", Labels: map[string]string{"asks": "linked"},
		}}, client.DryRunAll)
	}
	rig.Eventually(t, "a webhook with a certificate of the old root is asked", func(ctx context.Context) string {
		if err := admit(ctx); err != nil {
			return err.Error()
		}
		if _, asked := serving.paths.Load("/linked"); !asked {
			return "it is not asked yet"
		}
		return ""
	})
	serving.pair.Store(newPair(t, root))
	if err := admit(t.Context()); err != nil {
		t.Errorf("with a certificate of the new root: %v", err)
	}
	serving.pair.Store(newPair(t, newPair(t, nil)))
	if admit(t.Context()) == nil {
		t.Error("a webhook with a certificate of nobody is asked")
	}
}
