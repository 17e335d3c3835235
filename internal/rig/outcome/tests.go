package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// list names the tests that are known to be flaky, and listed is where people find it.
//
//go:embed flaky.txt
var list string

const listed = "internal/rig/outcome/flaky.txt"

// event is a line of go test -json (go doc test2json, go help buildjson).
type event struct {
	Action, Package, Test, Output, FailedBuild string

	Elapsed float64 // seconds
}

// parse reads a line. The last one may be half written, of a run that was killed.
func parse(line string) (e event, ok bool) {
	err := json.Unmarshal([]byte(line), &e)
	return e, err == nil && e.Package != ""
}

// of names a test, or a package where it has no test.
type of struct{ pkg, test string }

// tests is what events say about the tests of all packages.
type tests struct {
	packages map[string]*process
	passed   map[of]bool // for each test that has failed, without subtests: whether it has passed since
	skipped  []string    // lines
	wrong    []string    // what a later run must not hide, with all that was said about it
}

// process is one run of a package's tests.
type process struct {
	over    bool              // the go command has said so
	ended   bool              // the tests have come to their end, as package testing says
	ran     bool              // there was a test
	more    bool              // after the end of the tests, something was said: by a TestMain, which may have failed, too
	failed  bool              // a test has failed
	running map[string]bool   // tests by name
	said    map[string]string // by the package (""), and by tests that run or have failed
}

func newProcess() *process { return &process{running: map[string]bool{}, said: map[string]string{}} }

func newTests() *tests { return &tests{packages: map[string]*process{}, passed: map[of]bool{}} }

func (t *tests) take(e event) {
	p := t.packages[e.Package]
	if p == nil || p.over {
		p = newProcess()
		t.packages[e.Package] = p
	}
	switch e.Action {
	case "run":
		p.ran, p.running[e.Test] = true, true
	case "output":
		if e.Test == "" {
			p.says(e.Output)
		}
		if !strings.HasPrefix(e.Output, "=== ") { // which test writes the next lines: known already
			p.said[e.Test] += e.Output
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			p.over = true
			t.judge(p, e)
		} else {
			t.end(p, e)
		}
	}
}

// says takes what the package says, and not one of its tests.
func (p *process) says(text string) {
	switch {
	case text == "PASS\n", text == "FAIL\n":
		p.ended = true
	case p.ended && !strings.HasPrefix(text, "FAIL\t") && !strings.HasPrefix(text, "exit status "):
		p.more = true
	}
}

// end takes the end of a test.
func (t *tests) end(p *process, e event) {
	delete(p.running, e.Test)
	_, failed := t.passed[of{e.Package, e.Test}]
	switch {
	case e.Action == "fail":
		p.failed = true
		if !strings.Contains(e.Test, "/") {
			t.passed[of{e.Package, e.Test}] = false
		}
		return // with what it has said
	case e.Action == "pass" && failed:
		t.passed[of{e.Package, e.Test}] = true
	case e.Action == "skip":
		t.skipped = append(t.skipped, fmt.Sprintf("SKIP\t%s %s: %s\n", e.Package, e.Test, reason(p.said[e.Test])))
	}
	delete(p.said, e.Test)
}

// judge takes the end of a package.
func (t *tests) judge(p *process, e event) {
	var why string
	switch {
	case e.FailedBuild != "":
		why = "does not build"
	case len(p.running) > 0 || p.ran && !p.ended:
		why = "ended before its tests did"
	case e.Action == "fail" && !p.failed:
		why = "failed, and none of its tests did"
	case e.Action == "fail" && p.more:
		why = "failed, and said more after its tests"
	default:
		// A TestMain may skip all tests, internal/rig/netns for one.
		for line := range strings.Lines(p.said[""]) {
			if strings.HasPrefix(line, "SKIP") {
				t.skipped = append(t.skipped, line)
			}
		}
		return
	}
	t.wrong = append(t.wrong, fmt.Sprintf("FAIL\t%s: %s\n%s", e.Package, why, p.all()))
}

// all returns what the package and its tests said.
func (p *process) all() string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.said)) {
		text.WriteString(p.said[name])
	}
	return text.String()
}

// print says what has become of the tests. It returns the lines about flaky tests, and an error if the run must fail.
func (t *tests) print(w io.Writer) (flaky string, err error) {
	fmt.Fprint(w, strings.Join(slices.Concat(t.skipped, t.wrong), ""))
	failed := len(t.wrong) > 0
	for _, name := range slices.Sorted(maps.Keys(t.packages)) {
		if p := t.packages[name]; !p.over {
			failed = true
			running := append([]string{name}, slices.Sorted(maps.Keys(p.running))...)
			fmt.Fprintf(w, "UNFINISHED\t%s\n%s", strings.Join(running, " "), p.all())
		}
	}
	for _, o := range slices.SortedFunc(maps.Keys(t.passed), compareNames) {
		name := o.pkg + "." + o.test
		if !t.passed[o] {
			failed = true
			fmt.Fprintf(w, "FAIL\t%s\n", name)
			continue
		}
		cause := "failed, and passed when it was run again: mend it, or write it into " + listed + " with date and cause"
		if said, ok := known(list)[name]; ok {
			cause = said
		}
		flaky += fmt.Sprintf("FLAKY %s: %s\n", name, cause)
	}
	fmt.Fprint(w, flaky)
	if failed {
		err = errors.New("the tests have failed: see FAIL and UNFINISHED above")
	}
	return flaky, err
}

// known returns the dates and causes of a list of flaky tests, by package.Test.
func known(text string) map[string]string {
	causes := map[string]string{}
	for line := range strings.Lines(text) {
		if name, cause, ok := strings.Cut(strings.TrimSpace(line), "  "); ok && !strings.HasPrefix(line, "#") {
			causes[name] = strings.TrimSpace(cause)
		}
	}
	return causes
}

// reason returns what a skipped test has logged, on one line.
func reason(text string) string {
	var said []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}
