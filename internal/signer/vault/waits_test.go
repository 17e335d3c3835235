package vault

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/golden"
)

// TestWaits is the table of the waits of requests and issuers after what Vault answers. It asks by Retry-After.
func TestWaits(t *testing.T) {
	t.Parallel()
	const login = "/v1/auth/approle/login"
	var seconds atomic.Int64
	vault := newStandIn(t, func(s *httptest.Server) {
		next := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := seconds.Load(); n > 0 {
				w.Header().Set("Retry-After", strconv.FormatInt(n, 10))
			}
			next.ServeHTTP(w, r)
		})
		s.Start()
	})
	w, r := newWorld(t, vault), request(t, "r", "CertificateRequest")
	byToken, byRole := w.issuer("team", w.byToken), w.issuer("role", w.byAppRole)
	w.secrets["role/approle"] = w.secrets["team/approle"]
	sign := func() error { _, err := w.sign(byToken, r); return err }
	logIn := func() error { _, err := w.Probe(t.Context(), byRole); return err }
	var waits golden.Waits
	for _, c := range []struct {
		name, path string
		code       int
		text       string
		call       func() error
	}{
		{"Policy (400)", signPath, 400, "common name leaf not allowed by this role", sign},
		{"NotFound (400 unknown role)", signPath, 400, "unknown role: web", sign},
		{"Credential (403)", signPath, 403, "permission denied", sign},
		{"NotFound (404)", signPath, 404, "no handler for route", sign},
		{"NotFound (404 with a page)", signPath, 404, "<html>", sign},
		{"Unavailable (429)", signPath, 429, "rate limit quota exceeded", sign},
		{"Unavailable (500)", signPath, 500, "internal error", sign},
		{"Unavailable (503)", signPath, 503, "Vault is sealed", sign},
		{"Unavailable (503 with a page)", signPath, 503, "<html>", sign},
		{"Unavailable (429 of its health)", "/v1/sys/health", 429, "rate limit quota exceeded", logIn},
		{"Unavailable (429 of its health with a page)", "/v1/sys/health", 429, "<html>", logIn},
		{"Unavailable (503 of its health)", "/v1/sys/health", 503, "<html>", logIn},
		{"Credential (400 at login)", login, 400, "invalid role or secret ID", logIn},
		{"Unavailable (429 at login)", login, 429, "rate limit quota exceeded", logIn},
		{"Unavailable (503 at login)", login, 503, "<html>", logIn},
	} {
		vault.with(func() { vault.say = map[string]answering{c.path: {c.code, c.text}} })
		waits.Add("Vault", c.name, func(asked time.Duration, chance float64) func(int) string {
			return func(failures int) string {
				seconds.Store(int64(asked.Seconds()))
				err := c.call()
				if f := fault.Of(err); f == nil || !strings.HasPrefix(c.name, string(f.Class)) {
					t.Fatalf("%s is %+v", c.name, f)
				}
				return golden.TextOrNever(engine.BackOff(err, failures, chance))
			}
		})
	}
	waits.Check(t, "Vault asks by Retry-After. The request fails for good where it says never.")
}
