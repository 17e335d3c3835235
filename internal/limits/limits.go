// Package limits lists the size limits of all input from outside of the controller: from a tenant, a server, or a
// client of the API server. The API server enforces some limits. Other packages enforce the rest by the constants of
// this package. docs/limits.md is generated from the function Table. The package checks nothing itself.
package limits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Listed is how many items of a list an error, an event or a condition names. The text then counts the others.
const Listed = 10

// Outcome says what happens to input of some size.
type Outcome string

const (
	// Taken is used whole.
	Taken Outcome = "taken"
	// Refused is not used at all.
	Refused Outcome = "refused"
	// Cut is used up to the bound: what is above it is left out.
	Cut Outcome = "cut"
	// Dropped makes room for itself: what was used the longest ago is not kept any more.
	Dropped Outcome = "dropped"
	// Waiting is used later.
	Waiting Outcome = "waiting"
)

// Untried is why no test tries a bound and one above it.
type Untried string

// Reasons that no test tries a bound and one above it.
const (
	// ByKubernetes is a bound that the API server has for all objects, without a word of ours.
	ByKubernetes Untried = "Kubernetes holds it"
	// ByProtocol is a bound above which the protocol has no number.
	ByProtocol Untried = "a length in the protocol has two bytes"
	// ByGolden is a wait, which testdata/waits.txt of each package shows in a table.
	ByGolden Untried = "a table shows each wait"
	// ByShare is a bound that namespaces share: what a test would try depends on how many namespaces there are.
	ByShare Untried = "how namespaces share it is tried instead"
)

// Number is a bound that is a number.
type Number struct {
	// Name is unique in the table: rig/bounds.Holds takes it.
	Name string
	// Max is the most that is taken.
	Max int
	// Unit is "bytes", another word for what is counted, or empty.
	Unit string
	// Above is what happens to one more than Max. It is empty if Untried says why no test tries that.
	Above Outcome
	// Untried says why no test tries Max and one more; else empty.
	Untried Untried
}

// String writes the number with its unit.
func (n Number) String() string {
	switch n.Unit {
	case "bytes":
		return bytes(n.Max)
	case "":
		return grouped(n.Max)
	}
	return count(n.Max, n.Unit)
}

// held is a bound that a test tries.
func held(name string, most int, unit string, above Outcome) Number {
	return Number{Name: name, Max: most, Unit: unit, Above: above}
}

// untried is a bound that no test tries.
func untried(name string, most int, unit string, why Untried) Number {
	return Number{Name: name, Max: most, Unit: unit, Untried: why}
}

// Text writes the bound.
func (r Row) Text() string {
	var numbers []any
	for _, n := range r.Numbers {
		numbers = append(numbers, n)
	}
	if r.Bound == "" {
		return strings.TrimSuffix(fmt.Sprintf(strings.Repeat("%s, ", len(numbers)), numbers...), ", ")
	}
	return fmt.Sprintf(r.Bound, numbers...)
}

// Row is one size that somebody else chooses.
type Row struct {
	// What comes from outside.
	What string
	// Who chooses its size.
	Who string
	// Numbers are the bounds that are numbers.
	Numbers []Number
	// Bound of the size in words, with a %s for each of Numbers in turn, and no digit. Empty means Numbers, and commas.
	Bound string
	// Costs says what one unit costs the controller.
	Costs string
	// Above says what happens above the bound.
	Above string
	// Tests are the names of the test functions that hold the bound and the cost.
	Tests []string
	// Fuzz are the names of the fuzz targets of the parsers that read what comes. Without one, Parser says why.
	Fuzz []string
	// Parser says why there is no target: whose parser reads it, or that nothing is parsed.
	Parser string
}

// Section is the rows about one kind of source.
type Section struct {
	// Title of the section in docs/limits.md.
	Title string
	// Rows in the order in which they are shown.
	Rows []Row
}

// Table is all bounds.
func Table() []Section {
	return []Section{
		{"Objects of tenants", slices.Concat(shims(), objects(), keys())}, {"Answers of servers", slices.Concat(answers(), others(), policies())}, {"What is kept, and under way", slices.Concat(kept(), passing())},
		{"What is said and noted about an object", told()},
	}
}

// count writes a number of things with commas, as in "1,000 entries".
func count(n int, things string) string { return grouped(n) + " " + things }

// bytes writes a size in bytes, as in "64 KiB".
func bytes(n int) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case n >= mib && n%mib == 0:
		return fmt.Sprintf("%d MiB", n/mib)
	case n >= kib && n%kib == 0:
		return fmt.Sprintf("%d KiB", n/kib)
	}
	return count(n, "bytes")
}

// grouped writes a number with a comma before each three digits.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
