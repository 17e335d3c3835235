package app_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/http01"
	"chancery.dev/internal/solver/tlsalpn01"
)

const (
	token            = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA"
	keyAuthorization = token + ".9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI"
)

// responders starts replicas of the responder, with the rights of its service account
// and no others, and returns their addresses.
func responders(t *testing.T, n int) []string {
	t.Helper()
	addresses, _ := respondersThatCount(t, n)
	return addresses
}

// respondersThatCount returns how many requests they make of the API server, too, without their watches.
func respondersThatCount(t *testing.T, n int) (addresses []string, asked *atomic.Int64) {
	t.Helper()
	configs := make([]app.ResponderConfig, n)
	addresses, asked = make([]string, n), &atomic.Int64{}
	for i := range configs {
		addresses[i] = rig.FreeAddress(t).String()
		configs[i] = app.ResponderConfig{Address: addresses[i], MetricsAddress: "0", HealthAddress: "0"}
	}
	startResponders(t, asked, configs...)
	return addresses, asked
}

func startResponders(t *testing.T, asked *atomic.Int64, configs ...app.ResponderConfig) {
	t.Helper()
	rc := rig.As(rig.Cluster(t), "system:serviceaccount:cert-manager:chancery-responder",
		"system:serviceaccounts", "system:serviceaccounts:cert-manager", "system:authenticated")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") == "" {
				asked.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	for _, config := range configs {
		m, err := app.NewResponder(t.Context(), config, rc, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- m.Start(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	for _, config := range configs {
		rig.Eventually(t, "the responder listens", func(ctx context.Context) string {
			if status, body := get(ctx, config.Address, "anything", "/healthz"); status != http.StatusOK {
				return fmt.Sprint(status, body)
			}
			return ""
		})
	}
}

func get(ctx context.Context, address, host, path string) (status int, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// order makes an Order that lists the challenge for a host, and returns the Challenge,
// which is not made yet.
func order(t *testing.T, w *rig.World, host string) *acmev1.Challenge {
	t.Helper()
	o := &acmev1.Order{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "order"},
		Spec:       acmev1.OrderSpec{Request: []byte("request"), IssuerRef: cmmeta.IssuerReference{Name: "acme"}, DNSNames: []string{host}},
	}
	w.Create(t, o)
	o.Status.State = acmev1.Pending
	o.Status.Authorizations = []acmev1.ACMEAuthorization{{
		URL: "https://ca.test/authz/1", Identifier: host,
		Challenges: []acmev1.ACMEChallenge{
			{URL: "https://ca.test/chall/1", Token: token, Type: "http-01"}, {URL: "https://ca.test/chall/2", Token: token, Type: "tls-alpn-01"},
		},
	}}
	if err := w.Client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return &acmev1.Challenge{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: "challenge",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o, acmev1.SchemeGroupVersion().WithKind("Order"))},
		},
		Spec: acmev1.ChallengeSpec{
			URL: "https://ca.test/chall/1", AuthorizationURL: "https://ca.test/authz/1", DNSName: host, Type: acmev1.ChallengeTypeHTTP01,
			Token: token, Key: keyAuthorization, IssuerRef: cmmeta.IssuerReference{Name: "acme"},
			Solver: acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}},
		},
	}
}

// start does what the scheduler does.
func start(t *testing.T, w *rig.World, c *acmev1.Challenge) {
	t.Helper()
	c.Status = acmev1.ChallengeStatus{Processing: true, State: acmev1.Pending}
	if err := w.Client.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// TestEveryReplicaAnswers has two replicas, of which none leads, answer a Challenge that the scheduler has just
// started: the first time that they are asked, because they wait for their watches, and without a question to the API
// server. A machine that is busy with something else may be late for that, but not every time. After its end none
// answers.
func TestEveryReplicaAnswers(t *testing.T) {
	t.Parallel()
	addresses, asked := respondersThatCount(t, 2)
	const tries = 20
	best := int64(math.MaxInt64)
	for try := 0; try < tries && best > 0; try++ {
		before := asked.Load()
		late, _ := answered(t, addresses)
		best = min(best, late+asked.Load()-before)
	}
	if best > 0 {
		t.Errorf("in the best of %d tries, the replicas answered 404, and asked the API server, %d times", tries, best)
	}
	if n := counted(t, "chancery_http01_responses_total", "200"); n < float64(len(addresses)) {
		t.Errorf("%v answers are counted", n)
	}
}

// TestReplicasAnswerAtOnce: both have answered within 100 ms.
func TestReplicasAnswerAtOnce(t *testing.T) {
	slow.Test(t, slow.Numbers)
	addresses := responders(t, 2)
	slow.Best(t, "an answer by two replicas", 100*time.Millisecond, func() time.Duration {
		_, took := answered(t, addresses)
		return took
	})
}

// answered starts and ends a Challenge, and returns how often they knew nothing of it before all answered it, and how
// long that took.
func answered(t *testing.T, addresses []string) (late int64, took time.Duration) {
	t.Helper()
	w := rig.NewWorld(t)
	const path = "/.well-known/acme-challenge/" + token
	host := w.Namespace + ".example.test"
	c := order(t, w, host)
	w.Create(t, c)
	for _, address := range addresses {
		if status, _ := get(t.Context(), address, host, path); status != http.StatusNotFound {
			t.Errorf("a queued Challenge is answered %d", status)
		}
	}
	start(t, w, c)
	started := time.Now()
	for _, address := range addresses {
		late += awaitAnswer(t, address, host)
	}
	took = time.Since(started)
	c.Status = acmev1.ChallengeStatus{State: acmev1.Valid}
	if err := w.Client.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		rig.Eventually(t, "the answer is gone", func(ctx context.Context) string {
			if status, _ := get(ctx, address, host, path); status != http.StatusNotFound {
				return fmt.Sprint(status)
			}
			return ""
		})
	}
	return late, took
}

// counted is how many answers of a kind a metric knows.
func counted(t *testing.T, metric, kind string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == kind {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestResponderIsReady is so once its caches hold what is in flight.
func TestResponderIsReady(t *testing.T) {
	t.Parallel()
	rc := rig.As(rig.Cluster(t), "system:serviceaccount:cert-manager:chancery-responder", "system:serviceaccounts:cert-manager")
	health := rig.FreeAddress(t).String()
	m, err := app.NewResponder(t.Context(), app.ResponderConfig{Address: rig.FreeAddress(t).String(), MetricsAddress: "0", HealthAddress: health}, rc, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	for _, path := range []string{"/livez", "/readyz"} {
		rig.Eventually(t, path+" says ok", func(ctx context.Context) string {
			if status, body := get(ctx, health, "anything", path); status != http.StatusOK {
				return fmt.Sprint(status, body)
			}
			return ""
		})
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestForgedChallenge is a tenant who makes a Challenge for somebody else's host, of an
// Order whose status the tenant cannot write.
func TestForgedChallenge(t *testing.T) {
	t.Parallel()
	victim, tenant := rig.NewWorld(t), rig.NewWorld(t)
	host := victim.Namespace + ".example.test"
	genuine := order(t, victim, host)
	forge(t, tenant, host, genuine)
	address := responders(t, 1)[0]
	const path = "/.well-known/acme-challenge/" + token
	if status, body := get(t.Context(), address, host, path); status != http.StatusNotFound {
		t.Errorf("the forged Challenge is answered %d %q", status, body)
	}
	victim.Create(t, genuine)
	start(t, victim, genuine)
	awaitAnswer(t, address, host)
}

// awaitAnswer waits until a Challenge is answered. One that the responder's watch has not told of
// yet is answered with 404 after two seconds: late is how often.
func awaitAnswer(t *testing.T, address, host string) (late int64) {
	t.Helper()
	rig.Eventually(t, address+" answers for "+host, func(ctx context.Context) string {
		switch status, body := get(ctx, address, host, "/.well-known/acme-challenge/"+token); {
		case status == http.StatusOK && body == keyAuthorization:
			return ""
		case status == http.StatusOK:
			t.Errorf("%s answers %q", address, body)
			return ""
		default:
			late++
			return fmt.Sprintf("%d %q", status, body)
		}
	})
	return late
}

// forge starts a Challenge of a tenant for somebody else's host.
func forge(t *testing.T, tenant *rig.World, host string, genuine *acmev1.Challenge) *acmev1.Challenge {
	t.Helper()
	forgery := &acmev1.Order{
		ObjectMeta: metav1.ObjectMeta{Name: "order"},
		Spec:       acmev1.OrderSpec{Request: []byte("request"), IssuerRef: cmmeta.IssuerReference{Name: "acme"}, DNSNames: []string{host}},
	}
	tenant.Create(t, forgery)
	forged := genuine.DeepCopy()
	forged.Namespace, forged.Spec.Key = tenant.Namespace, token+".forged"
	forged.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(forgery, acmev1.SchemeGroupVersion().WithKind("Order"))}
	tenant.Create(t, forged)
	start(t, tenant, forged)
	return forged
}

// TestForgedHandshake is that tenant where the answer is a handshake, which tells no token. The
// responder has the same rights.
func TestForgedHandshake(t *testing.T) {
	t.Parallel()
	victim, tenant := rig.NewWorld(t), rig.NewWorld(t)
	const host = "192.0.2.77" // nobody has to resolve it
	genuine := order(t, victim, host)
	genuine.Spec.URL, genuine.Spec.Type = "https://ca.test/chall/2", acmev1.ChallengeTypeTLSALPN01
	genuine.Spec.Solver = acmev1.ACMEChallengeSolver{TLSALPN01: &acmev1.TLSALPN01Solver{}}
	forged := forge(t, tenant, host, genuine)

	address := rig.FreeAddress(t).String()
	startResponders(t, &atomic.Int64{}, app.ResponderConfig{
		Address: rig.FreeAddress(t).String(), TLSALPN01Address: address, MetricsAddress: "0", HealthAddress: "0",
	})
	check := tlsalpn01.New(tlsalpn01.CheckOptions{Dialer: http01.NewDialer(nil, nil, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	})})
	for _, c := range []*acmev1.Challenge{forged, genuine} {
		if err := check.Check(t.Context(), solver.Task{Challenge: c}); err == nil || !strings.Contains(err.Error(), "knows no such name") {
			t.Errorf("a Challenge of %s that is forged or not there yet: %v", c.Namespace, err)
		}
	}
	victim.Create(t, genuine)
	start(t, victim, genuine)
	rig.Eventually(t, "the real Challenge is answered", func(ctx context.Context) string {
		if err := check.Check(ctx, solver.Task{Challenge: genuine}); err != nil {
			return err.Error()
		}
		return ""
	})
	for _, kind := range []string{"answered", "unknown"} {
		rig.Eventually(t, "a handshake is counted as "+kind, func(context.Context) string {
			if counted(t, "chancery_tlsalpn01_handshakes_total", kind) == 0 {
				return "none is"
			}
			return ""
		})
	}
}
