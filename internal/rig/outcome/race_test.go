//go:build race

package main

import (
	"strings"
	"testing"
)

// TestRace: a test with a data race is not run again. It runs under the race detector only, for which all that it
// compiles has been compiled then.
func TestRace(t *testing.T) {
	said, runs, err := toy(t, "races once", "-race")
	if err == nil || runs != 1 || !strings.Contains(said, "FAIL\tchancery.dev/toy.TestOne\n") {
		t.Errorf("%d runs, error %v, said:\n%s", runs, err, said)
	}
}
