package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestFind(t *testing.T) {
	file := func(body string) *fstest.MapFile { return &fstest.MapFile{Data: []byte("package p\n" + body)} }
	root := fstest.MapFS{
		"a/b_test.go":          file("func FuzzB(f *testing.F) {}\nfunc FuzzA(f *testing.F) {}\nfunc TestFuzz(t *testing.T) {}"),
		"a/a.go":               file("func FuzzProduct() {}"),
		"nested/c/c_test.go":   file("// func FuzzNone(f *testing.F) {}\nfunc FuzzC(f *testing.F) {}"),
		"nestedtoo/d_test.go":  file("func (x) FuzzMethod() {}\nfunc FuzzD(f *testing.F) {}"),
		"a/testdata/x_test.go": file("func FuzzData(f *testing.F) {}"),
		".hidden/x_test.go":    file("func FuzzHidden(f *testing.F) {}"),
	}
	targets, err := find(root)
	var got []string
	for _, x := range targets {
		got = append(got, x.dir+" "+x.name)
	}
	if want := "a FuzzA, a FuzzB, nested/c FuzzC, nestedtoo FuzzD"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("%s, %v: want %s", strings.Join(got, ", "), err, want)
	}
}

func TestShare(t *testing.T) {
	for n, want := range map[int]time.Duration{0: time.Minute, 7: time.Minute / 7, 1000: time.Second} {
		if got := share(time.Minute, n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// What go test prints of a target that finds nothing, of one that does, of one whose own examples fail, and of one that
// ends a moment late.
const (
	fine = "fuzz: elapsed: 0s, gathering baseline coverage: 2/2 completed, now fuzzing with 2 workers\n" +
		"fuzz: elapsed: 3s, execs: 100 (33/sec), new interesting: 3 (total: 5)\nfuzz: elapsed: 6s, execs: 250 (50/sec), new interesting: 4 (total: 6)\nPASS\nok\n"
	found = "fuzz: elapsed: 1s, execs: 10 (10/sec), new interesting: 1 (total: 2)\n--- FAIL: FuzzFound (1.00s)\n    --- FAIL: FuzzFound (0.00s)\n" +
		"        x_test.go:9: wrong\n\n    Failing input written to testdata/fuzz/FuzzFound/0123\n    To re-run:\nFAIL\n"
	example = "failure while testing seed corpus entry: FuzzExample/seed#1\n--- FAIL: FuzzExample (0.12s)\nFAIL\n"
	late    = "fuzz: elapsed: 2s, execs: 7 (3/sec), new interesting: 0 (total: 5)\n--- FAIL: FuzzLate (2.10s)\n    context deadline exceeded\nFAIL\nexit status 1\n"
)

func TestRun(t *testing.T) {
	says := map[string]string{"FuzzFine": fine, "FuzzFound": found, "FuzzExample": example, "FuzzLate": late, "FuzzBroken": "it does not compile\n"}
	for _, c := range []struct{ names, fails, says string }{
		{"FuzzFine FuzzLate", "", "2 targets tried 257 inputs in 0 s: 4 new interesting, 0 crashers\n"},
		{"FuzzFound FuzzFine", "FuzzFound failed", "the input is n/d/testdata/fuzz/FuzzFound/0123: run it again with go test -C n/d -run '^FuzzFound$/0123' .,"},
		{"FuzzExample", "FuzzExample failed", "-run '^FuzzExample$/seed#1'"},
		{"FuzzBroken", "FuzzBroken failed", "it does not compile"},
		{"", "there is no target", "0 targets"},
	} {
		var targets []target
		for name := range strings.FieldsSeq(c.names) {
			targets = append(targets, target{"n/d", name})
		}
		var out strings.Builder
		err := run(t.Context(), &out, targets, time.Second, func(_ context.Context, x target, long time.Duration) ([]byte, error) {
			if long != time.Second {
				t.Error(long)
			}
			if x.name == "FuzzFine" {
				return []byte(fine), nil
			}
			return []byte(says[x.name]), errors.New("exit status 1")
		})
		if text := out.String(); !strings.Contains(text, c.says) || (err == nil) != (c.fails == "") || err != nil && err.Error() != c.fails {
			t.Errorf("%s: %v\n%s", c.names, err, text)
		}
	}
}
