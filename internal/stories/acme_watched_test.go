package stories_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/pebble"
)

// watched is an acmeWorld that is looked at closely.
type watched struct {
	*acmeWorld

	cfg app.Config
	// calls are the requests that have reached the CA.
	calls *calls
}

// calls records requests, as method and path.
type calls struct {
	mu   sync.Mutex
	seen []string
}

func (c *calls) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.seen = append(c.seen, r.Method+" "+r.URL.Path)
		c.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// count returns how many requests contain a text.
func (c *calls) count(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, call := range c.seen {
		if strings.Contains(call, text) {
			n++
		}
	}
	return n
}

// newWatched starts the servers. No controllers run yet.
func newWatched(t *testing.T, change func(*pebble.Options)) *watched {
	t.Helper()
	c := &calls{}
	w := &watched{calls: c, acmeWorld: newACMEWorld(t, func(o *pebble.Options) {
		o.Wrap = c.wrap
		if change != nil {
			change(o)
		}
	})}
	w.cfg = w.Config()
	return w
}

func (w *watched) run(t *testing.T) (stop func()) {
	t.Helper()
	return w.Run(t, w.cfg)
}

// dnsSolver updates the world's DNS.
func (w *watched) dnsSolver() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
		Nameserver: w.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256",
		TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
	}}}
}

func httpSolver() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}}
}

func (w *watched) spec(solvers ...acmev1.ACMEChallengeSolver) certmanagerv1.IssuerSpec {
	return certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: w.ca.DirectoryURL, CABundle: w.ca.TLSBundle, Email: "ops@example.com",
		PrivateKey: cmmeta.SecretKeySelector{Name: "account"}, Solvers: solvers,
	}}
}

// withIssuer adds a ready ClusterIssuer "acme".
func (w *watched) withIssuer(t *testing.T, solvers ...acmev1.ACMEChallengeSolver) {
	t.Helper()
	w.Create(t, clusterIssuer(w.World, "acme", w.spec(solvers...)))
	w.awaitIssuer(t, "acme", cmmeta.ConditionTrue, "")
}

// awaitIssuer waits for a Ready condition that says a text.
func (w *watched) awaitIssuer(t *testing.T, name string, want cmmeta.ConditionStatus, text string) *certmanagerv1.ClusterIssuer {
	t.Helper()
	issuer := &certmanagerv1.ClusterIssuer{}
	rig.Eventually(t, fmt.Sprintf("issuer %s is Ready=%s with %q", name, want, text), func(ctx context.Context) string {
		if err := w.Get(ctx, w.ClusterName(name), issuer); err != nil {
			return err.Error()
		}
		ready := certmanagerv1.FindIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionReady)
		if ready == nil || ready.Status != want || !strings.Contains(ready.Reason+": "+ready.Message, text) {
			return fmt.Sprintf("%+v", ready)
		}
		return ""
	})
	return issuer
}

// verify checks what the Secret of a Certificate holds against the CA's roots.
func (w *watched) verify(t *testing.T, name string, names ...string) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), name, secret); err != nil {
		t.Fatal(err)
	}
	chain, err := pki.DecodeChain(secret.Data["tls.crt"])
	if err != nil {
		t.Fatal(err)
	}
	if err := chain[len(chain)-1].CheckSignatureFrom(w.ca.Roots()[0]); err != nil {
		t.Errorf("the chain does not end at the CA: %v", err)
	}
	got := slices.Sorted(slices.Values(chain[0].DNSNames))
	if want := slices.Sorted(slices.Values(names)); !slices.Equal(got, want) {
		t.Errorf("names %v, want %v", got, want)
	}
	key, err := pki.DecodePrivateKey(secret.Data["tls.key"])
	if err != nil || !pki.PublicKeysEqual(key.Public(), chain[0].PublicKey) {
		t.Errorf("tls.key does not belong to tls.crt: %v", err)
	}
}

func (w *watched) challenges(ctx context.Context, t testing.TB) []acmev1.Challenge {
	t.Helper()
	list := &acmev1.ChallengeList{}
	if err := w.Client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// awaitChallenge waits until some Challenge satisfies a condition.
func (w *watched) awaitChallenge(t *testing.T, what string, is func(*acmev1.Challenge) bool) *acmev1.Challenge {
	t.Helper()
	var found *acmev1.Challenge
	rig.Eventually(t, "a Challenge "+what, func(ctx context.Context) string {
		all := w.challenges(ctx, t)
		for i := range all {
			if is(&all[i]) {
				found = &all[i]
				return ""
			}
		}
		said := "none is there\n"
		for _, c := range all {
			said += fmt.Sprintf("%s %+v\n", c.Spec.DNSName, c.Status)
		}
		for _, o := range w.orders(t) {
			said += fmt.Sprintf("order %s: %s %s\n", o.Name, o.Status.State, o.Status.Reason)
		}
		return said
	})
	return found
}

// history is what a watch has shown of the Challenges of a world, in order.
type history struct {
	catchUp func()

	mu   sync.Mutex
	seen []acmev1.Challenge
	gone []bool
}

// record watches from now on.
func (w *watched) record(t *testing.T) *history {
	t.Helper()
	events := w.Watch(t, &acmev1.ChallengeList{})
	h := &history{}
	h.catchUp = func() {
		rig.Eventually(t, "the watch has shown everything", func(ctx context.Context) string { return h.lacks(ctx, w) })
	}
	go func() {
		for e := range events {
			if c, ok := e.Object.(*acmev1.Challenge); ok {
				h.mu.Lock()
				h.seen, h.gone = append(h.seen, *c), append(h.gone, e.Type == "DELETED")
				h.mu.Unlock()
			}
		}
	}()
	return h
}

// lacks says what the watch has not shown yet of how Challenges are now.
func (h *history) lacks(ctx context.Context, w *watched) string {
	list := &acmev1.ChallengeList{}
	if err := w.Client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
		return err.Error()
	}
	there := map[types.UID]string{}
	for _, c := range list.Items {
		there[c.UID] = c.ResourceVersion
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	shown := map[types.UID]string{}
	for i, c := range h.seen {
		shown[c.UID] = c.ResourceVersion
		if h.gone[i] {
			delete(shown, c.UID)
		}
	}
	if !maps.Equal(there, shown) {
		return fmt.Sprintf("there are %v, shown are %v", there, shown)
	}
	return ""
}

// each calls f with every change so far; old is nil for a new Challenge.
func (h *history) each(f func(old, now *acmev1.Challenge, gone bool)) {
	h.catchUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	last := map[string]*acmev1.Challenge{}
	for i := range h.seen {
		c := &h.seen[i]
		f(last[c.Name], c, h.gone[i])
		last[c.Name] = c
	}
}

func tsigSecretOther() string { return base64.StdEncoding.EncodeToString([]byte("another secret")) }
