package certificates_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
)

// isGone says why an object of the world is still there.
func isGone(w *rig.World, name string, o client.Object) func(context.Context) string {
	return func(ctx context.Context) string {
		err := w.Get(ctx, name, o)
		return wants(apierrors.IsNotFound(err), err)
	}
}

// TestOwnerReferences turns the setting on and off: Secrets that are there follow it,
// with the certificate they have.
func TestOwnerReferences(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	cfg := w.Config()
	stop := w.Run(t, cfg)
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"))
	crt := awaitReady(t, w, "web")
	for _, on := range []bool{true, false} {
		stop()
		cfg.EnableCertificateOwnerRef = on
		stop = w.Run(t, cfg)
		eventuallySecret(t, w, "web", "the Secret is owned as configured", func(s *corev1.Secret) string {
			return wants(metav1.IsControlledBy(s, crt) == on && (on || len(s.OwnerReferences) == 0), s.OwnerReferences)
		})
	}
	if crt = awaitReady(t, w, "web"); *crt.Status.Revision != 1 {
		t.Errorf("revision %d: it was issued again", *crt.Status.Revision)
	}
}

// TestForegroundDeletion deletes a Certificate such that what it owns goes first: none of that is made again while the
// Certificate is still there. A pass may see what is gone before it sees the deletion: what it makes is owned, and goes
// as well.
func TestForegroundDeletion(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	cfg := w.Config()
	cfg.EnableCertificateOwnerRef = true
	w.Run(t, cfg)
	withCA(t, w)
	crt := newCertificate(w, "web", "ca")
	crt.Finalizers = []string{"example.com/not-yet"} // keeps it there after all else is gone
	w.Create(t, crt)
	awaitReady(t, w, "web")
	noKeysLeft(t, w)
	if err := w.Client.Delete(t.Context(), crt, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	owned := map[string]client.Object{"web": &corev1.Secret{}, "web-1": &certmanagerv1.CertificateRequest{}, "web-2": &certmanagerv1.CertificateRequest{}}
	rig.Eventually(t, "the Secret is gone", isGone(w, "web", owned["web"]))
	rig.Eventually(t, "the request is gone", isGone(w, "web-1", owned["web-1"]))
	w.Create(t, newCertificate(w, "another", "ca"))
	awaitReady(t, w, "another") // the deletion has been seen
	for name, o := range owned {
		rig.Eventually(t, fmt.Sprintf("%T %s is gone", o, name), isGone(w, name, o))
	}
	w.Create(t, newCertificate(w, "third", "ca"))
	awaitReady(t, w, "third") // meanwhile: whoever makes them again would have
	for name, o := range owned {
		if why := isGone(w, name, o)(t.Context()); why != "" {
			t.Errorf("%T %s was made again: %s", o, name, why)
		}
	}
	if err := w.Get(t.Context(), "web", crt); err != nil {
		t.Fatalf("the Certificate went too early, the test shows nothing: %v", err)
	}
	amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Finalizers = nil })
	rig.Eventually(t, "the Certificate is gone", isGone(w, "web", &certmanagerv1.Certificate{}))
}
