package selection

import (
	"fmt"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/growth"
)

// TestSelectionGrows: to choose a solver for each name of an Order costs as much as the names and the selectors are,
// and not their product.
func TestSelectionGrows(t *testing.T) {
	growth.Linear(t, limits.CertificateNames, func(n int) func() {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("host-%d.zone-%d.example.com", i, i))
		}
		var solvers []acmev1.ACMEChallengeSolver
		for i := range limits.Solvers * n / limits.CertificateNames {
			solvers = append(solvers,
				selecting(dns01(), selector{DNSZones: []string{fmt.Sprintf("zone-%d.example.com", i), "elsewhere.example.com", "elsewhere.example.com"}}))
		}
		solvers[0].Selector.DNSNames = names
		return func() {
			prepared := For(nil, solvers)
			for i, name := range names {
				got, err := prepared.Select(acmev1.ACMEAuthorization{Identifier: name, Challenges: []acmev1.ACMEChallenge{{Type: "dns-01"}}})
				if err != nil || got.Solver.Selector != solvers[i].Selector {
					t.Fatal(name, got.Why, err)
				}
			}
		}
	})
}
