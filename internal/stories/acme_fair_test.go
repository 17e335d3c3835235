package stories_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
)

// TestNeverStarved: with every slot taken by challenges that get nowhere, those of a
// healthy issuer are validated all the same, and the others are kept.
func TestNeverStarved(t *testing.T) {
	t.Parallel()
	t.Run("a solver that fails", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t, nil)
		w.cfg.ACME.Limits.Cap = 2
		w.run(t)
		w.withIssuer(t, w.dnsSolver())
		broken := w.dnsSolver()
		broken.DNS01.RFC2136.TSIGKeyName = "nobody"
		w.Create(t, clusterIssuer(w.World, "broken", w.spec(broken)))
		overtaken(t, w)
	})
	t.Run("a CA that is silent", func(t *testing.T) {
		t.Parallel()
		w := newWatched(t, nil)
		w.cfg.ACME.Limits.Cap = 2
		w.run(t)
		w.withIssuer(t, w.dnsSolver())
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		silent, err := pebble.Start(ctx, pebble.Options{DNSServer: w.dns.Addr(), Wrap: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/chalZ/") {
					select {
					case <-ctx.Done():
					case <-r.Context().Done():
					}
					return
				}
				next.ServeHTTP(rw, r)
			})
		}})
		if err != nil {
			t.Fatal(err)
		}
		spec := w.spec(w.dnsSolver())
		spec.ACME.Server, spec.ACME.CABundle, spec.ACME.PrivateKey.Name = silent.DirectoryURL, silent.TLSBundle, "silent"
		w.Create(t, clusterIssuer(w.World, "broken", spec))
		overtaken(t, w)
	})
}

// overtaken fills the slots with challenges of the issuer "broken" and then has one
// of "acme" issued.
func overtaken(t *testing.T, w *watched) {
	t.Helper()
	w.awaitIssuer(t, "broken", cmmeta.ConditionTrue, "")
	for i := range 4 {
		w.Create(t, certificate(w.World, fmt.Sprintf("stuck%d", i), "broken", fmt.Sprintf("stuck%d.example.com", i)))
	}
	rig.Eventually(t, "all slots are taken", func(ctx context.Context) string {
		processing := 0
		all := w.challenges(ctx, t)
		for _, c := range all {
			if c.Status.Processing {
				processing++
			}
		}
		if len(all) < 4 || processing < 2 {
			return fmt.Sprintf("%d of %d", processing, len(all))
		}
		return ""
	})
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		challenges := &acmev1.ChallengeList{}
		if err := w.Client.List(context.Background(), challenges, client.InNamespace(w.Namespace)); err != nil {
			t.Log(err)
		}
		for _, c := range challenges.Items {
			t.Logf("%s: %+v", c.Spec.DNSName, c.Status)
		}
	})
	began := time.Now()
	w.Create(t, certificate(w.World, "healthy", "acme", "healthy.example.com"))
	awaitReady(t, w.World, "healthy")
	t.Logf("the healthy one took %s", time.Since(began).Round(10*time.Millisecond))
	kept := 0
	for _, c := range w.challenges(t.Context(), t) {
		if strings.HasPrefix(c.Spec.DNSName, "stuck") && !c.Status.State.IsFinal() && c.DeletionTimestamp == nil {
			kept++
		}
	}
	if kept != 4 {
		t.Errorf("%d of 4 are kept", kept)
	}
}

// TestIssuerDeletedMidway: what waits for an issuer says so, and goes on when it is back.
func TestIssuerDeletedMidway(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	full := w.cfg
	full.ACME.Limits.Cap = 0
	stop := w.Run(t, full)
	w.withIssuer(t, w.dnsSolver())
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	w.awaitChallenge(t, "is queued", func(*acmev1.Challenge) bool { return true })
	issuer := w.awaitIssuer(t, "acme", cmmeta.ConditionTrue, "")
	if err := w.Client.Delete(t.Context(), issuer); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the Order says what is missing", func(context.Context) string {
		o := w.orders(t)[0]
		if !strings.Contains(o.Status.Reason, "to exist") {
			return o.Status.Reason
		}
		return ""
	})
	stop()
	w.run(t)
	w.Create(t, clusterIssuer(w.World, "acme", w.spec(w.dnsSolver())))
	awaitReady(t, w.World, "web")
	w.verify(t, "web", "web.example.com")
}

// TestOrderDeletedByHand: that is how a person starts anew (mission rule 5). What was
// presented goes away, and the request gets another Order.
func TestOrderDeletedByHand(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	w.withIssuer(t, w.dnsSolver())
	w.dns.SetMode(0, dnsserver.NXDomain)
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	old := w.awaitChallenge(t, "is presented", func(c *acmev1.Challenge) bool { return c.Status.Presented })
	first := w.orders(t)[0]
	if err := w.Client.Delete(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	w.awaitChallenge(t, "takes the place of the old one", func(c *acmev1.Challenge) bool { return c.UID != old.UID && c.Status.Presented })
	rig.Eventually(t, "the old one is gone", func(ctx context.Context) string {
		if all := w.challenges(ctx, t); len(all) != 1 || len(w.dns.TXT()) != 1 {
			return fmt.Sprintf("%d Challenges, records %v", len(all), w.dns.TXT())
		}
		return ""
	})
	w.dns.SetMode(0, dnsserver.Normal)
	awaitReady(t, w.World, "web")
	if orders := w.orders(t); len(orders) != 1 || orders[0].UID == first.UID {
		t.Errorf("%d Orders", len(orders))
	}
	w.NothingLeft(t, w.dns.TXT)
}

// TestNamespaceGoesThoughCleanUpFails: a namespace that is deleted is not kept by a Challenge
// whose record cannot be taken away.
func TestNamespaceGoesThoughCleanUpFails(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	w.withIssuer(t, w.dnsSolver())
	w.dns.SetMode(0, dnsserver.NXDomain)
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	w.awaitChallenge(t, "is presented", func(c *acmev1.Challenge) bool { return c.Status.Presented })
	w.setTSIG(t, tsigSecretOther())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	if err := w.Client.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the namespace is gone", func(ctx context.Context) string {
		err := w.Get(ctx, w.Namespace, namespace)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%v, %+v, Challenges %+v", err, namespace.Status, w.challenges(ctx, t))
	})
	if left := len(w.dns.TXT()); left != 1 {
		t.Errorf("%d records: was the clean-up meant to fail?", left)
	}
}
