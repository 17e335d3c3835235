package orders_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
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
