package stories_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
)

// TestRule1OrdersAndChallenges: each request gets one Order, each name of it one
// Challenge; neither can be changed; both end with the certificate.
func TestRule1OrdersAndChallenges(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	w.withIssuer(t, w.dnsSolver())
	h := w.record(t)
	w.Create(t, certificate(w.World, "web", "acme", "a.example.com", "*.a.example.com", "b.example.com"))
	awaitReady(t, w.World, "web")
	w.verify(t, "web", "a.example.com", "*.a.example.com", "b.example.com")

	orders := w.orders(t)
	if len(orders) != 1 {
		t.Fatalf("%d Orders for one request", len(orders))
	}
	request := &certmanagerv1.CertificateRequest{}
	if err := w.Get(t.Context(), "web-1", request); err != nil {
		t.Fatal(err)
	}
	order := &orders[0]
	if !metav1.IsControlledBy(order, request) || order.Status.State != acmev1.Valid {
		t.Errorf("owners %+v, state %s", order.OwnerReferences, order.Status.State)
	}
	changed := order.DeepCopy()
	changed.Spec.DNSNames = []string{"c.example.com"}
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(order)); err == nil || !strings.Contains(err.Error(), "cannot be changed") {
		t.Errorf("the Order was changed: %v", err)
	}
	made := map[string]int{}
	h.each(func(old, now *acmev1.Challenge, _ bool) {
		if old == nil {
			made[fmt.Sprintf("%s %v", now.Spec.DNSName, now.Spec.Wildcard)]++
			if !metav1.IsControlledBy(now, order) || !slices.Contains(now.Finalizers, acmev1.ChallengeFinalizer) {
				t.Errorf("%s: owners %+v, finalizers %v", now.Name, now.OwnerReferences, now.Finalizers)
			}
		}
	})
	want := map[string]int{"a.example.com false": 1, "a.example.com true": 1, "b.example.com false": 1}
	if fmt.Sprint(made) != fmt.Sprint(want) {
		t.Errorf("Challenges %v, want %v", made, want)
	}
	rig.Eventually(t, "nothing is left", func(ctx context.Context) string {
		if left := len(w.challenges(ctx, t)) + len(w.dns.TXT()); left > 0 {
			return fmt.Sprintf("%d Challenges, records %v", len(w.challenges(ctx, t)), w.dns.TXT())
		}
		return ""
	})
}

// TestRule2QueuedUntilScheduled: before the scheduler sets processing, nothing happens,
// however long that takes; and a Challenge cannot be changed.
func TestRule2QueuedUntilScheduled(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	full := w.cfg
	full.ACME.Limits.Cap = 0 // blocks everything
	stop := w.Run(t, full)
	w.withIssuer(t, w.dnsSolver())
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	c := w.awaitChallenge(t, "is queued", func(*acmev1.Challenge) bool { return true })
	before := w.calls.count("POST")
	// That nothing happens has no event: what others get done meanwhile says that time has passed.
	withCA(t, w.World)
	awaitReady(t, w.World, "root")
	if again := w.awaitChallenge(t, "is there", func(*acmev1.Challenge) bool { return true }); again.ResourceVersion != c.ResourceVersion {
		t.Errorf("a queued Challenge was written: %+v", again.Status)
	}
	if n := w.calls.count("POST"); n != before || len(w.dns.TXT()) > 0 {
		t.Errorf("%d calls to the CA and records %v for a queued Challenge", n-before, w.dns.TXT())
	}
	if !reflect.DeepEqual(c.Status, acmev1.ChallengeStatus{}) {
		t.Errorf("status %+v", c.Status)
	}
	changed := c.DeepCopy()
	changed.Spec.DNSName = "other.example.com"
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(c)); err == nil || !strings.Contains(err.Error(), "cannot be changed") {
		t.Errorf("the Challenge was changed: %v", err)
	}
	stop()
	h := w.record(t)
	w.run(t)
	awaitReady(t, w.World, "web")
	h.each(func(old, now *acmev1.Challenge, gone bool) {
		if old != nil && now.Status.Presented && !old.Status.Presented && !old.Status.Processing {
			t.Error("presented before it was processing")
		}
	})
}

// TestRule3CapAndNames: never more than the cap in flight, never two for one name
// and type, also while another process takes over from the leader.
func TestRule3CapAndNames(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.cfg.ACME.Limits.Cap = 2
	leader := w.run(t)
	w.withIssuer(t, w.dnsSolver())
	h := w.record(t)
	w.dns.SetMode(0, dnsserver.NXDomain) // what is in flight stays so
	for i := range 3 {
		name := fmt.Sprintf("c%d", i)
		w.Create(t, certificate(w.World, name, "acme", name+".example.com", "*."+name+".example.com", "shared.example.com"))
	}
	rig.Eventually(t, "two are in flight, and seven wait", func(ctx context.Context) string {
		presented, all := 0, w.challenges(ctx, t)
		for _, c := range all {
			if c.Status.Processing && c.Status.Presented {
				presented++
			}
		}
		if presented < 2 || len(all) < 9 {
			return fmt.Sprintf("%d of %d", presented, len(all))
		}
		return ""
	})
	leader()
	w.run(t)
	w.dns.SetMode(0, dnsserver.Normal)
	for i := range 3 {
		awaitReady(t, w.World, fmt.Sprintf("c%d", i))
	}
	running, most, started := map[string]string{}, 0, 0
	h.each(func(_, now *acmev1.Challenge, gone bool) {
		key := now.Spec.DNSName + " " + string(now.Spec.Type)
		if !now.Status.Processing || gone {
			if running[key] == now.Name {
				delete(running, key)
			}
			return
		}
		if other := running[key]; other != "" && other != now.Name {
			t.Errorf("%s and %s were processing for %s at once", other, now.Name, key)
		}
		if running[key] == "" {
			started++
		}
		running[key] = now.Name
		most = max(most, len(running))
	})
	if most != 2 || started < 7 {
		t.Errorf("at most %d were processing, %d starts; want 2, and at least 7", most, started)
	}
}

// TestRule4AlreadyValid: an authorization that has become valid elsewhere needs no
// presenting.
func TestRule4AlreadyValid(t *testing.T) {
	t.Parallel()
	w := newWatched(t, func(o *pebble.Options) { o.AlwaysValid = true })
	full := w.cfg
	full.ACME.Limits.Cap = 0
	stop := w.Run(t, full)
	w.withIssuer(t, w.dnsSolver())
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	c := w.awaitChallenge(t, "is queued", func(*acmev1.Challenge) bool { return true })
	stop()
	elsewhere(t, w, c)
	h := w.record(t)
	w.run(t)
	awaitReady(t, w.World, "web")
	valid := 0
	h.each(func(old, now *acmev1.Challenge, _ bool) {
		if now.Status.Presented {
			t.Error("it was presented")
		}
		if now.Status.State == acmev1.Valid && old != nil && old.Status.State != acmev1.Valid {
			valid++
			if now.Status.Processing || !old.Status.Processing {
				t.Errorf("from %+v to %+v", old.Status, now.Status)
			}
		}
	})
	if valid != 1 {
		t.Errorf("it became valid %d times", valid)
	}
}

// elsewhere accepts a Challenge as another user of the account's key.
func elsewhere(t *testing.T, w *watched, c *acmev1.Challenge) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), "account", secret); err != nil {
		t.Fatal(err)
	}
	if len(secret.Data) != 1 || secret.Labels["app.kubernetes.io/managed-by"] != "cert-manager" {
		t.Errorf("the account's Secret has %d entries, labels %v", len(secret.Data), secret.Labels)
	}
	key, err := pki.DecodePrivateKey(secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	other, err := acmeclient.New(acmeclient.Options{DirectoryURL: w.ca.DirectoryURL, HTTPClient: w.ca.HTTPClient(), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.LookupAccount(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.AcceptChallenge(t.Context(), c.Spec.URL); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the authorization is valid", func(ctx context.Context) string {
		authz, err := other.GetAuthorization(ctx, c.Spec.AuthorizationURL)
		if err != nil || authz.Status != acme.StatusValid {
			return fmt.Sprintf("%+v, %v", authz, err)
		}
		return ""
	})
}

// TestRule5SelfCheck: what cannot be seen yet is not validated, is tried again at
// the latest every 10 s, and says so; once it can be seen the CA is told.
func TestRule5SelfCheck(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	w.withIssuer(t, w.dnsSolver())
	w.dns.SetMode(0, dnsserver.NXDomain)
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	c := w.awaitChallenge(t, "says what its self check misses", func(c *acmev1.Challenge) bool {
		return c.Status.Presented && strings.Contains(c.Status.Reason, "Waiting for DNS-01 challenge propagation")
	})
	if !c.Status.Processing || c.Status.State != acmev1.Pending || len(w.dns.TXT()) != 1 {
		t.Errorf("status %+v, records %v", c.Status, w.dns.TXT())
	}
	if n := w.calls.count("/chalZ/"); n > 0 {
		t.Errorf("the CA was told %d times to look at what cannot be seen", n)
	}
	before := w.dns.Queries(0, 16)
	rig.Eventually(t, "it is tried again", func(context.Context) string {
		if n := w.dns.Queries(0, 16); n < before+2 {
			return fmt.Sprintf("%d queries after %d", n, before)
		}
		return ""
	})
	w.dns.SetMode(0, dnsserver.Normal)
	awaitReady(t, w.World, "web")
	w.verify(t, "web", "web.example.com")
}

// TestRule5HTTP01: the route is seen in use before the CA is told.
func TestRule5HTTP01(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	w.withIssuer(t, httpSolver())
	w.Create(t, certificate(w.World, "web", "acme", "a.example.com", "b.example.com"))
	awaitReady(t, w.World, "web")
	w.verify(t, "web", "a.example.com", "b.example.com")
}

// TestRule6EndFreesSlot: a final state comes with processing=false, and the next one starts, although the CA has been
// told to give the first one up.
func TestRule6EndFreesSlot(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.cfg.ACME.Limits.Cap = 1
	w.run(t)
	w.withIssuer(t, w.dnsSolver())
	h := w.record(t)
	w.dns.SetMode(0, dnsserver.NXDomain) // else the first one may be over before anybody looks
	failing := certificate(w.World, "failing", "acme", "failing.example.com")
	w.Create(t, failing)
	c := w.awaitChallenge(t, "is presented", func(c *acmev1.Challenge) bool { return c.Status.Presented })
	fail(t, w, c)
	w.dns.SetMode(0, dnsserver.Normal)
	w.Create(t, certificate(w.World, "next", "acme", "next.example.com"))
	awaitReady(t, w.World, "next")
	ended := map[acmev1.State]int{}
	h.each(func(old, now *acmev1.Challenge, _ bool) {
		if now.Status.State.IsFinal() && now.Status.Processing {
			t.Errorf("final and processing: %+v", now.Status)
		}
		if now.Status.State.IsFinal() && (old == nil || !old.Status.State.IsFinal()) {
			ended[now.Status.State]++
			if now.Status.State == acmev1.Invalid && now.Status.Reason == "" {
				t.Error("it failed without a reason")
			}
		}
	})
	if ended[acmev1.Valid] == 0 {
		t.Errorf("ended %v", ended)
	}
}

// fail deactivates the authorization of a Challenge at the CA.
func fail(t *testing.T, w *watched, c *acmev1.Challenge) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), "account", secret); err != nil {
		t.Fatal(err)
	}
	key, err := pki.DecodePrivateKey(secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	other, err := acmeclient.New(acmeclient.Options{DirectoryURL: w.ca.DirectoryURL, HTTPClient: w.ca.HTTPClient(), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.LookupAccount(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = other.DeactivateAuthorization(t.Context(), c.Spec.AuthorizationURL)
}
