package trustmanager_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/e2e/beside"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

const (
	module  = "github.com/cert-manager/trust-manager"
	account = "trust-manager"
)

// newWorld runs the controllers, the CA injector, and trust-manager with the rights of its chart and with a serving
// certificate that the controllers have issued.
func newWorld(t *testing.T) *rig.World {
	t.Helper()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	beside.Injector(t, w)
	beside.Definitions(t, w.Admin, "trust-manager.mod", module, "deploy/crds")
	webhook := rig.FreeAddress(t)
	beside.Apply(t, w.Client, "testdata/trust-manager.yaml", w.Namespace, beside.WebhookPort(t, webhook.Port()))
	pair := mount(t, w, "trust-manager-tls")
	beside.Start(t, "CHANCERY_TRUST_MANAGER_BIN",
		rig.As(w.Admin, "system:serviceaccount:"+w.Namespace+":"+account, "system:serviceaccounts"),
		"--leader-elect=false", "--trust-namespace", w.Namespace, "--webhook-certificate-dir", pair,
		"--webhook-host", webhook.Addr().String(), "--webhook-port", strconv.Itoa(int(webhook.Port())),
		"--metrics-port", strconv.Itoa(int(rig.FreeAddress(t).Port())),
		"--readiness-probe-port", strconv.Itoa(int(rig.FreeAddress(t).Port())))
	return w
}

// mount writes a Secret into a directory once the Secret is there, as a kubelet does.
func mount(t *testing.T, w *rig.World, name string) string {
	t.Helper()
	dir := t.TempDir()
	rig.Eventually(t, "the Secret "+name+" is there", func(ctx context.Context) string {
		secret := &corev1.Secret{}
		if err := w.Get(ctx, name, secret); err != nil {
			return err.Error()
		}
		for key, value := range secret.Data {
			if err := os.WriteFile(filepath.Join(dir, key), value, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return ""
	})
	return dir
}

// TestBundleFollowsTheCA: the certificate of a CA reaches the ConfigMap of a Bundle, and so does the next one after the
// CA has been issued again. Where the CA hands on roots, the older ones reach the ConfigMap, too.
func TestBundleFollowsTheCA(t *testing.T) {
	w := newWorld(t)
	beside.AwaitRefusal(t, w.Client, "trust.cert-manager.io", bundleWithoutKey(w.ClusterName("refused")))
	beside.Apply(t, w.Client, "testdata/bundle.yaml", w.Namespace, nil)
	first := awaitBundle(t, w, nil, 1)

	renew(t, w)
	second := awaitBundle(t, w, first, 1)

	w.Create(t, &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Name: "root", Annotations: map[string]string{certmanagerv1.DeliverRootsAnnotation: certmanagerv1.LabelTrue}},
		Spec:       certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}},
	})
	rig.Eventually(t, "the issuer knows its CA", func(ctx context.Context) string {
		issuer := &certmanagerv1.Issuer{}
		if err := w.Get(ctx, "root", issuer); err != nil {
			return err.Error()
		}
		if issuer.Status.CA == nil {
			return "it does not"
		}
		return ""
	})
	renew(t, w)
	awaitBundle(t, w, second, 3) // both roots, and a link
}

// renew asks for a new certificate of the CA, once the one before is finished.
func renew(t *testing.T, w *rig.World) {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	rig.Eventually(t, "nothing is issued", func(ctx context.Context) string {
		if err := w.Get(ctx, "root", crt); err != nil {
			return err.Error()
		}
		if certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing) != nil {
			return "Issuing is there"
		}
		return ""
	})
	renewed := crt.DeepCopy()
	renewed.Status.Conditions = append(renewed.Status.Conditions, certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered", Message: "as cmctl renew does",
	})
	if err := w.Client.Status().Patch(t.Context(), renewed, client.MergeFrom(crt)); err != nil {
		t.Fatal(err)
	}
}

// bundleWithoutKey is a Bundle that does not say which entry of a Secret holds the certificates.
func bundleWithoutKey(name string) *unstructured.Unstructured {
	b := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"sources": []any{map[string]any{"secret": map[string]any{"name": "root"}}},
		"target":  map[string]any{"configMap": map[string]any{"key": "ca.pem"}},
	}}}
	b.SetGroupVersionKind(schema.GroupVersionKind{Group: "trust.cert-manager.io", Version: "v1alpha1", Kind: "Bundle"})
	b.SetName(name)
	return b
}

// awaitBundle waits until the ConfigMap holds all that ca.crt of the CA has. These are so many certificates: first that
// of the CA, which is not the one before. If there are more, the one before comes next.
func awaitBundle(t *testing.T, w *rig.World, before []byte, many int) (found []byte) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("the Bundle holds %d certificates", many), func(ctx context.Context) string {
		secret, bundle := &corev1.Secret{}, &corev1.ConfigMap{}
		if err := errors.Join(w.Get(ctx, "root", secret), w.Get(ctx, w.Namespace, bundle)); err != nil {
			return err.Error()
		}
		want, err := pki.DecodeBundle(secret.Data["ca.crt"])
		got, unread := pki.DecodeBundle([]byte(bundle.Data["ca.pem"]))
		if err := errors.Join(err, unread); err != nil {
			return err.Error()
		}
		found = want[0].Raw
		missing := func(c *x509.Certificate) bool { return !slices.ContainsFunc(got, c.Equal) }
		switch {
		case len(want) != many || bytes.Equal(found, before) || many > 1 && !bytes.Equal(want[1].Raw, before):
			return fmt.Sprintf("ca.crt has %d certificates", len(want))
		case len(got) != many || slices.ContainsFunc(want, missing):
			return fmt.Sprintf("%d certificates", len(got))
		default:
			return ""
		}
	})
	return found
}
