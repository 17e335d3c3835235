package stories_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/rig"
)

// journal keeps a log.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

// logLine is one line of a log, as far as tests look at it.
type logLine struct{ Level, Msg, Object, Step, Cause, Next, Raw string }

func (j *journal) lines(t *testing.T) (lines []logLine) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for text := range strings.SplitSeq(strings.TrimSpace(j.text.String()), "\n") {
		line := logLine{Raw: text}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		lines = append(lines, line)
	}
	return lines
}

// about returns the lines about objects whose names begin with a word.
func (j *journal) about(t *testing.T, word string) (lines []logLine) {
	t.Helper()
	for _, line := range j.lines(t) {
		if _, name, _ := strings.Cut(line.Object, "/"); strings.HasPrefix(name, word) {
			lines = append(lines, line)
		}
	}
	return lines
}

// runLogged runs the controllers of a world with a log of a level.
func runLogged(t *testing.T, w *rig.World, cfg app.Config, level int, wrap transport.WrapperFunc) (j *journal, stop func()) {
	t.Helper()
	j = &journal{}
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	if wrap != nil {
		rc.Wrap(wrap)
	}
	handler := slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.Level(-level)})
	return j, w.RunLogged(t, cfg, rc, logr.FromSlogHandler(handler))
}

// ordered checks that lines about one object are there, and in that order.
func ordered(t *testing.T, lines []logLine, kind string, want ...[3]string) {
	t.Helper()
	var said []string
	for _, line := range lines {
		if strings.HasPrefix(line.Object, kind+" ") {
			said = append(said, line.Raw)
		}
		if len(want) > 0 && strings.HasPrefix(line.Object, kind+" ") && strings.Contains(line.Step, want[0][0]) &&
			strings.Contains(line.Cause, want[0][1]) && strings.Contains(line.Next, want[0][2]) {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		t.Errorf("no line about the %s says %q next:\n%s", kind, want[0], strings.Join(said, "\n"))
	}
}

// noSecrets checks that no line has a private key, a credential or an answer to a challenge.
func noSecrets(t *testing.T, w *rig.World, lines []logLine, more ...string) {
	t.Helper()
	secrets := &corev1.SecretList{}
	if err := w.Client.List(t.Context(), secrets, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets.Items {
		for name, value := range secret.Data {
			if name != corev1.TLSCertKey && name != cmmeta.TLSCAKey {
				more = append(more, string(value), base64.StdEncoding.EncodeToString(value))
			}
		}
	}
	more = append(more, "PRIVATE KEY", "-----BEGIN")
	for _, line := range lines {
		for _, word := range more {
			if word != "" && strings.Contains(line.Raw, word) {
				t.Errorf("%q is in the line %s", word, line.Raw)
			}
		}
		if line.Level == "ERROR" {
			t.Errorf("an error where nothing is wrong: %s", line.Raw)
		}
	}
}

// TestLogOfAnIssuance: a person can follow an issuance by ACME in the log, in few lines, which hold nothing secret; and
// at level 1 all calls too.
func TestLogOfAnIssuance(t *testing.T) {
	t.Parallel()
	for level, most := range []int{8, 40} {
		w := newACMEWorld(t, nil)
		j, stop := runLogged(t, w.World, w.Config(), level, nil)
		issuer := w.issuer()
		w.Create(t, issuer)
		rig.Eventually(t, "the issuer is ready", func(ctx context.Context) string {
			if err := w.Get(ctx, issuer.Name, issuer); err != nil || len(issuer.Status.Conditions) == 0 || issuer.Status.Conditions[0].Status != cmmeta.ConditionTrue {
				return fmt.Sprint(err, issuer.Status.Conditions)
			}
			return ""
		})
		crt := certificate(w.World, "web", "acme", "web.example.com")
		w.Create(t, crt)
		awaitReady(t, w.World, "web")
		w.NothingLeft(t, w.dns.TXT)
		rig.Eventually(t, "the pass that has written the status has its line", func(context.Context) string {
			isLast := func(l logLine) bool { return strings.Contains(l.Step, "write Secret web;") }
			if lines := j.about(t, "web"); !slices.ContainsFunc(lines, isLast) {
				return fmt.Sprint(len(lines), " lines")
			}
			return ""
		})
		stop()
		lines := j.about(t, "web")
		ordered(t, lines, "Certificate",
			[3]string{"create Secret web-", `Secret "web" does not exist`, "Z"},
			[3]string{"write Secret web; set status", "The certificate has been successfully issued", "Z"})
		ordered(t, lines, "CertificateRequest",
			[3]string{"create Order web-1-", "Waiting on certificate issuance from order", "event"},
			[3]string{"certificate", "Certificate fetched from issuer successfully", "nothing"})
		ordered(t, lines, "Order",
			[3]string{"create Challenge", "", ""}, [3]string{"state=valid", "Order completed successfully", "nothing"})
		ordered(t, lines, "Challenge",
			[3]string{"presented=true", "", "answer to "}, [3]string{"state=valid", `Domain "web.example.com" verified`, "answer to CleanUp"})
		// A busy machine takes longer than the ten seconds after which the Certificate says what it waits for.
		lines = slices.DeleteFunc(lines, func(l logLine) bool { return l.Step == "set status Issuing=True" })
		if len(lines) > most || level == 1 && len(lines) < 15 {
			for _, line := range lines {
				t.Log(line.Raw)
			}
			t.Errorf("%d lines at level %d", len(lines), level)
		}
		noSecrets(t, w.World, j.lines(t), tsigSecret)
	}
}

// TestLogOfManyCertificates: 4 lines a Certificate at most.
func TestLogOfManyCertificates(t *testing.T) {
	t.Parallel()
	const all = 20
	w := rig.NewWorld(t)
	j, stop := runLogged(t, w, w.Config(), 0, nil)
	withCA(t, w)
	w.Create(t, certificate(w, "warm-up", "ca", "a.example.com"))
	awaitReady(t, w, "warm-up")
	for i := range all {
		w.Create(t, certificate(w, fmt.Sprint("web-", i), "ca", "a.example.com"))
	}
	for i := range all {
		awaitReady(t, w, fmt.Sprint("web-", i))
	}
	stop()
	lines := j.about(t, "web-")
	if len(lines) > 4*all || len(lines) < 2*all {
		for _, line := range lines {
			t.Log(line.Raw)
		}
		t.Errorf("%d lines for %d Certificates", len(lines), all)
	}
	noSecrets(t, w, j.lines(t))
}

// TestLogOfADeletedNamespace: what is refused because a namespace is being deleted is no error.
func TestLogOfADeletedNamespace(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	var once sync.Once
	amid := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/secrets") {
				once.Do(func() {
					if err := w.Client.Delete(req.Context(), &corev1.Namespace{ObjectMeta: named(w.Namespace)}); err != nil {
						t.Error(err)
					}
				})
			}
			return next.RoundTrip(req)
		})
	}
	j, stop := runLogged(t, w, w.Config(), 0, amid)
	w.Create(t, certificate(w, "web", "missing", "web.example.com"))
	rig.Eventually(t, "the namespace is gone", func(ctx context.Context) string {
		if err := w.Get(ctx, w.Namespace, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint("it is there: ", err)
		}
		return ""
	})
	stop()
	told := false
	for _, line := range j.lines(t) {
		told = told || strings.Contains(line.Raw, "because it is being terminated")
		if line.Level == "ERROR" {
			t.Errorf("an error in the log: %s", line.Raw)
		}
	}
	if !told {
		t.Error("the log does not say that the namespace is being deleted")
	}
}

// TestLogOfAFailingProvider: a cause has one line, however often it is tried again.
func TestLogOfAFailingProvider(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	j, stop := runLogged(t, w.World, w.cfg, 1, nil)
	w.setTSIG(t, base64.StdEncoding.EncodeToString([]byte("wrong 0")))
	w.withIssuer(t, w.dnsSolver())
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	failed := func() (n int) {
		for _, line := range j.about(t, "web") {
			if line.Msg == "called" && line.Step == "Present" && strings.Contains(line.Cause, "TSIG") {
				n++
			}
		}
		return n
	}
	for i := range 4 {
		rig.Eventually(t, "it is tried again", func(context.Context) string {
			if n := failed(); n <= i {
				return fmt.Sprint(n, " failures")
			}
			return ""
		})
		w.setTSIG(t, base64.StdEncoding.EncodeToString(fmt.Append(nil, "wrong ", i+1)))
	}
	stop()
	last, told := map[string]string{}, 0
	for _, line := range j.about(t, "web") {
		if line.Msg != "decided" || line.Cause == "" {
			continue
		}
		if last[line.Object] == line.Cause {
			t.Errorf("it is said again: %s", line.Raw)
		}
		if strings.HasPrefix(line.Object, "Challenge ") && strings.Contains(line.Cause, "TSIG") {
			told++
		}
		last[line.Object] = line.Cause
	}
	if told == 0 {
		t.Error("the log does not say what is wrong")
	}
}
