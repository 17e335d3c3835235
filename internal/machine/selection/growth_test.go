package selection

import (
	"fmt"
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/growth"
)

// TestSelectionGrows: to choose a solver for each name of an Order costs as much as the names and the selectors are,
// and not their product, whatever the selectors have in common.
func TestSelectionGrows(t *testing.T) {
	of := func(i int) string { return fmt.Sprintf("host-%d.zone-%d.example.com", i, i) }
	for name, selects := range map[string]func(i, n int) *selector{
		"a zone each": func(i, _ int) *selector {
			return &selector{DNSZones: []string{fmt.Sprintf("zone-%d.example.com", i), "elsewhere.example.com", "elsewhere.example.com"}}
		},
		"one zone": func(int, int) *selector { return &selector{DNSZones: []string{"example.com"}} },
		"one zone and labels": func(int, int) *selector {
			return &selector{DNSZones: []string{"example.com"}, MatchLabels: map[string]string{"team": "web"}}
		},
		"no selector": func(int, int) *selector { return nil },
		"labels":      func(int, int) *selector { return &selector{MatchLabels: map[string]string{"team": "web"}} },
		"a name each": func(i, _ int) *selector {
			return &selector{DNSNames: []string{of(i)}, DNSZones: []string{"example.com"}}
		},
		"one with names": func(i, n int) *selector {
			if i > 0 {
				return &selector{DNSNames: []string{of(0)}}
			}
			all := &selector{}
			for i := range n {
				all.DNSNames = append(all.DNSNames, of(i))
			}
			return all
		},
		"elsewhere": func(i, _ int) *selector {
			if i == 0 {
				return nil
			}
			return &selector{DNSZones: []string{"example.org"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, limits.CertificateNames, func(n int) func() {
				var names []string
				for i := range n {
					names = append(names, of(i))
				}
				var solvers []acmev1.ACMEChallengeSolver
				for i := range limits.Solvers * n / limits.CertificateNames {
					s := dns01()
					s.Selector = selects(i, n)
					solvers = append(solvers, s)
				}
				return func() {
					prepared := For(map[string]string{"team": "web"}, solvers)
					for _, name := range names {
						got, err := prepared.Select(acmev1.ACMEAuthorization{Identifier: name, Challenges: []acmev1.ACMEChallenge{{Type: "dns-01"}}})
						if err != nil || got.Why == "" {
							t.Fatal(name, got.Why, err)
						}
					}
				}
			})
		})
	}
}

// TestLongNamesAreInNoZone: a name that is longer than DNS has any, of dots, costs its length and not its square.
func TestLongNamesAreInNoZone(t *testing.T) {
	solvers := []acmev1.ACMEChallengeSolver{selecting(dns01(), selector{DNSZones: []string{"example.com"}}), http01()}
	growth.Linear(t, limits.ACMEBody, func(n int) func() {
		a := acmev1.ACMEAuthorization{Identifier: strings.Repeat("a.", n/2) + "example.com"}
		a.Challenges = []acmev1.ACMEChallenge{{Type: "dns-01"}, {Type: "http-01"}}
		return func() {
			if got, err := Select(nil, a, solvers); err != nil || got.Type != acmev1.ChallengeTypeHTTP01 {
				t.Fatal(got.Why, err)
			}
		}
	})
}
