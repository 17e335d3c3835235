package dns01_test

import (
	"net"
	"strconv"
	"strings"
	"testing"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/solver/dns01"
)

// A tenant's zone names its name servers, and a tenant's Issuer those to ask: at addresses that are off limits, none is
// asked. The servers of the operator's configuration are, and those that the operator names in a ClusterIssuer.
func TestServersOfTenantsAreJudged(t *testing.T) {
	w := newWorld(t, func(o *dns01.Options) { o.Egress = egress.New(nil, nil) })
	second := net.JoinHostPort("127.0.0.2", strconv.Itoa(w.dns.Port()))
	task := w.task("www.example.test", "value")
	w.mustPresent(t, task) // the zone is found at the configured server
	w.notYet(t, task, second, "127.0.0.2 is off limits")

	for server, answers := range map[string]bool{second: true, "https://127.0.0.2:1/dns-query": false} {
		named := w.task("named.example.test", "value")
		named.Challenge.Spec.Solver.DNS01.Nameservers = []string{server}
		if err := w.solver.Present(t.Context(), named); err == nil || !strings.Contains(err.Error(), "127.0.0.2 is off limits") {
			t.Errorf("%s of an Issuer: %v", server, err)
		}
		named.Challenge.Spec.IssuerRef.Kind = cmmeta.ClusterIssuerKind
		if err := w.solver.Present(t.Context(), named); answers != (err == nil) || err != nil && strings.Contains(err.Error(), "off limits") {
			t.Errorf("%s of a ClusterIssuer: %v", server, err)
		}
	}
}
