package cli

import (
	"testing"

	"chancery.dev/api"
	"chancery.dev/internal/rig/golden"
	"chancery.dev/internal/rig/reference"
)

// TestReference: docs/reference has the commands, the flags and the fields that there are. make generate writes it.
func TestReference(t *testing.T) {
	golden.Check(t, "../../../docs/reference/chancery.md", reference.Commands(New()))
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "../../../docs/reference/fields.md", reference.Fields(crds))
}
