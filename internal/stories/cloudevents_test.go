package stories_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/cloudevents"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/fakeclock"
)

// listener is a receiver of CloudEvents that keeps what it has taken.
type listener struct {
	mu sync.Mutex
	// refuse is how many events more are refused; a negative number refuses all.
	refuse int
	ids    []string
	told   []string // the end of the type, name and revision
	bodies []string
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e struct {
		ID, Type string
		Data     struct {
			Name     string
			Revision int
		}
	}
	var body json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || json.Unmarshal(body, &e) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != 0 {
		l.refuse--
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	l.ids, l.bodies = append(l.ids, e.ID), append(l.bodies, string(body))
	l.told = append(l.told, fmt.Sprintf("%s %s %d", e.Type[strings.LastIndex(e.Type, ".")+1:], e.Data.Name, e.Data.Revision))
}

func (l *listener) await(t *testing.T, what ...string) {
	t.Helper()
	rig.Eventually(t, "the receiver is told", func(context.Context) string {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, w := range what {
			if !slices.Contains(l.told, w) {
				return fmt.Sprintf("%q is missing in %q", w, l.told)
			}
		}
		return ""
	})
}

func (l *listener) refuses(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = n
}

// listen starts a receiver, and has a configuration tell it.
func listen(t *testing.T, cfg *app.Config) *listener {
	t.Helper()
	l := &listener{}
	server := httptest.NewTLSServer(l)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	c := cloudevents.Config{URL: server.URL, KeyFile: filepath.Join(dir, "key"), CAFile: filepath.Join(dir, "ca"), Source: "urn:test"}
	for name, content := range map[string][]byte{
		c.KeyFile: []byte(strings.Repeat("k", 32)),
		c.CAFile:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg.CloudEvents = c
	return l
}

// TestCloudEvents: the receiver is told of each certificate, of each failure, and of nothing twice, although the
// receiver refuses the first tries. What the receiver does not take for a day is given up, and the Certificate says so
// until the next event.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	cfg := w.Config()
	cfg.Clock = fakeclock.New(t.Context())
	l := listen(t, &cfg)
	l.refuses(2)
	withCA(t, w)
	w.Run(t, cfg)
	w.Create(t, certificate(w, "web", "ca", "web.example.com"))
	awaitReady(t, w, "web")
	l.await(t, "issued root 1", "issued web 1")

	undelivered := condition(w, "web", certmanagerv1.CertificateConditionUndelivered)
	if c := undelivered(t.Context()); c != nil {
		t.Errorf("an event that was delivered has left %+v", c)
	}

	l.refuses(-1)
	renew(t, w, "web")
	rig.Eventually(t, "the event is given up", func(ctx context.Context) string {
		c := undelivered(ctx)
		if c == nil || c.Status != cmmeta.ConditionTrue || !strings.Contains(c.Message, "500 Internal Server Error") {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	l.refuses(0)
	renew(t, w, "web")
	l.await(t, "issued web 3")
	rig.Eventually(t, "the condition is over", func(ctx context.Context) string {
		if c := undelivered(ctx); c == nil || c.Status != cmmeta.ConditionFalse {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.told, "issued web 2") {
		t.Errorf("what was given up was told: %q", l.told)
	}
	slices.Sort(l.ids)
	if n := len(l.ids); n != len(slices.Compact(l.ids)) {
		t.Errorf("an event was told twice: %q", l.told)
	}
	for _, body := range l.bodies {
		if strings.Contains(body, "PRIVATE KEY") || strings.Contains(body, "tls.key") {
			t.Errorf("an event with a secret: %s", body)
		}
	}
}

// TestCloudEventOfFailure: an issuance that fails is told with its reason.
func TestCloudEventOfFailure(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	cfg := w.Config()
	cfg.AutoApprove = false
	l := listen(t, &cfg)
	w.Run(t, cfg)
	w.Create(t, clusterIssuer(w, "selfsigned", certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}),
		certificate(w, "web", "selfsigned", "web.example.com"))
	request := &certmanagerv1.CertificateRequest{}
	rig.Eventually(t, "a request is made", func(ctx context.Context) string {
		if err := w.Get(ctx, "web-1", request); err != nil {
			return err.Error()
		}
		return ""
	})
	deny(t, w, request)
	l.await(t, "failed web 0")
	if body := l.bodies[0]; !strings.Contains(body, `"reason":"Test"`) || !strings.Contains(body, `"attempts":1`) {
		t.Errorf("the event does not say why: %s", body)
	}
}

// TestCloudEventOfRevocation: a revocation is told with the serial number of the certificate that was revoked.
func TestCloudEventOfRevocation(t *testing.T) {
	t.Parallel()
	w := newRevokeWorld(t, nil)
	cfg := w.Config()
	l := listen(t, &cfg)
	w.Run(t, cfg)
	w.Create(t, w.issuer(), thrifty(w.World, "web"))
	awaitReady(t, w.World, "web")
	l.await(t, "issued web 1")
	serial := fmt.Sprintf("%x", leafOf(t.Context(), w.World, "web").SerialNumber.Bytes())
	annotate(t, w.World, "web", revokeFor(revocation.KeyCompromise))
	awaitRevoked(t, w.World, "web")
	l.await(t, "issued web 2", "revoked web 2")
	l.mu.Lock()
	defer l.mu.Unlock()
	body := l.bodies[slices.Index(l.told, "revoked web 2")]
	if !strings.Contains(body, `"serial":"`+serial+`"`) || !strings.Contains(body, `"reason":"keyCompromise"`) {
		t.Errorf("the event does not say what was revoked, serial %s: %s", serial, body)
	}
}

// TestCloudEventOfLateRenewal: a renewal whose issuer is broken is told as late, and the certificate that comes in the
// end as renewed late.
func TestCloudEventOfLateRenewal(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	cfg := w.Config()
	cfg.Clock = fakeclock.New(t.Context())
	l := listen(t, &cfg)
	withCA(t, w)
	w.Run(t, cfg)
	use := func(secret string) {
		t.Helper()
		issuer := clusterIssuer(w, "ca", certmanagerv1.IssuerSpec{})
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ca":{"secretName":"`+secret+`"}}}`))
		if err := w.Client.Patch(t.Context(), issuer, patch); err != nil {
			t.Fatal(err)
		}
	}
	awaitReady(t, w, "root")
	crt := certificate(w, "web", "ca", "web.example.com")
	crt.Spec.Duration = &metav1.Duration{Duration: time.Hour}
	w.Create(t, crt)
	l.await(t, "issued web 1")
	use("none")
	var revision int // the clock leaps: there may be renewals before the issuer is broken
	rig.Eventually(t, "a renewal is told as late", func(context.Context) string {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, told := range l.told {
			if n, _ := fmt.Sscanf(told, "late web %d", &revision); n == 1 {
				return ""
			}
		}
		return fmt.Sprint(l.told)
	})
	use("root")
	next := fmt.Sprintf("issued web %d", revision+1)
	l.await(t, next)
	l.mu.Lock()
	defer l.mu.Unlock()
	if body := l.bodies[slices.Index(l.told, next)]; !strings.Contains(body, `"renewedLate":true`) {
		t.Errorf("the event does not say that the renewal was late: %s", body)
	}
}

// renew deletes the Secret of a Certificate, and waits for the next certificate.
func renew(t *testing.T, w *rig.World, name string) {
	t.Helper()
	before := awaitReady(t, w, name)
	if err := w.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, name+" is issued again", func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, name, crt); err != nil {
			return err.Error()
		}
		if *crt.Status.Revision == *before.Status.Revision {
			return "not yet"
		}
		return ""
	})
}
