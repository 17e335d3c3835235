package stories_test

import (
	"context"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// mortal is the connection of a process that dies at its nth write to the API
// server: right before it is sent, or right after it has been carried out.
type mortal struct {
	next   http.RoundTripper
	at     int32
	before bool
	writes *atomic.Int32
	open   *atomic.Int32           // requests whose answers have not been read to their end
	last   *atomic.Pointer[string] // the write that it died at
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
	aside := strings.Contains(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") // which writes nothing
	counts := r.Method != http.MethodGet && !aside && (m.only == nil || m.only(r.URL.Path))
	if !counts {
		return m.next.RoundTrip(r)
	}
	if m.writes.Add(1) != m.at {
		m.open.Add(1)
		response, err := m.next.RoundTrip(r)
		if err != nil {
			m.open.Add(-1)
			return nil, err
		}
		response.Body = &closing{response.Body, sync.OnceFunc(func() { m.open.Add(-1) })}
		return response, nil
	}
	last := r.Method + " " + r.URL.Path
	m.last.Store(&last)
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

// closing is a body that tells when it is closed.
type closing struct {
	io.ReadCloser
	closed func()
}

func (c *closing) Close() error {
	defer c.closed()
	return c.ReadCloser.Close()
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
	m.writes, m.open, m.last, m.dead, m.die = &atomic.Int32{}, &atomic.Int32{}, &atomic.Pointer[string]{}, &atomic.Bool{}, cancel
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { m.next = next; return m })
	// What a write has changed is seen before the controllers have read the answer to it, and a stop would have them
	// write it again: they are at rest a moment after they have read it.
	rest := 0
	answered := func(ctx context.Context) bool {
		rest++
		if m.open.Load() > 0 || !atRest(ctx) {
			rest = 0
		}
		return rest > 1
	}
	runToDeath(ctx, t, cfg, rc, answered, cancel)
	if last := m.last.Load(); last != nil {
		t.Logf("the controllers died at %s", *last)
	}
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

// way is how a Certificate is issued, and how many writes that takes.
type way struct {
	name, issuer string
	// long has the Certificate take the long way all the same.
	long   bool
	writes int32
	// again is how many requests a crash may cost.
	again int
}

// TestCrashAtEveryWrite kills the controllers right before and right after each write of an issuance, and lets others
// finish it. In the long way the private key is in a Secret before anything else: no crash costs a request. In the
// short way the key may die with the process: a crash costs one request at most. SelfSigned needs the Secret in any
// case.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, how := range []way{
		{name: "long", issuer: "ca", long: true, writes: 7},
		{name: "short", issuer: "ca", writes: 4, again: 1},
		{name: "short with a key Secret", issuer: "selfsigned", writes: 6},
	} {
		for at := int32(1); at <= how.writes+1; at++ { // the last is one that there is not
			for _, before := range []bool{true, false} {
				if !slow.Runs(slow.Crash) && !selected(at, before) {
					continue
				}
				t.Run(fmt.Sprintf("%s, write %d, before %v", how.name, at, before), func(t *testing.T) {
					t.Parallel()
					crashAt(t, how, at, before)
				})
			}
		}
	}
}

// selected is true for the rows that every run has time for: each write, right before or right after it in turn.
func selected(at int32, before bool) bool { return before == (at%2 == 0) }

func crashAt(t *testing.T, how way, at int32, before bool) {
	t.Helper()
	w := readyCA(t)
	requests := w.Watch(t, &certmanagerv1.CertificateRequestList{})
	crt := certificate(w, "web", how.issuer, "web.example.com")
	if how.long {
		crt.Annotations = map[string]string{certmanagerv1.IssueTemporaryAnnotation: "true"}
	}
	w.Create(t, crt)
	settled := func(ctx context.Context) bool {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, "web", crt); err != nil || crt.Status.Revision == nil {
			return false
		}
		keys := &corev1.SecretList{}
		err := w.Client.List(ctx, keys, client.InNamespace(w.Namespace), client.HasLabels{certmanagerv1.NextPrivateKeyLabel})
		return err == nil && len(keys.Items) == 0
	}
	if died := runUntilWrite(t, w, at, before, settled); died != (at <= how.writes) {
		t.Fatalf("an issuance has %d writes; it is %v that the controllers died at number %d", how.writes, died, at)
	}
	w.Run(t, w.Config())
	crt = awaitReady(t, w, "web")
	if *crt.Status.Revision != 1 {
		t.Errorf("revision %d after one issuance", *crt.Status.Revision)
	}
	request := &certmanagerv1.CertificateRequest{}
	if err := w.Get(t.Context(), "web-1", request); err != nil {
		t.Fatal(err)
	}
	if made := requestsUntil(t, requests, request.Name, request.UID); made > 1+how.again {
		t.Errorf("%d requests were made", made)
	}
	_, leaf := verifySecret(t, w, "web")
	if issued, err := pki.DecodeChain(request.Status.Certificate); err != nil || !issued[0].Equal(leaf) {
		t.Errorf("the Secret holds another certificate than the request: %v", err)
	}
	rig.Eventually(t, "no next private key is left", func(ctx context.Context) string {
		if settled(ctx) {
			return ""
		}
		return "there is one"
	})
}

// readyCA returns a world with a CA that is ready, whose controllers have stopped.
func readyCA(t *testing.T) *rig.World {
	t.Helper()
	w := rig.NewWorld(t)
	stop := w.Run(t, w.Config())
	withCA(t, w)
	awaitReady(t, w, "root")
	awaitIssuer(t, w, "selfsigned")
	awaitIssuer(t, w, "ca")
	stop()
	return w
}

func awaitIssuer(t *testing.T, w *rig.World, name string) {
	t.Helper()
	rig.Eventually(t, name+" is ready", func(ctx context.Context) string {
		issuer := &certmanagerv1.ClusterIssuer{}
		if err := w.Get(ctx, w.ClusterName(name), issuer); err != nil || len(issuer.Status.Conditions) == 0 || issuer.Status.Conditions[0].Status != "True" {
			return fmt.Sprintf("%+v, %v", issuer.Status, err)
		}
		return ""
	})
}

// requestsUntil counts how many requests of that name were made, the one of that UID the last.
func requestsUntil(t *testing.T, events <-chan watch.Event, name string, last types.UID) int {
	t.Helper()
	deadline := time.After(rig.Patience)
	for made := 0; ; {
		select {
		case e := <-events:
			o, ok := e.Object.(client.Object)
			if ok && o.GetName() == name && e.Type == watch.Added {
				made++
			}
			if ok && o.GetUID() == last {
				return made
			}
		case <-deadline:
			t.Fatalf("the watch has not told of request %s", last)
		}
	}
}

// TestCrashAtEveryWriteOfAFailure is the same with a CA that may not sign the name: the failure counts once, and no
// request is made before the back-off has passed.
func TestCrashAtEveryWriteOfAFailure(t *testing.T) {
	t.Parallel()
	const writes = 3 // the request, its status, the status
	for at := int32(1); at <= writes+1; at++ {
		for _, before := range []bool{true, false} {
			if !slow.Runs(slow.Crash) && !selected(at, before) {
				continue
			}
			t.Run(fmt.Sprintf("write %d, before %v", at, before), func(t *testing.T) {
				t.Parallel()
				crashAtFailure(t, at, before, at <= writes)
			})
		}
	}
}

func crashAtFailure(t *testing.T, at int32, before, dies bool) {
	t.Helper()
	w := readyCA(t)
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	broken := &corev1.Secret{ObjectMeta: named("broken"), Data: map[string][]byte{"tls.key": text, "tls.crt": authorityFor(t, key, "example.org")}}
	w.Create(t, broken, clusterIssuer(w, "broken", certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "broken"}}))
	stop := w.Run(t, w.Config())
	awaitIssuer(t, w, "broken")
	stop()
	requests := w.Watch(t, &certmanagerv1.CertificateRequestList{})
	w.Create(t, certificate(w, "web", "broken", "web.example.com"))
	crt := &certmanagerv1.Certificate{}
	failed := func(ctx context.Context) bool {
		return w.Get(ctx, "web", crt) == nil && crt.Status.LastFailureTime != nil
	}
	if died := runUntilWrite(t, w, at, before, failed); died != dies {
		t.Fatalf("the controllers died at write %d: %v", at, died)
	}
	w.Run(t, w.Config())
	rig.Eventually(t, "the failure is said", func(ctx context.Context) string { return map[bool]string{false: "it is not"}[failed(ctx)] })
	w.Create(t, certificate(w, "another", "ca", "another.example.com"))
	awaitReady(t, w, "another") // meanwhile: whoever retries would have
	request := &certmanagerv1.CertificateRequest{}
	if err := w.Get(t.Context(), "web-1", request); err != nil {
		t.Fatal(err)
	}
	if made := requestsUntil(t, requests, request.Name, request.UID); made > 2 {
		t.Errorf("%d requests were made", made)
	}
	if err := w.Get(t.Context(), "web", crt); err != nil || *crt.Status.FailedIssuanceAttempts != 1 {
		t.Errorf("%+v, %v", crt.Status, err)
	}
}

// authorityFor returns a certificate that makes a key the CA "stranger", which signs for these domains only; for all
// without any.
func authorityFor(t *testing.T, key crypto.Signer, domains ...string) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stranger"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, PublicKey: key.Public(), PermittedDNSDomains: domains,
	}
	ca, err := pki.Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pki.EncodeCertificates(ca)
}

// deaf is a connection that does not let an approval through.
type deaf struct{ next http.RoundTripper }

func (d deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/certificaterequests/") {
		return nil, errDied
	}
	return d.next.RoundTrip(r)
}

// TestWaitOnTheShortWay has controllers make a request that nobody is able to sign. When they are stopped, and when the
// request has waited for too long, the private key gets a Secret, and the Certificate says that it is being issued
// since the request was made. Whoever can sign needs no other request.
func TestWaitOnTheShortWay(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"until a stop": 0, "for too long": 11 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waitOnTheShortWay(t, ahead)
		})
	}
}

func waitOnTheShortWay(t *testing.T, ahead time.Duration) {
	t.Helper()
	w := readyCA(t)
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return deaf{next} })
	cfg := w.Config()
	cfg.Now = func() time.Time { return time.Now().Add(ahead) }
	stop := w.RunAs(t, cfg, rc)
	w.Create(t, certificate(w, "web", "ca", "web.example.com"))
	request, crt := &certmanagerv1.CertificateRequest{}, &certmanagerv1.Certificate{}
	rig.Eventually(t, "the request is made", func(ctx context.Context) string {
		if err := w.Get(ctx, "web-1", request); err != nil {
			return err.Error()
		}
		return ""
	})
	issuing := condition(w, "web", certmanagerv1.CertificateConditionIssuing)
	if ahead > 0 {
		rig.Eventually(t, "the Certificate says what it waits for", func(ctx context.Context) string {
			if c := issuing(ctx); c == nil || !strings.Contains(c.Message, "nobody has approved or denied the request") {
				return fmt.Sprintf("%+v", c)
			}
			return ""
		})
	}
	stop()
	if c := issuing(t.Context()); c == nil || c.Status != "True" || c.Reason != "DoesNotExist" || !c.LastTransitionTime.Equal(&request.CreationTimestamp) {
		t.Errorf("the condition Issuing is %+v, the request was made at %s", c, request.CreationTimestamp)
	}
	if err := w.Get(t.Context(), "web", crt); err != nil {
		t.Fatal(err)
	}
	if name := crt.Status.NextPrivateKeySecretName; name == nil {
		t.Error("no Secret with the next private key is named")
	} else if err := w.Get(t.Context(), *name, &corev1.Secret{}); err != nil {
		t.Error(err)
	}
	w.Run(t, w.Config())
	awaitReady(t, w, "web")
	after := &certmanagerv1.CertificateRequest{}
	if err := w.Get(t.Context(), "web-1", after); err != nil || after.UID != request.UID {
		t.Errorf("another request was made: %v", err)
	}
}
