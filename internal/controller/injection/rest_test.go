package injection_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
)

// requests are those for single objects, by method.
type requests struct {
	mu   sync.Mutex
	sent []string
}

// noted is an http.RoundTripper.
type noted func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (n noted) RoundTrip(r *http.Request) (*http.Response, error) { return n(r) }

func (l *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return noted(func(r *http.Request) (*http.Response, error) {
		if _, object, named := strings.Cut(r.URL.Path, "configurations/"); named && object != "" || strings.HasSuffix(r.URL.Path, "/secrets/ca") {
			l.mu.Lock()
			l.sent = append(l.sent, r.Method)
			l.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

// take returns what was sent since the last time.
func (l *requests) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent := strings.Join(l.sent, " ")
	l.sent = nil
	return sent
}

// TestRestCostsNoRequests: an injectable that is in order is not read again when its metadata changes. A bundle that
// somebody has removed is put back by one read and one write, without another look at the Secret.
func TestRestCostsNoRequests(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	i, ca := injectables()[0], newCA(t, "ca", time.Hour)
	w.Create(t, secretWith("ca", ca))
	rc, sent := injectorOf(t, w), &requests{}
	rc.Wrap(sent.wrap)
	u := i.new(t, w, certmanagerv1.InjectCAFromSecretAnnotation+": "+w.Namespace+"/ca")
	create(t, w, u)
	injectAs(t, w, config(w), rc)
	i.await(t, w, u, ca)
	if got := sent.take(); got != "GET GET PATCH" {
		t.Errorf("the first injection takes %q, want a look at the Secret, one at the injectable, and a write", got)
	}
	for _, patch := range []string{
		`[{"op":"add","path":"/metadata/annotations/unrelated","value":"x"}]`,
		`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`,
	} {
		if err := w.Client.Patch(t.Context(), u, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	i.await(t, w, u, ca)
	if got := sent.take(); got != "GET PATCH" {
		t.Errorf("a bundle that was removed takes %q, want one read and one write", got)
	}
}
