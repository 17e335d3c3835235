// Package limits is the list of the bounds of everything whose size somebody outside of the controller chooses: a
// tenant, a server, a client of the API server. What the API server does not bound, the code bounds by the constants
// here; docs/limits.md is written from the table. The package checks nothing itself.
package limits

import (
	"fmt"
	"slices"
	"strconv"
)

// Listed is how many of a list an error, an event or a condition names: then comes how many more there are.
const Listed = 10

// Row is one size that somebody else chooses.
type Row struct {
	// What comes from outside.
	What string
	// Who chooses its size.
	Who string
	// Bound of the size, with its unit.
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
		{"Objects of tenants", slices.Concat(shims(), objects(), keys())}, {"Answers of servers", slices.Concat(answers(), policies())}, {"What is kept, and under way", kept()},
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
