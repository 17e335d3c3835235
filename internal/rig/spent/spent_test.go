package spent_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"chancery.dev/internal/rig/spent"
)

func TestOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "times")
	t.Setenv(spent.Variable, file)
	spent.On("one thing", time.Now().Add(-2*time.Second))
	spent.On("another", time.Now().Add(-time.Hour))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^2\.\d{3}\tone thing\n3600\.\d{3}\tanother\n$`).Match(text) {
		t.Errorf("noted %q", text)
	}
	t.Setenv(spent.Variable, filepath.Join(t.TempDir(), "no", "such", "directory"))
	spent.On("nothing that fails", time.Now())
	t.Setenv(spent.Variable, "")
	spent.On("nothing at all", time.Now())
}
