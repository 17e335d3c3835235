package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFirstFailure: a test that fails, and a process that ends, have found a mutation. A build that fails, and tests
// that do not end, have not.
func TestFirstFailure(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: this test compiles")
	}
	t.Parallel()
	const head = "package one\nimport (\"os\"; \"testing\")\nvar _ = os.Exit\n"
	for name, c := range map[string]struct{ body, by, err string }{
		"passes": {body: head + "func TestIt(t *testing.T) {}"},
		"fails":  {body: head + "func TestIt(t *testing.T) { t.Error() }", by: "TestIt of one"},
		"ends":   {body: head + "func TestIt(t *testing.T) { os.Exit(3) }", by: "the end of the process"},
		"hangs":  {body: head + "func TestIt(t *testing.T) { <-t.Context().Done() }", err: "did not end"},
		"broken": {body: head + "func TestIt(t *testing.T) { return 1 }", err: "does not compile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{"go.mod": "module chancery.dev/one\n", "one_test.go": c.body} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			by, err := firstFailure(t.Context(), []string{"test", "-C", dir, "-json", "-vet=off", "-timeout", "3s", "."}, nil)
			said := ""
			if err != nil {
				said = err.Error()
			}
			if !strings.HasPrefix(by, c.by) || (c.by == "") != (by == "") || (c.err == "") != (err == nil) || !strings.Contains(said, c.err) {
				t.Errorf("found by %q, error %v", by, err)
			}
		})
	}
}
