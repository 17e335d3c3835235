package rig_test

import (
	"os"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// TestSparesAreReset: what a test leaves on a spare API server is gone for the next one, finalizers and definitions
// included, and what it has changed or deleted is as before.
func TestSparesAreReset(t *testing.T) {
	slow.Test(t, slow.Builds)
	if testing.Short() || os.Getenv(rig.Spares) == "" {
		t.Skip("SKIPPED: there are no spare API servers, as in make test")
	}
	dir := t.TempDir() // with nobody else's
	if err := syscall.Mkfifo(dir+"/alive", 0o600); err != nil {
		t.Fatal(err)
	}
	alive, err := os.OpenFile(dir+"/alive", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = alive.Close() }()
	t.Setenv(rig.Spares, dir)
	host := func(use func(t *testing.T, w *rig.World)) (host string) {
		t.Run("one test", func(t *testing.T) {
			w := rig.NewWorldOn(t, rig.OwnCluster(t))
			host = w.Admin.Host
			use(t, w)
		})
		return host
	}
	crt := func(w *rig.World) *certmanagerv1.Certificate {
		return &certmanagerv1.Certificate{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "left", Finalizers: []string{"example.com/stays"}},
			Spec:       certmanagerv1.CertificateSpec{SecretName: "left", DNSNames: []string{"a.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "none"}},
		}
	}
	viewers := func() *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "system:public-info-viewer"}}
	}
	first := host(func(t *testing.T, w *rig.World) {
		t.Helper()
		w.Create(t, crt(w))
	})
	second := host(func(t *testing.T, w *rig.World) {
		t.Helper()
		left := &certmanagerv1.CertificateList{}
		if err := w.Client.List(t.Context(), left); err != nil || len(left.Items) != 0 {
			t.Errorf("%d Certificates are left, error %v", len(left.Items), err)
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"changed":"true"}}}`))
		if err := w.Client.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-public"}}, patch); err != nil {
			t.Fatal(err)
		}
		if err := w.Client.Delete(t.Context(), viewers()); err != nil {
			t.Fatal(err)
		}
	})
	third := host(func(t *testing.T, w *rig.World) {
		t.Helper()
		public := &corev1.Namespace{}
		if err := w.Client.Get(t.Context(), client.ObjectKey{Name: "kube-public"}, public); err != nil || public.Labels["changed"] != "" {
			t.Errorf("a Namespace that was changed has the labels %v, error %v", public.Labels, err)
		}
		if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(viewers()), viewers()); err != nil {
			t.Errorf("what was deleted: %v", err)
		}
	})
	if first != second || second != third {
		t.Errorf("the API servers are %s, %s and %s: want the first each time", first, second, third)
	}
	var bare []string
	for range 2 {
		t.Run("with nothing installed", func(t *testing.T) {
			rc := rig.BareCluster(t)
			bare = append(bare, rc.Host)
			c, err := client.New(rc, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			definitions := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinitionList"}}
			if err := c.List(t.Context(), definitions); err != nil || len(definitions.Items) != 0 {
				t.Errorf("%d definitions are left, error %v", len(definitions.Items), err)
			}
			if err := install.Install(t.Context(), rc, func(string) {}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if bare[0] != bare[1] || bare[0] == third {
		t.Errorf("the API servers with nothing installed are %v, the other one is %s", bare, third)
	}
}
