package accounts

import (
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/golden"
)

// TestWaits is the table of the parks of an account.
func TestWaits(t *testing.T) {
	t.Parallel()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	problem := func(status int, code acme.Code, detail string) func(time.Duration) error {
		return func(asked time.Duration) error {
			return &acme.Problem{Status: status, Type: code.Type(), Detail: detail, RetryAfter: asked}
		}
	}
	page := func(status int, empty bool) func(time.Duration) error {
		return func(asked time.Duration) error {
			return &acmeclient.HTTPError{Action: acmeclient.ActionGetOrder, Method: "POST", Status: status, Empty: empty, RetryAfter: asked}
		}
	}
	var waits golden.Waits
	for _, c := range []struct {
		name   string
		answer func(asked time.Duration) error
	}{
		{"Permanent (400 badCSR)", problem(400, acme.CodeBadCSR, "")},
		{"Refused (403 unauthorized)", problem(403, acme.CodeUnauthorized, "")},
		{"RateLimited (429)", problem(429, acme.CodeRateLimited, "")},
		{"RateLimited (429 with a page)", page(429, false)},
		{"Paused (429 with a link)", problem(429, acme.CodeRateLimited, "see https://ca.test/unpause?jwt=x")},
		{"Unavailable (503)", problem(503, acme.CodeServerInternal, "")},
		{"Unavailable (502 with a page)", page(502, false)},
		{"NotProcessed (400 badNonce)", problem(400, acme.CodeBadNonce, "")},
		{"NotReady (403 orderNotReady)", problem(403, acme.CodeOrderNotReady, "")},
		{"NotFound (404)", page(404, true)},
		{"Unsure (404 with a page)", page(404, false)},
	} {
		waits.Add("parks", c.name, func(asked time.Duration, _ float64) func(int) string {
			now := time.Unix(1_800_000_000, 0)
			a, err := New(Options{Now: func() time.Time { return now }}).Open("i", Server{URL: "https://ca.test/dir"}, key)
			if err != nil {
				t.Fatal(err)
			}
			return func(int) string {
				if f := a.failure(t.Context(), a.current(), "", now, c.answer(asked)); !f.Unsure && !strings.HasPrefix(c.name, string(f.Class)) {
					t.Fatalf("%s has the class %s", c.name, f.Class)
				}
				until, _ := a.Parked()
				park := max(until.Sub(now), 0)
				now = now.Add(park)
				return golden.Text(park)
			}
		})
	}
	waits.Check(t, `A wait is a park of the account: nothing is sent for it meanwhile. Those who were refused wait by themselves, too. The
failures have no success between them. An order that a limit of the CA refuses (429) does not park the account.`)
}
