package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// slowest is how many tests are named as the slowest.
const slowest = 20

// times adds up where the time of a run went, in seconds.
type times struct {
	packages map[string]float64
	tests    map[of]float64 // without subtests
	subtests map[of]int
	notes    map[string]*note
}

// note is what was spent on one thing.
type note struct {
	seconds float64
	times   int
}

func newTimes() *times {
	return &times{packages: map[string]float64{}, tests: map[of]float64{}, subtests: map[of]int{}, notes: map[string]*note{}}
}

// take adds an event that ends a test or a package.
func (t *times) take(e event) {
	if e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
		return
	}
	test, _, sub := strings.Cut(e.Test, "/")
	switch {
	case e.Test == "":
		t.packages[e.Package] += e.Elapsed
	case sub:
		t.subtests[of{e.Package, test}]++
	default:
		t.tests[of{e.Package, test}] += e.Elapsed
	}
}

// note adds the notes of internal/rig/spent. A line that a process which was killed left half written does not count.
func (t *times) note(text string) {
	for line := range strings.Lines(text) {
		number, what, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		seconds, err := strconv.ParseFloat(number, 64)
		if !ok || err != nil {
			continue
		}
		if t.notes[what] == nil {
			t.notes[what] = &note{}
		}
		t.notes[what].seconds += seconds
		t.notes[what].times++
	}
}

// print writes the tables, the longest time first.
func (t *times) print(w io.Writer) {
	if len(t.packages) > 0 {
		fmt.Fprintln(w, "TIME of packages, in seconds:")
		all, rest, others := 0.0, 0.0, 0
		for _, p := range byTime(t.packages, strings.Compare) {
			all += t.packages[p]
			if t.packages[p] < 1 {
				rest += t.packages[p]
				others++
				continue
			}
			fmt.Fprintf(w, "  %8.1f  %s\n", t.packages[p], p)
		}
		fmt.Fprintf(w, "  %8.1f  %d others, each below a second\n  %8.1f  all\n", rest, others, all)
	}
	if len(t.tests) > 0 {
		fmt.Fprintln(w, "TIME of the slowest tests, in seconds:")
	}
	for i, o := range byTime(t.tests, compareNames) {
		if i == slowest || t.tests[o] < 0.1 {
			break
		}
		subtests := ""
		if n := t.subtests[o]; n > 0 {
			subtests = fmt.Sprintf(" (%d subtests)", n)
		}
		fmt.Fprintf(w, "  %8.1f  %s %s%s\n", t.tests[o], o.pkg, o.test, subtests)
	}
	if len(t.notes) > 0 {
		fmt.Fprintln(w, "TIME beside the tests' own work, in seconds, how often, and on what; much of it side by side:")
	}
	for _, what := range slices.Sorted(maps.Keys(t.notes)) {
		fmt.Fprintf(w, "  %8.1f %5d  %s\n", t.notes[what].seconds, t.notes[what].times, what)
	}
}

// byTime sorts names by their times, the longest first.
func byTime[K comparable](seconds map[K]float64, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(seconds), func(a, b K) int {
		return cmp.Or(cmp.Compare(seconds[b], seconds[a]), compare(a, b))
	})
}

func compareNames(a, b of) int { return strings.Compare(a.pkg+" "+a.test, b.pkg+" "+b.test) }
