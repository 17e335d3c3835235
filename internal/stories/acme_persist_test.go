package stories_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme/dnspersist"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// publish puts a TXT record where the owner of example.com would.
func (w *acmeWorld) publish(t *testing.T, fqdn, value string) {
	t.Helper()
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	updates, err := rfc2136.New(rfc2136.Config{Nameserver: w.dns.Addr(), Key: key}, rfc2136.Options{})
	if err == nil {
		err = updates.Present(t.Context(), dns01.Record{FQDN: fqdn, Zone: "example.com.", Value: value, TTL: 60})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPersistentRecord: without any credentials, the Challenges of a name and its wildcard say which
// record is needed, and what is there instead; once it is there the certificate is issued, with a
// warning of the record's end; the record stays, and serves again.
func TestPersistentRecord(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.cfg.ACME.CheckRetryPeriod = time.Second
	w.run(t)
	w.withIssuer(t, acmev1.ACMEChallengeSolver{DNSPersist01: &acmev1.DNSPersist01Solver{}})
	account := w.awaitIssuer(t, "acme", cmmeta.ConditionTrue, "").Status.ACME.URI
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com", "*.web.example.com"))

	name, value := dnspersist.Name("web.example.com"), "pebble.letsencrypt.org; accounturi="+account
	says := func(wildcard bool, words ...string) {
		t.Helper()
		w.awaitChallenge(t, fmt.Sprintf("says %q (wildcard: %v)", words, wildcard), func(c *acmev1.Challenge) bool {
			for _, word := range words {
				if !strings.Contains(c.Status.Reason, word) {
					return false
				}
			}
			return c.Spec.Wildcard == wildcard && c.Status.State == acmev1.Pending
		})
	}
	says(false, "DNS-PERSIST-01", name, "TXT", fmt.Sprintf("%q", value), "no TXT record")
	says(true, name, fmt.Sprintf("%q", value+"; policy=wildcard"), "no TXT record")
	if left := w.dns.TXT(); len(left) > 0 {
		t.Errorf("the records %q were made", left)
	}
	w.publish(t, name, value+"0; policy=wildcard")
	says(false, fmt.Sprintf("of another account, %q", account+"0"))
	says(true, fmt.Sprintf("of another account, %q", account+"0"))
	end := time.Now().Add(30 * 24 * time.Hour).UTC().Truncate(time.Second)
	w.publish(t, name, fmt.Sprintf("%s; policy=wildcard; persistUntil=%d", value, end.Unix()))
	awaitReady(t, w.World, "web")
	w.verify(t, "web", "web.example.com", "*.web.example.com")
	w.awaitEvent(t, acmev1.ChallengeReasonRecordExpires, "holds until "+end.Format(time.RFC3339))

	records := w.dns.TXT()
	w.Create(t, certificate(w.World, "again", "acme", "*.web.example.com"))
	awaitReady(t, w.World, "again")
	rig.Eventually(t, "no Challenge is left", func(ctx context.Context) string {
		if left := w.challenges(ctx, t); len(left) > 0 {
			return fmt.Sprintf("%+v", left[0].Status)
		}
		return ""
	})
	if left := w.dns.TXT(); len(left) != len(records) || len(left) != 2 {
		t.Errorf("the records were %q, now they are %q", records, left)
	}
}

// TestPersistentRecordNotLooked: a wait in place of the self check works, and a name that the issuer's
// wish is wrong for says so in the Order.
func TestPersistentRecordNotLooked(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	short := &metav1.Duration{Duration: time.Millisecond}
	w.withIssuer(t,
		acmev1.ACMEChallengeSolver{DNSPersist01: &acmev1.DNSPersist01Solver{Nameservers: []string{"127.0.0.1:1"}}, WaitInsteadOfSelfCheck: short},
		acmev1.ACMEChallengeSolver{
			Selector:     &acmev1.CertificateDNSNameSelector{DNSNames: []string{"wrong.example.com"}},
			DNSPersist01: &acmev1.DNSPersist01Solver{IssuerDomainName: "ca.example"},
		})
	account := w.awaitIssuer(t, "acme", cmmeta.ConditionTrue, "").Status.ACME.URI
	w.publish(t, dnspersist.Name("web.example.com"), "pebble.letsencrypt.org; accounturi="+account)
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"), certificate(w.World, "wrong", "acme", "wrong.example.com"))
	awaitReady(t, w.World, "web")
	rig.Eventually(t, "the Order says what is wrong", func(context.Context) string {
		said := ""
		for _, o := range w.orders(t) {
			if said += o.Status.Reason + "; "; strings.Contains(o.Status.Reason, `"ca.example" is not one of those that the ACME server lists: pebble.letsencrypt.org`) {
				return ""
			}
		}
		return said
	})
}

// awaitEvent waits for a Warning about a Challenge that says a text.
func (w *watched) awaitEvent(t *testing.T, reason, text string) {
	t.Helper()
	rig.Eventually(t, "an event "+reason, func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		said := ""
		for _, e := range events.Items {
			if said += e.Reason + ": " + e.Message + "\n"; e.Type == corev1.EventTypeWarning && e.Reason == reason && strings.Contains(e.Message, text) {
				return ""
			}
		}
		return said
	})
}
