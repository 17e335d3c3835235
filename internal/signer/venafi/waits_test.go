package venafi

import (
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/golden"
	"chancery.dev/internal/rig/tppserver"
)

// TestWaits is the table of the waits of requests and issuers after what Certificate Manager answers.
func TestWaits(t *testing.T) {
	t.Parallel()
	const (
		request, retrieve = "/vedsdk/certificates/request", "/vedsdk/certificates/retrieve"
		zone, login       = "/vedsdk/certificates/checkpolicy", "/vedauth/authorize/oauth"
	)
	tpp := tppserver.Start(t)
	var waits golden.Waits
	for _, c := range []struct {
		name, path string
		code       int
		body       string
	}{
		{"Policy (400)", request, 400, `{"Error":"domain not allowed"}`},
		{"Credential (403)", request, 403, `{"error":"insufficient_scope"}`},
		{"RateLimited (429)", request, 429, ""},
		{"Unavailable (503)", request, 503, "<html>"},
		{"Unavailable (404 with a page)", request, 404, "<html>"},
		{"NotFound (400 no zone)", zone, 400, `{"Error":"PolicyDN: x does not exist"}`},
		{"RateLimited (429 of the zone)", zone, 429, ""},
		{"Policy (500 of the CA behind it)", retrieve, 500, `{"Stage":500,"Status":"the template is disabled"}`},
		{"pending (202)", retrieve, 202, `{"Stage":300,"Status":"waits for approval"}`},
		{"RateLimited (429 at login)", login, 429, ""},
		{"Credential (400 at login)", login, 400, `{"error":"invalid_grant"}`},
	} {
		waits.Add("Venafi", c.name, func(asked time.Duration, chance float64) func(int) string {
			w := newWorld(t)
			w.secrets.put("ns/venafi", "username", "me", "password", "secret")
			if c.path != login {
				w.secrets.put("ns/venafi", "access-token", "good")
			}
			var header []string
			if asked > 0 {
				header = []string{"Retry-After", strconv.Itoa(int(asked.Seconds()))}
			}
			tpp.Change(func(s *tppserver.State) { clear(s.Overrides) })
			tpp.Answers(c.path, c.code, c.body, header...)
			i, r := issuer("venafi", tpp.Spec("venafi")), w.web(requestKind)
			r.Source.SetCreationTimestamp(metav1.NewTime(w.signer.Now()))
			return func(failures int) string {
				_, err := w.look(i, r)
				if f := fault.Of(err); f == nil || !strings.HasPrefix(c.name, string(f.Class)) {
					t.Fatalf("%s is %+v", c.name, f)
				}
				wait := engine.BackOff(err, failures, chance)
				w.step(wait)
				return golden.TextOrNever(wait.Round(time.Second / 100))
			}
		})
	}
	waits.Check(t, `Certificate Manager asks by Retry-After. The request fails for good where it says never.
pending: nothing has failed, and the certificate is not issued yet. The wait is a quarter of the request's age.`)
}
