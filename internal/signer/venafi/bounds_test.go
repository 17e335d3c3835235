package venafi

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig/growth"
	"chancery.dev/internal/rig/tppserver"
)

// heap is how many bytes are in use.
func heap() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// TestAllOfAnAccountCounts: whatever an issuer or its server has that is large, not much is kept of many Issuers of one
// namespace. The Secrets are gone by the time, so that nothing else holds what an account does.
func TestAllOfAnAccountCounts(t *testing.T) {
	growth.NotUnderRace(t)
	const size, issuers = 60_000, 250
	server, cloud := tppserver.Start(t), newSaaS(t, "")
	for _, s := range []*http.Server{server.Config, cloud.Config} {
		s.SetKeepAlivesEnabled(false) // connections are not what is looked at
	}
	long := strings.Repeat("x", size)
	const template = "/outagedetection/v1/applications/Web Apps/certificateissuingtemplates/Short"
	server.Answers("/vedauth/authorize/oauth", http.StatusOK, `{"access_token":"`+long+`","refresh_token":"`+long+`"}`)
	server.Answers("/vedsdk/certificates/checkpolicy", http.StatusOK, policyOf(nil, nil, ""))
	names := `{"user":{"username":"me"},"company":{"id":"c1","domains":["a"` + strings.Repeat(`,"a"`, size/4) + `]}}`
	for _, c := range []struct {
		name    string
		spec    certmanagerv1.VenafiIssuer
		secret  []string
		login   string
		padding int
		probes  int
	}{
		{name: "an access token", spec: server.Spec("venafi"), secret: []string{"access-token", long}},
		{name: "a password", spec: server.Spec("venafi"), secret: []string{"username", "me", "password", long}},
		{name: "an API key", spec: cloud.cloud(), secret: []string{"api-key", long}},
		{name: "what TPP grants", spec: server.Spec("venafi"), secret: []string{"username", "me", "password", "secret"}, probes: 100},
		{name: "whose the API key is", spec: cloud.cloud(), secret: []string{"api-key", "key"}, login: names, probes: 60},
		{name: "the last answer", spec: cloud.cloud(), secret: []string{"api-key", "key"}, login: `{"user":{"username":"me"},"company":{"id":"c1"}}`, padding: 300_000, probes: 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			cloud.answers("/v1/useraccounts", http.StatusOK, c.login)
			cloud.answers(template, http.StatusOK, templateOf("sanRegexes", []string{".*"})+strings.Repeat(" ", c.padding))
			before := heap()
			for n := range issuers {
				fresh := make([]string, len(c.secret))
				for i, text := range c.secret {
					fresh[i] = strings.Clone(text)
				}
				w.secrets.put("ns/venafi", fresh...)
				i := issuer(fmt.Sprint(n), c.spec)
				if _, err := w.signer.account(t.Context(), i); err != nil {
					t.Fatal(err)
				}
				if n < c.probes {
					w.inOrder(i)
				}
			}
			w.secrets.put("ns/venafi")
			_, _ = server.Take(), cloud.Take()
			if grown := heap() - before; grown > 7<<20 {
				t.Errorf("%d KiB are kept of %d Issuers", grown>>10, issuers)
			} else {
				t.Logf("%d KiB", grown>>10)
			}
			runtime.KeepAlive(w)
		})
	}
}
