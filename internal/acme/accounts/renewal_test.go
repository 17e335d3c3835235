package accounts_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// ariServer is a CA of which only the directory and the renewal information are there.
func ariServer(t *testing.T, directory string, info http.HandlerFunc) *accounts.Account {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/dir", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"newNonce":"/n","newAccount":"/a","newOrder":"/o"` + directory + `}`))
	})
	mux.HandleFunc("/ari/", info)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	r := accounts.New(accounts.Options{Now: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }})
	a, err := r.Open("issuer", accounts.Server{URL: server.URL + "/dir"}, key)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestRenewalInfo(t *testing.T) {
	const window = `{"suggestedWindow":{"start":"2026-02-01T00:00:00Z","end":"2026-02-02T00:00:00Z"},"explanationURL":"https://ca.example/why"}`
	a := ariServer(t, `,"renewalInfo":"/ari"`, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/known.1"):
			w.Header().Set("Retry-After", "21600")
			_, _ = w.Write([]byte(window))
		case strings.HasSuffix(r.URL.Path, "/busy.1"):
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	if !a.OffersRenewalInfo() {
		t.Error("what is not known is taken for a no")
	}
	info, failure := a.RenewalInfo(t.Context(), "known.1")
	if failure != nil || info.RetryAfter != 6*time.Hour || info.SuggestedWindow.Start.Day() != 1 || info.ExplanationURL == "" {
		t.Errorf("%+v, %+v", info, failure)
	}
	_, failure = a.RenewalInfo(t.Context(), "busy.1")
	if f := fault.Of(failure); f == nil || f.Class != fault.ClassRateLimited || f.Delay != time.Minute {
		t.Errorf("%+v", failure)
	}
	if until, _ := a.Parked(); !until.IsZero() {
		t.Errorf("a limit on renewal information parks the account until %s", until)
	}
	if _, failure = a.RenewalInfo(t.Context(), "unknown.1"); failure == nil {
		t.Error("an unknown certificate has renewal information")
	}
}

func TestNoRenewalInfo(t *testing.T) {
	a := ariServer(t, "", http.NotFound)
	if info, failure := a.RenewalInfo(t.Context(), "a.1"); info != nil || failure != nil || a.OffersRenewalInfo() {
		t.Errorf("%+v, %+v, offered %t", info, failure, a.OffersRenewalInfo())
	}
}
