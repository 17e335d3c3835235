package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTake: what is said of events, and whether the run fails. The toy module shows most failures with real events.
func TestTake(t *testing.T) {
	const failed = `{"Action":"run","Package":"p","Test":"TestA"}
		{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: wrong\n"}
		{"Action":"fail","Package":"p","Test":"TestA"}`
	for name, c := range map[string]struct {
		in, want string
		fails    bool
	}{
		"passed": {in: `{"Action":"start","Package":"p"}
			{"Action":"run","Package":"p","Test":"TestA"}
			{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
			{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
			{"Action":"output","Package":"p","Output":"PASS\n"}
			{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
			{"Action":"pass","Package":"p","Elapsed":0.1}`},
		"no tests": {in: `{"Action":"output","Package":"p","Output":"?   \tp\t[no test files]\n"}
			{"Action":"skip","Package":"p"}`},
		"skipped": {in: `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
			{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: no IPv6 here\n"}
			{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
			{"Action":"skip","Package":"p","Test":"TestA"}
			{"Action":"output","Package":"p","Output":"PASS\n"}
			{"Action":"pass","Package":"p"}`, want: "SKIP\tp TestA: a_test.go:7: no IPv6 here\n"},
		"a whole package skipped": {in: `{"Action":"start","Package":"p"}
			{"Action":"output","Package":"p","Output":"SKIPPED, all tests of this package: no namespace\n"}
			{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
			{"Action":"pass","Package":"p"}`, want: "SKIPPED, all tests of this package: no namespace\n"},
		"cut off": {fails: true, in: `{"Action":"start","Package":"p"}
			{"Action":"run","Package":"p","Test":"TestB"}
			{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
			{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: waiting\n"}
			{"Action":"run","Package":"p","Test":"TestA"}
			{"Action":"pass","Package":"p","Test":"TestA"}
			{"Action":"output","Pack`, want: "UNFINISHED\tp TestB\n    b_test.go:9: waiting\n"},
		// The tests that were left have not run, and no test was running when the process ended.
		"ended between two tests": {fails: true, in: failed + `
			{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
			{"Action":"fail","Package":"p"}
			{"Action":"start","Package":"p"}
			{"Action":"pass","Package":"p","Test":"TestA"}
			{"Action":"output","Package":"p","Output":"PASS\n"}
			{"Action":"pass","Package":"p"}`,
			want: "FAIL\tp: ended before its tests did\nFAIL\tp\t0.1s\n    a_test.go:7: wrong\n" +
				"FLAKY p.TestA: failed, and passed when it was run again: mend it, or write it into " +
				listed + " with date and cause\n"},
		"failed in one package, passed in another": {fails: true, in: failed + `
			{"Action":"output","Package":"p","Output":"FAIL\n"}
			{"Action":"fail","Package":"p"}
			{"Action":"pass","Package":"q","Test":"TestA"}
			{"Action":"output","Package":"q","Output":"PASS\n"}
			{"Action":"pass","Package":"q"}`, want: "FAIL\tp.TestA\n"},
	} {
		t.Run(name, func(t *testing.T) {
			tests := newTests()
			for line := range strings.Lines(c.in) {
				if e, ok := parse(line); ok {
					tests.take(e)
				}
			}
			var out strings.Builder
			_, err := tests.print(&out)
			if out.String() != c.want || (err != nil) != c.fails {
				t.Errorf("error %v, got:\n%s\nwant:\n%s", err, &out, c.want)
			}
		})
	}
}

// TestNothingRan: without events the run fails, whatever the command says.
func TestNothingRan(t *testing.T) {
	err := run(&strings.Builder{}, t.TempDir(), "", exec.CommandContext(t.Context(), "true"))
	if err == nil || !strings.Contains(err.Error(), "no test has run") {
		t.Errorf("error %v", err)
	}
}

// TestPackageThatDidNotRun: the go command may end before it has come to a package, in silence.
func TestPackageThatDidNotRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tests")
	const script = `echo p q >"$0/packages"; echo '{"Action":"skip","Package":"p"}' >"$0/events.json"`
	var out strings.Builder
	err := run(&out, dir, "", exec.CommandContext(t.Context(), "bash", "-c", script, dir))
	if err == nil || !strings.Contains(out.String(), "UNFINISHED\tq\n") || strings.Contains(out.String(), "UNFINISHED\tp") {
		t.Errorf("error %v, got:\n%s", err, &out)
	}
}

// TestFlakyTests: each line of the list names a test that there is, with date and cause.
func TestFlakyTests(t *testing.T) {
	causes := known(list)
	for name, cause := range causes {
		pkg, test, _ := strings.Cut(path.Base(name), ".")
		dir := filepath.Join("../../..", strings.TrimPrefix(path.Dir(name), "chancery.dev"), pkg)
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		there := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			there = there || err == nil && strings.Contains(string(text), "\nfunc "+test+"(t *testing.T")
		}
		if err != nil || !there {
			t.Errorf("%s is no package.Test of this repository (%v)", name, err)
		}
		if !regexp.MustCompile(`^20\d\d-\d\d-\d\d  \S`).MatchString(cause) {
			t.Errorf("%s: %q does not begin with a date, and a cause after two spaces", name, cause)
		}
	}
	lines := len(regexp.MustCompile(`(?m)^[^#\n]`).FindAllString(list, -1))
	if lines != len(causes) || lines > 5 {
		t.Errorf("%d lines with %d tests, want a test in each, and five at most: mend one", lines, len(causes))
	}
	got := known("# why  not\np.TestA  2026-01-02  it waits too short\n")
	if want := map[string]string{"p.TestA": "2026-01-02  it waits too short"}; !maps.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestTimes(t *testing.T) {
	const stream = `
		{"Action":"pass","Package":"p","Test":"TestTable/a","Elapsed":2.5}
		{"Action":"pass","Package":"p","Test":"TestTable/b","Elapsed":1.5}
		{"Action":"pass","Package":"p","Test":"TestTable","Elapsed":4}
		{"Action":"fail","Package":"p","Test":"TestFails","Elapsed":9.25}
		{"Action":"pass","Package":"p","Test":"TestQuick","Elapsed":0.04}
		{"Action":"fail","Package":"p","Elapsed":15}
		{"Action":"skip","Package":"p","Test":"TestSkipped","Elapsed":0}
		{"Action":"pass","Package":"q","Test":"TestTable","Elapsed":61}
		{"Action":"pass","Package":"q","Elapsed":61.5}
		{"Action":"pass","Package":"quick","Elapsed":0.3}
		{"Action":"skip","Package":"empty","Elapsed":0.2}`
	times := newTimes()
	var out strings.Builder
	for line := range strings.Lines(stream) {
		if e, ok := parse(line); ok {
			times.take(e)
		}
	}
	times.note("4.250\tcontrol planes\n0.004\twaiting for a clock\nhalf a line\n3.000\tcontrol planes\nx\ty\n")
	times.print(&out)
	const want = `TIME of packages, in seconds:
      61.5  q
      15.0  p
       0.5  2 others, each below a second
      77.0  all
TIME of the slowest tests, in seconds:
      61.0  q TestTable
       9.2  p TestFails
       4.0  p TestTable (2 subtests)
TIME beside the tests' own work, in seconds, how often, and on what; much of it side by side:
       7.2     2  control planes
       0.0     1  waiting for a clock
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", &out, want)
	}
}

func TestTimesOfNothing(t *testing.T) {
	var out strings.Builder
	newTimes().print(&out)
	if out.String() != "" {
		t.Errorf("got:\n%s\nand there was nothing", &out)
	}
}

// TestTheSlowestOnly: of many tests no more than slowest are printed.
func TestTheSlowestOnly(t *testing.T) {
	times := newTimes()
	for i := range slowest + 3 {
		times.take(event{Action: "pass", Package: "p", Test: fmt.Sprintf("Test%d", i), Elapsed: float64(i + 1)})
	}
	var out strings.Builder
	times.print(&out)
	if n := strings.Count(out.String(), "p Test"); n != slowest || strings.Contains(out.String(), "Test2\n") || !strings.Contains(out.String(), "Test3\n") {
		t.Errorf("got %d tests:\n%s", n, &out)
	}
}
