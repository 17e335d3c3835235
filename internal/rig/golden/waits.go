package golden

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/fault"
)

// The words that a row of Waits may have in place of a wait. Each ends the row.
const (
	// Over: the caller gives up.
	Over = "over"
	// Never: the caller does not try again before something changes.
	Never = "never"
)

const day = 24 * time.Hour

// Classes returns all classes of failures, first that of a failure of which nothing is known.
func Classes() []fault.Class {
	return []fault.Class{
		"", fault.ClassPermanent, fault.ClassPolicy, fault.ClassRefused, fault.ClassValidation, fault.ClassSelfCheck, fault.ClassSolver,
		fault.ClassRateLimited, fault.ClassPaused, fault.ClassUnavailable, fault.ClassCredential, fault.ClassConfiguration,
		fault.ClassNotProcessed, fault.ClassNotReady, fault.ClassNotFound,
	}
}

// Waits is the table of how long the callers of a package wait after failures. It is in testdata/waits.txt, and
// internal/layout knows which callers there are. The zero value is an empty table.
type Waits struct{ blocks []block }

// block is what a caller does after failures that it waits out alike.
type block struct {
	caller, rows string
	failures     []string
}

// Row says how long a caller waits that was asked to wait, if asked is not 0, with that chance in [0,1), which spreads
// objects that fail together. What it returns is called after each failure in a row, with their number, 1 for the
// first: it returns a wait as Text has it, or Over or Never.
type Row func(asked time.Duration, chance float64) (after func(failures int) string)

// Add adds what a caller does after a failure: a class, or an answer with the class that it has.
func (w *Waits) Add(caller, failure string, row Row) {
	if failure == "" {
		failure = "no class"
	}
	rows := rowsOf(row)
	for i, b := range w.blocks {
		if b.caller == caller && b.rows == rows {
			w.blocks[i].failures = append(b.failures, failure)
			return
		}
	}
	w.blocks = append(w.blocks, block{caller, rows, []string{failure}})
}

// Check compares the table with testdata/waits.txt. The notes, one on each line, say what a reader has to know of this
// package.
func (w *Waits) Check(t *testing.T, notes string) {
	t.Helper()
	var out strings.Builder
	out.WriteString(head)
	for note := range strings.Lines(notes) {
		fmt.Fprintf(&out, "# %s\n", strings.TrimSpace(note))
	}
	for _, b := range w.blocks {
		fmt.Fprintf(&out, "\n%s after %s\n%s", b.caller, strings.Join(b.failures, ", "), b.rows)
	}
	Check(t, "waits.txt", out.String())
}

// head explains the columns.
const head = `# How long callers wait. A change of this table is one that people see: it comes with a line in CHANGELOG.
#
# "CALLER after FAILURES": the caller waits alike after each of these failures. Below is a line for what the other side
# has asked to wait (0: it has not), with the waits after 1, 2, 3, 5, 8 and 12 such failures in a row: first with chance
# 0, after the bar with chance 1/2. Without a bar, chance changes nothing. "1s×3" is 1s three times, "1y" is 365d.
# "over": the caller gives up. "never": it does not try again before something changes. Nothing comes after these.
#
`

// rowsOf returns a line for each wait that may be asked for. Neighbours that are equal share a line.
func rowsOf(row Row) string {
	var out strings.Builder
	var asked []string
	last := ""
	flush := func() {
		if len(asked) > 0 {
			fmt.Fprintf(&out, "  asked %-16s %s\n", strings.Join(asked, ", "), last)
		}
	}
	for _, a := range []struct {
		text string
		wait time.Duration
	}{{"0", 0}, {"30s", 30 * time.Second}, {"1h", time.Hour}, {"30d", 30 * day}, {"1y", 365 * day}} {
		waits, spread := waitsOf(row(a.wait, 0)), waitsOf(row(a.wait, 0.5))
		if spread != waits {
			waits += " | " + spread
		}
		if waits != last {
			flush()
			asked, last = nil, waits
		}
		asked = append(asked, a.text)
	}
	flush()
	return out.String()
}

// waitsOf has the waits after 1, 2, 3, 5, 8 and 12 failures.
func waitsOf(after func(failures int) string) string {
	var out []string
	for n := 1; n <= 12; n++ {
		wait := after(n)
		ends := wait == Over || wait == Never
		if ends || slices.Contains([]int{1, 2, 3, 5, 8, 12}, n) {
			out = append(out, wait)
		}
		if ends {
			break
		}
	}
	return fold(out)
}

// fold joins values, each that is repeated with how often it is: "1s 2s×3".
func fold(values []string) string {
	var out []string
	for len(values) > 0 {
		n := 1
		for n < len(values) && values[n] == values[0] {
			n++
		}
		text := values[0]
		if n > 1 {
			text += fmt.Sprintf("×%d", n)
		}
		out, values = append(out, text), values[n:]
	}
	return strings.Join(out, " ")
}

// Text is a wait in days and less, as short as can be: "7d30s", "750ms".
func Text(wait time.Duration) string {
	text := ""
	if wait >= day {
		text = fmt.Sprintf("%dd", wait/day)
		if wait %= day; wait == 0 {
			return text
		}
	}
	rest := wait.String()
	if strings.HasSuffix(rest, "m0s") {
		rest = strings.TrimSuffix(rest, "0s")
	}
	if strings.HasSuffix(rest, "h0m") {
		rest = strings.TrimSuffix(rest, "0m")
	}
	return text + rest
}

// TextOrNever is Text of what engine.BackOff returns, for which 0 is Never.
func TextOrNever(wait time.Duration) string {
	if wait == 0 {
		return Never
	}
	return Text(wait)
}
