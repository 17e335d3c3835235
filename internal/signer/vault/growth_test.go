package vault

import (
	"encoding/json"
	"strings"
	"testing"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/growth"
)

// TestAnswersOfVaultCostNoSquare: Vault sends as many certificates as fit, in the form that costs the most.
func TestAnswersOfVaultCostNoSquare(t *testing.T) {
	o, err := newOrder("pki/sign/web", request(t, "request", "CertificateRequest"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, newStandIn(t, plain))
	result, err := w.sign(w.issuer("team", w.byToken), o.r)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ := json.Marshal(string(result.Bundle.Chain)) // a string
	for name, element := range map[string]string{
		"empty certificates":       `""`,
		"the same certificate":     string(leaf),
		"beginnings of a chain":    `"-----BEGIN CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\n"`,
		"one long chain of spaces": `"` + strings.Repeat(" ", 1<<10) + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, limits.VaultBody, func(n int) func() {
				chain := strings.TrimSuffix(strings.Repeat(element+",", max(n/(len(element)+1), 1)), ",")
				text := json.RawMessage(`{"certificate":` + string(leaf) + `,"ca_chain":[` + chain + `]}`)
				return func() { _, _ = o.read(t.Context(), text) }
			})
		})
	}
}
