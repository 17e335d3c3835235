// Package slow marks the tests that `make test` skips and `make test-slow` runs, because not every run has time for
// these tests. A test may be marked if it has to be slow, because it kills processes, has a table of hundreds of cells,
// uses other versions of Kubernetes, or runs the commands of all pages in docs/. A test that is slow without need must
// become faster instead.
//
// A Part is a group of such tests, and has its own make target. For example, `make test-slow-crash` runs only the tests
// that call slow.Test or slow.Runs with slow.Crash. The command in internal/rig/parts finds these tests.
package slow

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Variable names the parts that run, with commas between them. make test sets none.
const Variable = "CHANCERY_TEST_SLOW"

// Part names a part of make test-slow.
type Part string

const (
	// Crash kills processes, or cuts them off, at each of many moments.
	Crash Part = "crash"
	// Faults has whole tables of what a CA, a DNS server or an API server may answer instead of what is right.
	Faults Part = "faults"
	// Versions is about other versions of Kubernetes and of Chancery.
	Versions Part = "versions"
	// Docs runs the commands of the pages in docs/, and the demo, and looks at the dashboard in Chromium.
	Docs Part = "docs"
	// Numbers measures requests, times (Best), and what waits cost, and counts handshakes while a CA is replaced.
	Numbers Part = "numbers"
	// Takeover takes hundreds of Certificates over, and installs the original anew for each odd case.
	Takeover Part = "takeover"
	// Installs installs Chancery on API servers of its own, updates it, moves its objects to others, and removes it.
	Installs Part = "installs"
	// Builds compiles what no other test needs, and starts each of many programs, spare API servers and images among
	// them.
	Builds Part = "builds"
)

// Test skips the test unless the part runs.
func Test(t testing.TB, part Part) {
	t.Helper()
	if !Runs(part) {
		t.Skipf("SLOW: make test-slow-%s runs this test", part)
	}
}

// Runs reports whether the part runs: for a table of which make test does some rows only.
func Runs(part Part) bool {
	return slices.Contains(strings.Split(os.Getenv(Variable), ","), string(part))
}
