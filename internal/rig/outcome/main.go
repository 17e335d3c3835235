// Command outcome reads what `go test -json` writes and prints what a person wants to know: a line for each
// package, all output of what failed, and each skipped test with its reason. When the stream ends early, it
// prints the tests that were running. At the end it says where the time went: by package, the slowest tests, and what
// the file that CHANCERY_TEST_TIMES names says that was spent beside the tests' own work (internal/rig/spent), which
// it removes. It judges nothing: the exit code of go test does.
//
//	go test -json ./... | outcome
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"chancery.dev/internal/rig/spent"
)

func main() {
	// The signal that stops go test reaches this process too, which still has to say what was running.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	if err := run(os.Getenv(spent.Variable)); err != nil {
		fmt.Fprintln(os.Stderr, "outcome:", err)
		os.Exit(1)
	}
}

// run reports of standard input, and of the notes in a file ("": none).
func run(notes string) error {
	t := newTimes()
	if err := report(os.Stdin, os.Stdout, t); err != nil {
		return err
	}
	if notes != "" {
		text, err := os.ReadFile(notes)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		t.note(string(text))
		if err := os.RemoveAll(notes); err != nil {
			return err
		}
	}
	t.print(os.Stdout)
	return nil
}

// event is a line of go test -json (go doc test2json, go help buildjson).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// of names a test, or a package where it has no test.
type of struct{ pkg, test string }

// report copies a stream of events to w, as text, and adds up their times.
func report(r io.Reader, w io.Writer, t *times) error {
	running := map[of]string{} // with the output so far
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprint(w, line) // not of a test: the go command itself says something
			} else {
				take(w, running, e)
				t.take(e)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	for _, o := range slices.SortedFunc(maps.Keys(running), compareNames) {
		fmt.Fprintf(w, "UNFINISHED\t%s %s\n%s", o.pkg, o.test, running[o])
	}
	return nil
}

func take(w io.Writer, running map[of]string, e event) {
	o := of{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(w, e.Output)
	case "start", "run":
		running[o] = ""
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") { // which test writes the next lines: known already
			running[o] += e.Output
		}
	case "pass", "skip", "fail":
		text := running[o]
		delete(running, o)
		switch {
		case e.Action == "fail":
			fmt.Fprint(w, text)
		case e.Test == "":
			fmt.Fprint(w, ofNote(text))
		case e.Action == "skip":
			fmt.Fprintf(w, "SKIP\t%s %s: %s\n", e.Package, e.Test, reason(text))
		}
	}
}

// ofNote returns the lines to print of a package that has passed: the last one, and those that say that tests
// were skipped (a TestMain may do that, internal/rig/netns for one).
func ofNote(text string) string {
	var kept string
	all := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range all {
		if i == len(all)-1 || strings.HasPrefix(line, "SKIP") {
			kept += strings.TrimSuffix(line, "\n") + "\n"
		}
	}
	return kept
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
