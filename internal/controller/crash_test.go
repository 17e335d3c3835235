package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// mortal is the connection of a process that dies at its nth write to the API
// server: right before it is sent, or right after it has been carried out.
type mortal struct {
	next   http.RoundTripper
	at     int32
	before bool
	writes *atomic.Int32
	dead   *atomic.Bool
	die    func()
	// only, if set, says of which paths writes are counted.
	only func(path string) bool
}

var errDied = errors.New("the process has died")

func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.dead.Load() {
		return nil, errDied
	}
	counts := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") && (m.only == nil || m.only(r.URL.Path))
	if !counts || m.writes.Add(1) != m.at {
		return m.next.RoundTrip(r)
	}
	if m.before {
		m.dead.Store(true)
		m.die()
		return nil, errDied
	}
	response, err := m.next.RoundTrip(r)
	m.dead.Store(true)
	m.die()
	if err == nil {
		_ = response.Body.Close()
	}
	return nil, errDied
}

// runUntilWrite runs controllers that die at that write; false if they came to rest
// without it.
func runUntilWrite(t *testing.T, w *rig.World, at int32, before bool, atRest func(context.Context) bool) bool {
	t.Helper()
	return runMortal(t, w, w.Config(), mortal{at: at, before: before}, atRest)
}

func runMortal(t *testing.T, w *rig.World, cfg app.Config, m mortal, atRest func(context.Context) bool) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m.writes, m.dead, m.die = &atomic.Int32{}, &atomic.Bool{}, cancel
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { m.next = next; return m })
	runToDeath(ctx, t, cfg, rc, atRest, cancel)
	return m.dead.Load()
}

func runToDeath(ctx context.Context, t *testing.T, cfg app.Config, rc *rest.Config, atRest func(context.Context) bool, kill func()) {
	t.Helper()
	dead := rig.RunToDeath(ctx, t, kill, cfg, rc)
	rig.Eventually(t, "the controllers die or come to rest", func(context.Context) string {
		if ctx.Err() != nil || atRest(t.Context()) {
			return ""
		}
		return "they work on"
	})
	dead()
}

// TestCrashAtEveryWrite kills the controllers right before and right after each
// write of an issuance; what starts after them finishes it, with one request and
// one certificate.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	const most = 8 // more writes than an issuance by a CA has
	for at := int32(1); at <= most; at++ {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("write %d, before %v", at, before), func(t *testing.T) {
				t.Parallel()
				crashAt(t, at, before)
			})
		}
	}
}

func crashAt(t *testing.T, at int32, before bool) {
	t.Helper()
	w := rig.NewWorld(t)
	stop := w.Run(t, w.Config())
	withCA(t, w)
	awaitReady(t, w, "root")
	rig.Eventually(t, "the CA is ready", func(ctx context.Context) string {
		issuer := &certmanagerv1.ClusterIssuer{}
		if err := w.Get(ctx, w.ClusterName("ca"), issuer); err != nil || len(issuer.Status.Conditions) == 0 || issuer.Status.Conditions[0].Status != "True" {
			return fmt.Sprintf("%+v, %v", issuer.Status, err)
		}
		return ""
	})
	stop()
	w.Create(t, certificate(w, "web", "ca", "web.example.com"))
	settled := func(ctx context.Context) bool {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, "web", crt); err != nil || crt.Status.Revision == nil {
			return false
		}
		keys := &corev1.SecretList{}
		err := w.Client.List(ctx, keys, client.InNamespace(w.Namespace), client.HasLabels{certmanagerv1.NextPrivateKeyLabel})
		return err == nil && len(keys.Items) == 0
	}
	died := runUntilWrite(t, w, at, before, settled)
	if !died && at <= 7 {
		t.Fatalf("an issuance has fewer writes than %d: the crashes do not hit it", at)
	}
	first := &certmanagerv1.CertificateRequest{}
	known := w.Get(t.Context(), "web-1", first) == nil
	w.Run(t, w.Config())
	crt := awaitReady(t, w, "web")
	if *crt.Status.Revision != 1 {
		t.Errorf("revision %d after one issuance", *crt.Status.Revision)
	}
	request := &certmanagerv1.CertificateRequest{}
	if err := w.Get(t.Context(), "web-1", request); err != nil {
		t.Fatal(err)
	}
	if known && request.UID != first.UID {
		t.Error("a second request was made")
	}
	_, leaf := verifySecret(t, w, "web")
	if issued, err := pki.DecodeChain(request.Status.Certificate); err != nil || !issued[0].Equal(leaf) {
		t.Errorf("the Secret holds another certificate than the request: %v", err)
	}
}
