package certificates_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
)

// slowSecrets holds back what the watches of Secrets say, while it is locked.
type slowSecrets struct {
	sync.RWMutex

	next http.RoundTripper
}

func (s *slowSecrets) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/secrets") && r.URL.Query().Get("watch") != "" {
		answer.Body = slowBody{answer.Body, s}
	}
	return answer, err
}

type slowBody struct {
	io.ReadCloser

	of *slowSecrets
}

func (b slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.of.RLock() // what was read while it is locked waits
	defer b.of.RUnlock()
	return n, err
}

// TestRestore: a backup brings a Secret, and then its Certificate. The certificate stays what it was, even if the
// controller sees the Certificate first, and however the Secret was labelled.
func TestRestore(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]string{
		"with our label": {certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue}, "without": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restoreInOrder(t, labels)
		})
	}
}

func restoreInOrder(t *testing.T, labels map[string]string) {
	t.Helper()
	w := rig.NewWorld(t)
	stop := w.Run(t, w.Config())
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"))
	crt := awaitReady(t, w, "web")
	stop()
	before := secretOf(t, w, "web")
	for _, o := range []client.Object{crt, before.DeepCopy()} {
		if err := w.Client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	secrets := &slowSecrets{}
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { secrets.next = next; return secrets })
	w.RunAs(t, w.Config(), rc)
	w.Create(t, newCertificate(w, "first", "ca"))
	awaitReady(t, w, "first") // and so everything is watched

	secrets.Lock()
	defer secrets.Unlock()
	w.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: maps.Clone(labels), Annotations: before.Annotations}, Type: before.Type, Data: before.Data,
	}, newCertificate(w, "web", "ca"))
	awaitReady(t, w, "web")
	if after := secretOf(t, w, "web"); !bytes.Equal(after.Data["tls.crt"], before.Data["tls.crt"]) || !bytes.Equal(after.Data["tls.key"], before.Data["tls.key"]) {
		t.Error("another certificate was issued")
	}
	rig.Eventually(t, "no request is left, also of the Certificate before", func(ctx context.Context) string {
		requests := &certmanagerv1.CertificateRequestList{}
		if err := w.Client.List(ctx, requests, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		for _, r := range requests.Items {
			if r.Annotations[certmanagerv1.CertificateNameAnnotation] == "web" {
				return r.Name
			}
		}
		return ""
	})
}
