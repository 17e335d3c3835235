package orders_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/faulty"
	"chancery.dev/internal/rig/pebble"
)

// idle is a CA that takes every challenge, and never validates one.
func idle(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/chalZ/") {
			next.ServeHTTP(w, r)
			return
		}
		nonce := httptest.NewRecorder()
		next.ServeHTTP(nonce, httptest.NewRequestWithContext(r.Context(), http.MethodHead, "/nonce-plz", nil))
		w.Header().Set("Replay-Nonce", nonce.Header().Get("Replay-Nonce"))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"type":"dns-01","url":"https://%s%s","status":"processing","token":"x"}`, r.Host, r.URL.Path)
	})
}

// TestRule3_AnIdleCAHoldsANameForTenMinutes: two issuers prove one name. The CA of the first takes the challenge and
// gives no result. The second waits all the time, until the first has ended; nothing of the first is left pending at
// its CA.
func TestRule3_AnIdleCAHoldsANameForTenMinutes(t *testing.T) {
	t.Parallel()
	w := newSwift(t, func(o *pebble.Options) { o.Wrap = idle })
	w.RunAs(t, w.cfg, w.connection())
	first := w.start(t, &issuance{name: "first"})
	first.awaitRequest(t, faulty.Challenge)
	began := w.clock.Now()
	plain := *w
	plain.caIs.Wrap = nil
	second := plain.withCA(t).start(t, &issuance{name: "second", names: slices.Clone(first.names)})

	var ended time.Time
	within(t, "the second is issued", func(ctx context.Context) string {
		challenges, crt := &acmev1.ChallengeList{}, &certmanagerv1.Certificate{}
		if err := w.Client.List(ctx, challenges, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		held := false
		for _, c := range challenges.Items {
			mine := c.Spec.IssuerRef.Name == "first"
			since := c.Status.ValidatingSince // the name is free ten minutes later, whether the end is written or not
			over := since != nil && !w.clock.Now().Before(since.Add(10*time.Minute))
			held = held || mine && !c.Status.State.IsFinal() && !over
			if mine && c.Status.State == acmev1.Errored && strings.Contains(c.Status.Reason, "no result within 10m0s") && ended.IsZero() {
				ended = w.clock.Now()
			}
		}
		for _, c := range challenges.Items {
			if held && c.Spec.IssuerRef.Name == "second" && c.Spec.DNSName == first.names[0] && c.Status.Processing {
				t.Errorf("two Challenges for %s at once: %+v", c.Spec.DNSName, challenges.Items)
			}
		}
		if err := second.Get(ctx, second.name, crt); err != nil {
			return err.Error()
		}
		if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
			return fmt.Sprintf("%+v; clock %s", crt.Status.Conditions, w.clock)
		}
		return ""
	})
	if waited := ended.Sub(began); ended.IsZero() || waited < 9*time.Minute {
		t.Errorf("the first ended after %s", waited)
	}
	within(t, "its authorization is given up", func(context.Context) string {
		if slices.ContainsFunc(first.proxy.Seen(), func(r faulty.Request) bool { return r.Step == faulty.Deactivation }) {
			return ""
		}
		return fmt.Sprint(first.proxy.Seen())
	})
}

// TestRule3_SilentCAsOfOneTenantLeaveRoom: 130 names, of one tenant or of three, are at a CA that takes each challenge
// and never gives a result. The certificate of another tenant, who asks at once and again two minutes later, comes
// within the half minute that a challenge may wait for its CA while others wait, and the time that it takes by itself.
func TestRule3_SilentCAsOfOneTenantLeaveRoom(t *testing.T) {
	for _, tenants := range []int{1, 3} {
		t.Run(fmt.Sprint(tenants), func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			told := map[string]bool{} // the challenges that the CA was told to validate
			w := newSwift(t, func(o *pebble.Options) {
				o.Wrap = func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						if strings.Contains(r.URL.Path, "/chalZ/") {
							mu.Lock()
							told[r.URL.Path] = true
							mu.Unlock()
						}
						idle(next).ServeHTTP(rw, r)
					})
				}
			})
			plain := *w
			plain.caIs.Wrap = nil
			healthy := plain.withCA(t)
			healthy.World = rig.NewWorld(t)
			w.cfg.Scope.Namespaces = append(w.cfg.Scope.Namespaces, healthy.Namespace)
			crowd := []*swift{w}
			for len(crowd) < tenants {
				other := *w
				other.World = rig.NewWorld(t)
				w.cfg.Scope.Namespaces = append(w.cfg.Scope.Namespaces, other.Namespace)
				crowd = append(crowd, &other)
			}
			w.RunAs(t, w.cfg, w.connection())
			for n, tenant := range crowd {
				tenant.start(t, &issuance{name: fmt.Sprintf("silent-%d", n), size: 130 / tenants})
			}
			within(t, "all slots are taken", func(context.Context) string {
				mu.Lock()
				defer mu.Unlock()
				if len(told) < 60 {
					return fmt.Sprintf("the CA was told of %d; clock %s", len(told), w.clock)
				}
				return ""
			})
			began := w.clock.Now()
			for round, name := range []string{"at-once", "later"} {
				if round > 0 {
					within(t, "two minutes are over", func(context.Context) string {
						if w.clock.Now().Before(began.Add(2 * time.Minute)) {
							return w.clock.String()
						}
						return ""
					})
				}
				asked := w.clock.Now()
				healthy.start(t, &issuance{name: name, change: withoutARI})
				issued := time.Time{}
				within(t, name+" is issued", func(ctx context.Context) string {
					crt := &certmanagerv1.Certificate{}
					if err := healthy.Get(ctx, name, crt); err != nil {
						return err.Error()
					}
					ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
					if ready == nil || ready.Status != cmmeta.ConditionTrue {
						return fmt.Sprintf("%+v; clock %s", crt.Status.Conditions, w.clock)
					}
					issued = ready.LastTransitionTime.Time
					return ""
				})
				if took := issued.Sub(asked); took > 45*time.Second {
					t.Errorf("%s came after %s", name, took)
				} else {
					t.Logf("%s came after %s", name, took)
				}
			}
		})
	}
}
