// Package golden holds what the pure packages decide to tables in files, which a change of a decision changes visibly.
// It is imported by tests only.
package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files") //nolint:gochecknoglobals // a flag of go test

// Check fails a test whose text is not that of a file in its testdata. With -update the text is written instead.
func Check(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs: run this test with -update, and read the diff\n%s", file, firstDifference(string(want), got))
	}
}

func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("want %d lines, got %d", len(a), len(b))
}

// Fold joins values, each that is repeated with how often it is: "1s 2s×3".
func Fold(values []string) string {
	var out []string
	for i := 0; i < len(values); {
		n := 1
		for i+n < len(values) && values[i+n] == values[i] {
			n++
		}
		text := values[i]
		if n > 1 {
			text += fmt.Sprintf("×%d", n)
		}
		out = append(out, text)
		i += n
	}
	return strings.Join(out, " ")
}

// Waits says how long is waited after each of that many failures in a row: never, so long, or spread by a number in
// [0,1).
func Waits(failures int, wait func(failures int, jitter float64) time.Duration) string {
	var out []string
	for n := 1; n <= failures; n++ {
		switch low, high := wait(n, 0), wait(n, 0.999); {
		case low == 0 && high == 0:
			out = append(out, "never")
		case low == high:
			out = append(out, low.String())
		default:
			out = append(out, fmt.Sprintf("%s..%s", low, high.Round(low/100)))
		}
	}
	return Fold(out)
}
