package stories_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
)

// beside is another cluster, with an account of its own at the same CA and rights in the same DNS.
func (w *watched) beside(t *testing.T) *watched {
	t.Helper()
	other := &watched{calls: w.calls, acmeWorld: &acmeWorld{World: rig.NewWorld(t), ca: w.ca, dns: w.dns, http: rig.FreeAddress(t)}}
	other.cfg = other.Config()
	other.Create(t, &corev1.Secret{ObjectMeta: named("tsig"), StringData: map[string]string{"key": tsigSecret}})
	return other
}

func (w *watched) labelledSolver() acmev1.ACMEChallengeSolver {
	s := w.dnsSolver()
	s.DNS01.AccountLabel = true
	return s
}

// awaitRecords waits until DNS holds records, one value or more, of exactly these names.
func (w *watched) awaitRecords(t *testing.T, names ...string) {
	t.Helper()
	names = slices.Sorted(slices.Values(names))
	rig.Eventually(t, fmt.Sprintf("records %q", names), func(context.Context) string {
		var left []string
		for _, record := range w.dns.TXT() {
			name, _, _ := strings.Cut(record, " ")
			left = append(left, name)
		}
		if left = slices.Compact(left); !slices.Equal(left, names) {
			return fmt.Sprintf("%q", left)
		}
		return ""
	})
}

// TestAccountLabel: two clusters prove one name at the same time by DNS-ACCOUNT-01, each by the record of
// its account. Neither touches the other's, nor that of DNS-01, and both take away what they made.
func TestAccountLabel(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	clusters := []*watched{w, w.beside(t)}
	w.dns.SetMode(0, dnsserver.NXDomain) // what is in flight stays so
	const name = "_acme-challenge.web.example.com."
	w.publish(t, name, "of somebody else")
	records := []string{name}
	for _, c := range clusters {
		c.run(t)
		c.withIssuer(t, c.labelledSolver())
		account := c.awaitIssuer(t, "acme", cmmeta.ConditionTrue, "").Status.ACME.URI
		records = append(records, acme.DNS01Name("web.example.com.", acme.AccountLabel(account)))
		c.Create(t, certificate(c.World, "web", "acme", "web.example.com", "*.web.example.com"))
	}
	w.awaitRecords(t, records...)
	for i, c := range clusters {
		ours := c.awaitChallenge(t, "says what it waits for", func(c *acmev1.Challenge) bool {
			return c.Spec.Type == acmev1.ChallengeTypeDNSAccount01 && strings.Contains(c.Status.Reason, "TXT "+records[i+1]) && strings.Contains(c.Status.Reason, "NXDOMAIN")
		})
		if !strings.HasPrefix(records[i+1], "_"+ours.Spec.AccountLabel+".") {
			t.Errorf("the label %q is not that of %s", ours.Spec.AccountLabel, records[i+1])
		}
	}
	w.dns.SetMode(0, dnsserver.Normal)
	for _, c := range clusters {
		awaitReady(t, c.World, "web")
		c.verify(t, "web", "web.example.com", "*.web.example.com")
	}
	w.awaitRecords(t, name)
}

// TestAccountLabelOutlivesTheAccount: the record is taken away after a restart, without the issuer, its
// key or an account: the Challenge itself says which record it is.
func TestAccountLabelOutlivesTheAccount(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.dns.SetMode(0, dnsserver.NXDomain)
	stop := w.run(t)
	w.withIssuer(t, w.labelledSolver())
	account := w.awaitIssuer(t, "acme", cmmeta.ConditionTrue, "").Status.ACME.URI
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	w.awaitRecords(t, acme.DNS01Name("web.example.com.", acme.AccountLabel(account)))
	stop()
	for _, object := range []client.Object{
		&certmanagerv1.ClusterIssuer{ObjectMeta: named(w.ClusterName("acme"))},
		&corev1.Secret{ObjectMeta: named("account")}, &certmanagerv1.Certificate{ObjectMeta: named("web")},
	} {
		if object.GetName() != w.ClusterName("acme") {
			object.SetNamespace(w.Namespace)
		}
		if err := w.Client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range w.challenges(t.Context(), t) {
		if err := w.Client.Delete(t.Context(), &c); err != nil {
			t.Fatal(err)
		}
	}
	w.run(t)
	w.NothingLeft(t, w.dns.TXT)
}
