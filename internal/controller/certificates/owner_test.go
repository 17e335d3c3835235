package certificates_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// ownedBy lists the Secrets and CertificateRequests that a Certificate owns.
func ownedBy(ctx context.Context, w *rig.World, crt *certmanagerv1.Certificate) (owned []client.Object, err error) {
	secrets, requests := &corev1.SecretList{}, &certmanagerv1.CertificateRequestList{}
	if err := errors.Join(w.Client.List(ctx, secrets, client.InNamespace(crt.Namespace)), w.Client.List(ctx, requests, client.InNamespace(crt.Namespace))); err != nil {
		return nil, err
	}
	for i := range secrets.Items {
		owned = append(owned, &secrets.Items[i])
	}
	for i := range requests.Items {
		owned = append(owned, &requests.Items[i])
	}
	return slices.DeleteFunc(owned, func(o client.Object) bool { return !metav1.IsControlledBy(o, crt) }), nil
}

// TestForegroundDeletion deletes a Certificate such that what it owns goes first: none of that is made again while the
// Certificate is still there. Only a pass that sees what is gone before it sees the deletion makes something: that is
// owned, and goes with the Certificate at the latest. (If the garbage collector finds nothing to delete before that, it
// leaves the rest until the Certificate is gone.)
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
	first, err := ownedBy(t.Context(), w, crt)
	if err != nil || len(first) != 2 {
		t.Fatalf("it owns %v: %v", first, err)
	}
	if err := w.Client.Delete(t.Context(), crt, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	for _, o := range first {
		uid := o.GetUID()
		rig.Eventually(t, fmt.Sprintf("%T %s is gone", o, o.GetName()), func(ctx context.Context) string {
			err := w.Get(ctx, o.GetName(), o)
			return wants(apierrors.IsNotFound(err) || err == nil && o.GetUID() != uid, err)
		})
	}
	w.Create(t, newCertificate(w, "another", "ca"))
	awaitReady(t, w, "another") // the deletion has been seen
	early, err := ownedBy(t.Context(), w, crt)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range early {
		if err := w.Client.Delete(t.Context(), o); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	w.Create(t, newCertificate(w, "third", "ca"))
	awaitReady(t, w, "third") // meanwhile: whoever makes them again would have
	if again, err := ownedBy(t.Context(), w, crt); err != nil || len(again) > 0 {
		t.Errorf("made again: %v, %v", again, err)
	}
	if err := w.Get(t.Context(), "web", crt); err != nil {
		t.Fatalf("the Certificate went too early, the test shows nothing: %v", err)
	}
	amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Finalizers = nil })
	rig.Eventually(t, "the Certificate is gone", isGone(w, "web", &certmanagerv1.Certificate{}))
}
