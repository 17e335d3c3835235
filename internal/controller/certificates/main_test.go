package certificates_test

import (
	"os"
	"testing"

	"chancery.dev/internal/rig"
)

// TestMain lets the tests overlap: they mostly wait for controllers.
func TestMain(m *testing.M) {
	rig.Overlap()
	os.Exit(m.Run())
}
