package layout_test

import (
	"slices"
	"strings"
	"testing"
)

// impure lists what a pure package must not reach: what talks to the network, the machine or the API
// server, what is shared between goroutines, and chance. Packages below a listed one count, but for those in harmless.
var impure = []string{"net", "os", "sync", "syscall", "math/rand", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}

// harmless are packages below an impure one that hold only types and parsers.
var harmless = []string{"net/netip", "net/url"}

// spared are imports of an impure package by a package of ours, with the reason.
var spared = map[string]map[string]string{
	"internal/pki": {"net": "crypto/x509 has the addresses of a certificate as net.IP"},
}

// TestPurity holds the pure packages to what they say of themselves, through everything of our own that
// they import. The standard library is not followed: crypto/x509 imports net, and dials nobody.
func TestPurity(t *testing.T) {
	packages := map[string]listed{}
	for _, p := range list(t, "./...") {
		packages[strings.TrimPrefix(p.ImportPath, module+"/")] = p
	}
	found := 0
	for _, r := range rooms {
		if _, exists := packages[r.path]; !exists || !strings.HasPrefix(r.why, "pure: ") {
			continue
		}
		found++
		for _, problem := range checkPurity(packages, r.path, map[string]bool{}) {
			t.Errorf("%s is called pure, but %s", r.path, problem)
		}
		// Libraries are followed to the end only for the clients of the API server.
		for _, p := range list(t, "-deps", "./"+r.path) {
			if isAny(p.ImportPath, []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"}) {
				t.Errorf("%s is called pure, but depends on %s", r.path, p.ImportPath)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d packages are called pure in the table of layers", found)
	}
}

// checkPurity says by which way a package reaches an impure one.
func checkPurity(packages map[string]listed, path string, seen map[string]bool) []string {
	if seen[path] {
		return nil
	}
	seen[path] = true
	var problems []string
	for _, imported := range packages[path].Imports {
		if own, ok := strings.CutPrefix(imported, module+"/"); ok {
			problems = append(problems, checkPurity(packages, own, seen)...)
			continue
		}
		if isAny(imported, impure) && !slices.Contains(harmless, imported) && spared[path][imported] == "" {
			problems = append(problems, path+" imports "+imported)
		}
	}
	return problems
}

// TestPurityBites shows that the rule can fail, and by a detour too.
func TestPurityBites(t *testing.T) {
	packages := map[string]listed{
		"internal/clean":  {Imports: []string{"fmt", "net/netip", module + "/internal/pki"}},
		"internal/pki":    {Imports: []string{"net"}},
		"internal/detour": {Imports: []string{module + "/internal/dialer"}},
		"internal/dialer": {Imports: []string{"net", "os/exec"}},
	}
	for path, want := range map[string]int{"internal/clean": 0, "internal/detour": 2, "internal/dialer": 2} {
		if got := checkPurity(packages, path, map[string]bool{}); len(got) != want {
			t.Errorf("%s: %q, want %d problems", path, got, want)
		}
	}
}
