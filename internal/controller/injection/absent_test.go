package injection_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/fakeclock"
)

// TestWithoutCertificates: where the API server does not serve Certificates, the injector works with other sources,
// says what is missing, and takes Certificates up when they are there, without a restart.
func TestWithoutCertificates(t *testing.T) {
	t.Parallel()
	w := rig.NewWorldOn(t, rig.OwnCluster(t))
	crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
	crd.SetName("certificates.cert-manager.io")
	if err := w.Client.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	certificate := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "ca"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "ca", CommonName: "ca", IssuerRef: cmmeta.IssuerReference{Name: "none"},
	}}
	rig.Eventually(t, "the definition is gone", func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); !apierrors.IsNotFound(err) {
			return "it is there"
		}
		if err := w.Client.List(ctx, &certmanagerv1.CertificateList{}); err == nil {
			return "Certificates are served"
		}
		return ""
	})
	ca, kinds := newCA(t, "ca", 1000*time.Hour), injectables()
	w.Create(t, secretWith("ca", ca))
	direct := kinds[0].new(t, w, certmanagerv1.InjectCAFromSecretAnnotation+": "+w.Namespace+"/ca")
	by := kinds[1].new(t, w, certmanagerv1.InjectCAFromAnnotation+": "+w.Namespace+"/ca")
	w.Create(t, direct, by)
	cfg := config(w)
	cfg.Clock = fakeclock.New(t.Context())
	inject(t, w, cfg)
	kinds[0].await(t, w, direct, ca)
	awaitEvent(t, w, by, "Warning", "CANotAvailable", "does not serve its kind", "chancery install")
	if err := install.Install(t.Context(), w.Admin, func(string) {}); err != nil {
		t.Fatal(err)
	}
	w.Create(t, certificate)
	kinds[1].await(t, w, by, ca)
}
