package certificates_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// ledger is a connection that notes every write; from a given one on it is cut, right
// before that write is sent, or right after it has been carried out.
type ledger struct {
	next   http.RoundTripper
	cutAt  int
	before bool

	mu      sync.Mutex
	writes  []string
	counted int // of them, without events
	cut     bool
}

// count is how many writes there were to paths that contain something.
func (l *ledger) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, write := range l.writes {
		if strings.Contains(write, part) {
			n++
		}
	}
	return n
}

var errCut = errors.New("the connection is cut")

func (l *ledger) RoundTrip(r *http.Request) (*http.Response, error) {
	counts := r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") // which writes nothing
	l.mu.Lock()
	if counts && !l.cut {
		l.writes = append(l.writes, r.Method+" "+r.URL.Path)
	}
	counts = counts && !strings.Contains(r.URL.Path, "/events")
	if counts && !l.cut {
		l.counted++
		l.cut = l.counted == l.cutAt
	}
	cut, last := l.cut, counts && l.counted == l.cutAt
	l.mu.Unlock()
	if !cut || last && !l.before {
		response, err := l.next.RoundTrip(r)
		if !cut || err != nil {
			return response, err
		}
		_ = response.Body.Close()
	}
	return nil, errCut
}

// isCut reports whether the connection has been cut.
func (l *ledger) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// run runs the world's controllers through the ledger.
func (l *ledger) run(t *testing.T, w *rig.World) (stop func()) {
	t.Helper()
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { l.next = next; return l })
	return w.RunAs(t, w.Config(), rc)
}

// everything makes a Certificate want all that we can put into a Secret.
func everything(w *rig.World, name string) *certmanagerv1.Certificate {
	crt := newCertificate(w, name, "ca")
	crt.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{
		Labels: map[string]string{"team": "web"}, Annotations: map[string]string{"note": "hi", certmanagerv1.AllowDirectInjectionAnnotation: "true"},
	}
	crt.Spec.AdditionalOutputFormats = []certmanagerv1.CertificateAdditionalOutputFormat{{Type: "DER"}, {Type: "CombinedPEM"}}
	crt.Spec.Keystores = &certmanagerv1.CertificateKeystores{
		JKS:    &certmanagerv1.JKSKeystore{Create: true, Password: new("changeit")},
		PKCS12: &certmanagerv1.PKCS12Keystore{Create: true, Password: new("changeit")},
	}
	return crt
}

// TestWritesOfAnIssuance counts them, however much the Secret holds: by a CA those of the request, its status, the
// Secret and the status; where the issuer reads the key from a Secret, that Secret and its deletion besides; in the
// long way the status and that Secret before anything else. What was stored is as it should be: nothing is repaired
// right after. Each certificate has one event, and in the long way another one on the request.
func TestWritesOfAnIssuance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		issuer         string
		long           bool
		writes, events int
	}{
		"CA": {"ca", false, 4, 1}, "SelfSigned": {"selfsigned", false, 6, 1}, "the long way": {"ca", true, 7, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rig.NewWorld(t)
			stop := w.Run(t, w.Config())
			withCA(t, w)
			awaitReady(t, w, "root")
			w.Create(t, newCertificate(w, "warm", "ca")) // the issuer is ready then
			awaitReady(t, w, "warm")
			noKeysLeft(t, w)
			stop()
			l := &ledger{}
			stop = l.run(t, w)
			for _, name := range []string{"one", "two", "three"} {
				crt := everything(w, name)
				crt.Spec.IssuerRef.Name = w.ClusterName(c.issuer)
				crt.Spec.CommonName, crt.Spec.Duration = name+".example.com", &metav1.Duration{Duration: time.Hour} // nothing to warn of
				if c.long {
					crt.Annotations = map[string]string{certmanagerv1.IssueTemporaryAnnotation: "true"}
				}
				w.Create(t, crt)
				awaitReady(t, w, name)
			}
			noKeysLeft(t, w)
			rig.Eventually(t, "the events are there", func(context.Context) string { return wants(l.count("/events") >= 3*c.events, l.count("/events")) })
			stop()
			events := l.count("/events")
			if n := l.count("") - events; n != 3*c.writes || events != 3*c.events {
				slices.Sort(l.writes)
				t.Errorf("%d writes and %d events, want %d and %d for each of three certificates:\n%s", n, events, c.writes, c.events, strings.Join(l.writes, "\n"))
			}
		})
	}
}

func noKeysLeft(t *testing.T, w *rig.World) {
	t.Helper()
	rig.Eventually(t, "the keys of issuances are gone", func(ctx context.Context) string { return nextKeys(ctx, w) })
}

// TestCrashAtEveryWriteOfARepair cuts the connection at each write that follows a change
// of what the Secret is to hold, with a certificate to be replaced besides: whoever
// starts after that finishes it, with one issuance.
func TestCrashAtEveryWriteOfARepair(t *testing.T) {
	t.Parallel()
	const most = 6 // the repair, the four writes of an issuance, and the deletion of the request before
	for at := 1; at <= most; at++ {
		for _, before := range []bool{true, false} {
			if !slow.Runs(slow.Crash) && before != (at%2 == 0) {
				continue // in turn
			}
			t.Run(fmt.Sprintf("write %d, before %t", at, before), func(t *testing.T) {
				t.Parallel()
				crashAt(t, at, before)
			})
		}
	}
}

func crashAt(t *testing.T, at int, before bool) {
	t.Helper()
	w := rig.NewWorld(t)
	stop := w.Run(t, w.Config())
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"))
	crt := awaitReady(t, w, "web")
	noKeysLeft(t, w)
	stop()
	want := everything(w, "web").Spec
	amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec = want })
	l := &ledger{cutAt: at, before: before}
	stop = l.run(t, w)
	repaired := func(ctx context.Context) string {
		secret := secretOf(t, w, "web")
		return wants(l.isCut() || len(secret.Data["keystore.p12"]) > 0 && len(secret.Data["key.der"]) > 0, secret.ObjectMeta)
	}
	rig.Eventually(t, "the Secret is repaired, or the connection cut", repaired)
	if !l.isCut() {
		amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec.DNSNames = []string{"other.example.com"} })
		rig.Eventually(t, "the connection is cut while it is issued again", func(context.Context) string { return wants(l.isCut(), "it is not") })
	}
	stop()
	w.Run(t, w.Config())
	if err := w.Get(t.Context(), "web", crt); err != nil {
		t.Fatal(err)
	}
	if crt.Spec.DNSNames[0] != "other.example.com" {
		amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec.DNSNames = []string{"other.example.com"} })
	}
	rig.Eventually(t, "it is issued again", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil {
			return err.Error()
		}
		return wants(*crt.Status.Revision >= 2 && certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue), crt.Status)
	})
	noKeysLeft(t, w)
	if secret := secretOf(t, w, "web"); *crt.Status.Revision != 2 || len(secret.Data) != 9 || secret.Labels["team"] != "web" {
		t.Errorf("revision %d, %d keys in the Secret, %v", *crt.Status.Revision, len(secret.Data), secret.Labels)
	}
}
