package orders_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig/fakeclock"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// account is that of an acme-dns server whose zone is that of the test's DNS server. Another cluster uses the account
// too: as soon as the first value has come, the other cluster sends two values. The server keeps the newest two.
type account struct {
	dns *rfc2136.Provider

	mu     sync.Mutex
	sent   int
	values []string
}

func (a *account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var body struct{ Txt string }
	err := json.NewDecoder(r.Body).Decode(&body)
	if a.sent++; err == nil && a.sent > 1 {
		record := dns01.Record{FQDN: "_acme-challenge.web-000.example.com.", Zone: "example.com.", Value: body.Txt, TTL: 1}
		err = a.dns.Present(r.Context(), record)
	}
	a.values = append(a.values, body.Txt)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// TestEvictedAnswersArePresentedAgain: acme-dns keeps two values, and another cluster has pushed ours out.
func TestEvictedAnswersArePresentedAgain(t *testing.T) {
	t.Parallel()
	w := newSwiftBy(t, fakeclock.New(t.Context()), nil)
	updates, err := rfc2136.New(rfc2136.Config{Nameserver: w.dns.Addr()}, rfc2136.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &account{dns: updates}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "accounts"}, StringData: map[string]string{
		"accounts.json": `{"web-000.example.com": {"username": "u", "password": "p", "fulldomain": "sub.example.com", "subdomain": "sub"}}`,
	}})
	w.RunAs(t, w.cfg, w.connection())
	i := w.start(t, &issuance{name: "web", change: func(spec *acmev1.ACMEIssuer) {
		withoutARI(spec)
		spec.Solvers[0] = acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{
			Host: server.URL, AccountSecretRef: cmmeta.SecretKeySelector{Name: "accounts", Key: "accounts.json"},
		}}}
	}})
	within(t, "the certificate is issued", func(ctx context.Context) string { return i.notReady(ctx, "web") })
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.values) != 2 || len(slices.Compact(slices.Clone(a.values))) != 1 {
		t.Errorf("sent %q, want one value twice", a.values)
	}
}
