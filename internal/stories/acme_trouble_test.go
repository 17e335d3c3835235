package stories_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/pebble"
)

// saysSo waits until a Certificate and its request carry a text.
func saysSo(t *testing.T, w *watched, name, text string) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("request and Certificate %s say %q", name, text), func(ctx context.Context) string {
		crt, request := &certmanagerv1.Certificate{}, &certmanagerv1.CertificateRequest{}
		if err := w.Get(ctx, name+"-1", request); err != nil {
			return err.Error()
		}
		if err := w.Get(ctx, name, crt); err != nil {
			return err.Error()
		}
		if !strings.Contains(fmt.Sprint(request.Status.Conditions), text) || !strings.Contains(fmt.Sprint(crt.Status.Conditions), text) {
			return fmt.Sprintf("request %+v\ncertificate %+v", request.Status.Conditions, crt.Status.Conditions)
		}
		return ""
	})
}

// setTSIG puts a key into the Secret that dnsSolver names.
func (w *watched) setTSIG(t *testing.T, key string) *corev1.Secret {
	t.Helper()
	old := &corev1.Secret{}
	if err := w.Get(t.Context(), "tsig", old); err != nil {
		t.Fatal(err)
	}
	changed := old.DeepCopy()
	changed.Data = map[string][]byte{"key": []byte(key)}
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
	return changed
}

// TestWrongTSIGKey: the Challenge says what the DNS server thinks of the key, and the
// right one in the Secret is enough.
func TestWrongTSIGKey(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	wrong := w.setTSIG(t, tsigSecretOther())
	h := w.record(t)
	w.Create(t, clusterIssuer(w.World, "acme", w.spec(w.dnsSolver())), certificate(w.World, "web", "acme", "web.example.com"))
	c := w.awaitChallenge(t, "says why it is not presented", func(c *acmev1.Challenge) bool {
		return strings.Contains(c.Status.Reason, "Error presenting challenge") && strings.Contains(c.Status.Reason, "TSIG")
	})
	if c.Status.Presented {
		t.Errorf("status %+v", c.Status)
	}
	if fixed := w.setTSIG(t, tsigSecret); fixed.ResourceVersion == wrong.ResourceVersion {
		t.Fatal("the Secret did not change")
	}
	awaitReady(t, w.World, "web")
	w.verify(t, "web", "web.example.com")
	writes := 0
	h.each(func(_, now *acmev1.Challenge, _ bool) {
		if strings.Contains(now.Status.Reason, "TSIG") {
			writes++
		}
	})
	if writes == 0 || writes > 2 { // a starved machine may have it time out once
		t.Errorf("it was written %d times that the key is wrong", writes)
	}
}

// TestMendedKeyIsTriedAtOnce: nobody who has mended a credential waits for a back-off.
func TestMendedKeyIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.cfg.Clock = hasty{}
	w.run(t)
	w.setTSIG(t, tsigSecretOther())
	w.Create(t, clusterIssuer(w.World, "acme", w.spec(w.dnsSolver())), certificate(w.World, "web", "acme", "web.example.com"))
	w.awaitChallenge(t, "is put off", func(c *acmev1.Challenge) bool { return strings.Contains(c.Status.Reason, "; retried every") })
	w.setTSIG(t, tsigSecret)
	awaitReady(t, w.World, "web")
}

// hasty is the machine's clock, but that no wait of a second or more ends on it.
type hasty struct{}

func (hasty) Now() time.Time { return time.Now() }

func (hasty) AfterFunc(d time.Duration, f func()) (stop func()) {
	if d >= time.Second {
		return func() {}
	}
	timer := time.AfterFunc(d, f)
	return func() { timer.Stop() }
}

func (hasty) Queue(_ string, limiter controller.Limiter) controller.Queue {
	return hastyQueue{workqueue.NewTypedRateLimitingQueue(limiter)}
}

type hastyQueue struct{ controller.Queue }

func (q hastyQueue) AddAfter(item reconcile.Request, d time.Duration) {
	if d < time.Second {
		q.Queue.AddAfter(item, d)
	}
}

// TestUnreachableServer: the issuer says why, without haste, and is ready once the
// server is there.
func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	address := rig.FreeAddress(t).String()
	spec := w.spec(w.dnsSolver())
	spec.ACME.Server = "https://" + address + "/dir"
	spec.ACME.CABundle, spec.ACME.SkipTLSVerify = nil, true
	issuer := clusterIssuer(w.World, "acme", spec)
	w.Create(t, issuer, certificate(w.World, "web", "acme", "web.example.com"))
	told := w.awaitIssuer(t, "acme", cmmeta.ConditionFalse, "connection refused")
	if !strings.Contains(told.Status.Conditions[0].Message, address) {
		t.Errorf("%+v", told.Status.Conditions)
	}
	saysSo(t, w, "web", "connection refused")
	version := told.ResourceVersion
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if _, err := pebble.Start(ctx, pebble.Options{Listen: address, DNSServer: w.dns.Addr()}); err != nil {
		t.Fatal(err)
	}
	ready := w.awaitIssuer(t, "acme", cmmeta.ConditionTrue, "ACMEAccountRegistered")
	if version == ready.ResourceVersion || ready.Status.ACME == nil || ready.Status.ACME.URI == "" {
		t.Errorf("status %+v", ready.Status)
	}
	awaitReady(t, w.World, "web")
}

// TestBlockedDomain: what the CA refuses stands on Order, request and Certificate, and
// an amended Certificate is issued at once.
func TestBlockedDomain(t *testing.T) {
	t.Parallel()
	w := newWatched(t, func(o *pebble.Options) { o.Blocklist = []string{"blocked.example.com"} })
	w.run(t)
	w.withIssuer(t, w.dnsSolver())
	crt := certificate(w.World, "web", "acme", "blocked.example.com")
	w.Create(t, crt)
	saysSo(t, w, "web", "rejectedIdentifier")
	orders := w.orders(t)
	if len(orders) != 1 || orders[0].Status.State != acmev1.Errored || !strings.Contains(orders[0].Status.Reason, "Failed to create Order: ") {
		t.Errorf("orders %+v", orders)
	}
	changed := crt.DeepCopy()
	changed.Spec.DNSNames = []string{"allowed.example.com"}
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(crt)); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, w.World, "web")
	w.verify(t, "web", "allowed.example.com")
}

// TestNoUsableSolver: that no solver is for a name stands on Order, request and Certificate,
// and solvers that are for it in the issuer are enough to go on with the same Order.
func TestNoUsableSolver(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	elsewhere := w.dnsSolver()
	elsewhere.Selector = &acmev1.CertificateDNSNameSelector{DNSZones: []string{"example.net"}}
	w.withIssuer(t, elsewhere)
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	const said = `Failed to determine a valid solver configuration for "web.example.com": the selectors of all the issuer's solvers exclude it`
	saysSo(t, w, "web", "the selectors of all the issuer's solvers exclude it")
	before := w.orders(t)
	if len(before) != 1 || before[0].Status.State != acmev1.Pending || !strings.Contains(before[0].Status.Reason, said) {
		t.Fatalf("orders %+v", before)
	}
	old := w.awaitIssuer(t, "acme", cmmeta.ConditionTrue, "")
	amended := old.DeepCopy()
	amended.Spec.ACME.Solvers = []acmev1.ACMEChallengeSolver{w.dnsSolver()}
	if err := w.Client.Patch(t.Context(), amended, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, w.World, "web")
	after := w.orders(t)
	if len(after) != 1 || after[0].UID != before[0].UID || after[0].Status.Reason != "" {
		t.Errorf("orders %+v", after)
	}
}

// TestACorrectedSolverIsUsedAtOnce: the solver's name server is not there, so that nothing can be cleaned up with it
// either. The corrected solver does not wait for that.
func TestACorrectedSolverIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	wrong := w.dnsSolver()
	wrong.DNS01.RFC2136.Nameserver = rig.FreeAddress(t).String()
	w.withIssuer(t, wrong)
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	w.awaitChallenge(t, "says that its name server is not there", func(c *acmev1.Challenge) bool {
		return strings.Contains(c.Status.Reason, "Error presenting challenge")
	})
	before := w.orders(t)
	old := w.awaitIssuer(t, "acme", cmmeta.ConditionTrue, "")
	amended := old.DeepCopy()
	amended.Spec.ACME.Solvers = []acmev1.ACMEChallengeSolver{w.dnsSolver()}
	if err := w.Client.Patch(t.Context(), amended, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, w.World, "web")
	w.verify(t, "web", "web.example.com")
	after := w.orders(t)
	if len(after) != 1 || after[0].UID != before[0].UID {
		t.Errorf("orders %+v", after)
	}
}

// TestUnknownProfile: the message is the one that the end-to-end suites look for.
func TestUnknownProfile(t *testing.T) {
	t.Parallel()
	w := newWatched(t, func(o *pebble.Options) { o.Profiles = map[string]ca.Profile{"short": {Description: "short"}} })
	w.run(t)
	spec := w.spec(w.dnsSolver())
	spec.ACME.Profile = "long"
	w.Create(t, clusterIssuer(w.World, "acme", spec), certificate(w.World, "web", "acme", "web.example.com"))
	saysSo(t, w, "web", "Failed to create Order: acme: certificate authority does not advertise a profile with name long")
}

// TestIssuerMistakes: what is wrong with an issuer stands on it, and mending it is
// enough.
func TestIssuerMistakes(t *testing.T) {
	t.Parallel()
	w := newWatched(t, func(o *pebble.Options) {
		o.RequireEAB, o.EABKeys = true, map[string]string{"kid": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"}
	})
	w.run(t)
	v1 := w.spec()
	v1.ACME.Server = "https://acme-v01.api.letsencrypt.org/directory"
	w.Create(t, clusterIssuer(w.World, "v1", v1))
	w.awaitIssuer(t, "v1", cmmeta.ConditionFalse, "InvalidConfig: ")

	late := w.dnsSolver()
	late.DNS01.RFC2136.TSIGSecretSecretRef.Name = "late"
	w.Create(t, clusterIssuer(w.World, "solver", w.spec(late)))
	w.awaitIssuer(t, "solver", cmmeta.ConditionFalse, `InvalidSolver: failed to get secret "late"`)
	w.Create(t, &corev1.Secret{ObjectMeta: named("late"), StringData: map[string]string{"key": tsigSecret}})
	// The Secret's event is enough; what is wrong next is the missing binding.
	w.awaitIssuer(t, "solver", cmmeta.ConditionFalse, "externalAccountRequired")

	bound := w.spec()
	bound.ACME.PrivateKey.Name = "bound"
	bound.ACME.ExternalAccountBinding = &acmev1.ACMEExternalAccountBinding{KeyID: "kid", KeySecretRef: cmmeta.SecretKeySelector{Name: "eab", Key: "key"}}
	w.Create(t, clusterIssuer(w.World, "bound", bound))
	w.awaitIssuer(t, "bound", cmmeta.ConditionFalse, "ErrRegisterACMEAccount: ")
	secret := &corev1.Secret{ObjectMeta: named("eab"), StringData: map[string]string{"key": "bm90IHRoZSBrZXk"}}
	w.Create(t, secret)
	w.awaitIssuer(t, "bound", cmmeta.ConditionFalse, "HS256 needs 32")
	set := func(key string) {
		changed := secret.DeepCopy()
		changed.Data = map[string][]byte{"key": []byte(key)}
		if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(secret)); err != nil {
			t.Fatal(err)
		}
		secret = changed
	}
	set("bm90IHRoZSBrZXkgYnV0IGxvbmcgZW5vdWdoIGZvciBIUzI1Ng")
	w.awaitIssuer(t, "bound", cmmeta.ConditionFalse, "the ACME server does not take the external account binding")
	set("zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W")
	w.awaitIssuer(t, "bound", cmmeta.ConditionTrue, "ACMEAccountRegistered")
}

// TestSharedAccount: issuers with one key share one account, a restart costs the CA
// nothing, and an account that the CA has lost is made again.
func TestSharedAccount(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	w := newWatched(t, func(o *pebble.Options) {
		count := o.Wrap
		o.NonceRejectPercent = 0
		o.Wrap = func(next http.Handler) http.Handler {
			return count(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if lost.Load() && strings.Contains(r.URL.Path, "order-plz") {
					lost.Store(false)
					rw.Header().Set("Content-Type", "application/problem+json")
					rw.WriteHeader(http.StatusBadRequest)
					_, _ = rw.Write([]byte(`{"type":"urn:ietf:params:acme:error:accountDoesNotExist","detail":"who are you?"}`))
					return
				}
				next.ServeHTTP(rw, r)
			}))
		}
	})
	stop := w.run(t)
	w.withIssuer(t, w.dnsSolver())
	w.Create(t, clusterIssuer(w.World, "twin", w.spec(w.dnsSolver())))
	one, two := w.awaitIssuer(t, "acme", cmmeta.ConditionTrue, ""), w.awaitIssuer(t, "twin", cmmeta.ConditionTrue, "")
	if one.Status.ACME.URI != two.Status.ACME.URI || w.calls.count("sign-me-up") != 1 {
		t.Errorf("%d registrations, accounts %s and %s", w.calls.count("sign-me-up"), one.Status.ACME.URI, two.Status.ACME.URI)
	}
	stop()
	w.run(t)
	for _, name := range []string{"acme", "twin"} {
		w.Create(t, certificate(w.World, name, name, name+".example.com"))
		awaitReady(t, w.World, name)
	}
	if n := w.calls.count("sign-me-up") + w.calls.count("my-account"); n != 1 {
		t.Errorf("a restart cost the CA %d requests about the account", n-1)
	}
	lost.Store(true)
	w.Create(t, certificate(w.World, "web", "twin", "web.example.com"))
	awaitReady(t, w.World, "web")
	if n := w.calls.count("sign-me-up"); n < 2 {
		t.Errorf("the lost account was registered %d times", n-1)
	}
}

// TestParkedAccount: a CA that says when to come back is left alone until then.
func TestParkedAccount(t *testing.T) {
	t.Parallel()
	var limited atomic.Int32
	w := newWatched(t, func(o *pebble.Options) {
		count := o.Wrap
		o.NonceRejectPercent = 0
		o.Wrap = func(next http.Handler) http.Handler {
			return count(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "order-plz") && limited.Add(1) == 1 {
					rw.Header().Set("Content-Type", "application/problem+json")
					rw.Header().Set("Retry-After", "20")
					rw.WriteHeader(http.StatusTooManyRequests)
					_, _ = rw.Write([]byte(`{"type":"urn:ietf:params:acme:error:rateLimited","detail":"slow down"}`))
					return
				}
				next.ServeHTTP(rw, r)
			}))
		}
	})
	w.run(t)
	w.withIssuer(t, w.dnsSolver())
	w.Create(t, certificate(w.World, "first", "acme", "first.example.com"))
	says := func(what string) {
		rig.Eventually(t, "an Order says "+what, func(context.Context) string {
			for _, o := range w.orders(t) {
				if strings.Contains(o.Status.Reason, what) {
					return ""
				}
			}
			return fmt.Sprintf("%+v", w.orders(t))
		})
	}
	says("slow down; retrying at 20")
	w.Create(t, certificate(w.World, "second", "acme", "second.example.com"))
	says("not sent, because the ACME server has refused other orders of this account")
	if n := limited.Load(); n != 1 {
		t.Errorf("%d orders were sent", n)
	}
	awaitReady(t, w.World, "second")
	awaitReady(t, w.World, "first")
}

// TestRule8ACME: a CertificateSigningRequest is signed through an Order in the
// cluster resource namespace.
func TestRule8ACME(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	w.withIssuer(t, w.dnsSolver())
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"csr.example.com"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: named(w.ClusterName("csr")), Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: request, SignerName: "cert-manager.io/" + w.ClusterName("acme"),
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}}
	w.Create(t, csr)
	rig.Eventually(t, "the request is signed", func(ctx context.Context) string {
		if err := w.Get(ctx, csr.Name, csr); err != nil || len(csr.Status.Certificate) == 0 {
			return fmt.Sprintf("%v, %+v", err, csr.Status)
		}
		return ""
	})
	if block, _ := pem.Decode(csr.Status.Certificate); block == nil {
		t.Error("no PEM")
	}
	orders := w.orders(t)
	if len(orders) != 1 || !metav1.IsControlledBy(&orders[0], csr) {
		t.Errorf("orders %+v", orders)
	}
}

// requestLog counts what a client asks of the API server.
type requestLog struct {
	mu   sync.Mutex
	seen []string
	on   atomic.Bool
}

func (l *requestLog) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		// Who the controller is, it asks once, not for each certificate.
		once := strings.HasSuffix(r.URL.Path, "/selfsubjectreviews")
		if l.on.Load() && !once && r.URL.Query().Get("watch") == "" {
			l.mu.Lock()
			l.seen = append(l.seen, r.Method+" "+r.URL.Path)
			l.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

// count returns how many requests have a method and a path that ends so.
func (l *requestLog) count(method, end string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, seen := range l.seen {
		if strings.HasPrefix(seen, method+" ") && strings.HasSuffix(seen, end) {
			n++
		}
	}
	return n
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestBudgetACME: a certificate of one name costs the API server no more than its
// budget (docs/performance.md), the user's own request and all events included.
func TestBudgetACME(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"dns": 22, "http": 24} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t, nil)
			log := &requestLog{}
			rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
			rc.Wrap(log.wrap)
			w.RunAs(t, w.cfg, rc)
			solver := w.dnsSolver()
			if name == "http" {
				solver = httpSolver()
			}
			w.withIssuer(t, solver)
			log.on.Store(true)
			w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
			awaitReady(t, w.World, "web")
			rig.Eventually(t, "all is cleaned up", func(ctx context.Context) string {
				return strings.Repeat("x", len(w.challenges(ctx, t)))
			})
			rig.Eventually(t, "the four events are out", func(context.Context) string {
				if n := log.count("POST", "/events"); n < 4 {
					return fmt.Sprintf("%d events", n)
				}
				return ""
			})
			log.mu.Lock()
			defer log.mu.Unlock()
			if n := len(log.seen) + 1; n > limit {
				t.Errorf("%d requests, at most %d are allowed:\nPOST the user's Certificate\n%s", n, limit, strings.Join(log.seen, "\n"))
			}
		})
	}
}
