// Command outcome runs a command that runs tests by gotestsum. At the end, outcome prints what gotestsum leaves out:
// skipped tests with their reasons, tests that were running when the events stopped, and where the time went. It prints
// FLAKY for each test that failed first and passed in a later run. outcome fails if the command fails. It also fails if
// a later run hides a failure: a package ended before its tests ended, a package failed although none of its tests
// failed, or a test failed and has not passed since. outcome runs no test again: gotestsum does.
//
// COMMAND writes the events of go test to DIRECTORY/…/events.json (gotestsum --jsonfile). Next to events.json, COMMAND
// writes a file with the name packages: the output of go list for the packages to test. Each of these packages must
// come to an end. outcome writes its FLAKY lines to DIRECTORY/flaky. At the start, outcome removes the content of
// DIRECTORY and the file that CHANCERY_TEST_TIMES names. In this file, tests note the time that they spend on anything
// but their own work (internal/rig/spent).
//
//	outcome DIRECTORY COMMAND [ARGUMENT]...
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"chancery.dev/internal/rig/spent"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: outcome DIRECTORY COMMAND [ARGUMENT]...")
		os.Exit(2)
	}
	// The signal that stops the tests reaches this process too, which still has to say what was running.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM)
	cmd := exec.Command(os.Args[2], os.Args[3:]...) //nolint:noctx // a signal ends it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := run(os.Stdout, os.Args[1], os.Getenv(spent.Variable), cmd); err != nil {
		fmt.Fprintln(os.Stderr, "outcome:", err)
		os.Exit(1)
	}
}

// run runs the command and reports on the events in a directory, and on the notes in a file ("": none).
func run(w io.Writer, dir, notes string, cmd *exec.Cmd) error {
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(notes), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	failed := cmd.Run()
	tests, times := newTests(), newTimes()
	if err := read(dir, tests, times); err != nil {
		return errors.Join(failed, err)
	}
	text, err := os.ReadFile(notes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(failed, err)
	}
	times.note(string(text))
	times.print(w)
	flaky, wrong := tests.print(w)
	return errors.Join(failed, wrong, os.WriteFile(filepath.Join(dir, "flaky"), []byte(flaky), 0o600))
}

// read takes all events in a directory. It is an error if there are none: nobody would have judged the tests.
func read(dir string, tests *tests, times *times) error {
	found := false
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "events.json" {
			return err
		}
		found = true
		listed, err := os.ReadFile(filepath.Join(filepath.Dir(path), "packages"))
		if err != nil {
			return err
		}
		for pkg := range strings.FieldsSeq(string(listed)) {
			tests.packages[pkg] = newProcess()
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if e, ok := parse(line); ok {
				tests.take(e)
				times.take(e)
			}
		}
		return err
	})
	if err == nil && !found {
		err = errors.New("no test has run: there are no events in " + dir)
	}
	return err
}
