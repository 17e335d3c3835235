package main

import (
	"testing"

	"chancery.dev/internal/rig/golden"
	"chancery.dev/internal/rig/reference"
)

// TestReference: docs/reference has the commands and the flags that there are. make generate writes it.
func TestReference(t *testing.T) {
	t.Parallel()
	golden.Check(t, "../../../../docs/reference/chancery-dns.md", reference.Commands(newCommand()))
}
