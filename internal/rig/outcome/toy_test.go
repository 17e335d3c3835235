package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"chancery.dev/internal/rig/tool"
)

// TestRerun runs the toy module of testdata as the Makefile runs tests. A test that failed may pass when it is run
// again, alone. Whatever else went wrong, no later run hides it.
func TestRerun(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: this test compiles")
	}
	t.Parallel()
	const flaky = "FLAKY chancery.dev/toy.TestOne: failed, and passed when it was run again"
	const ended = "FAIL\tchancery.dev/toy: ended before its tests did\n"
	for _, c := range []struct {
		toy, flag, says string
		runs            int
		passes          bool
	}{
		{toy: "passes", runs: 1, passes: true, says: "SKIP\tchancery.dev/toy TestRows/skipped: toy_test.go:"},
		{toy: "fails once", runs: 2, passes: true, says: flaky},
		{toy: "a row fails once", runs: 2, passes: true, says: "FLAKY chancery.dev/toy.TestRows: "},
		{toy: "fails", runs: 3, says: "FAIL\tchancery.dev/toy.TestOne\n"},
		{toy: "six fail", runs: 1, says: "FAIL\tchancery.dev/toy.TestSix\n"},
		{toy: "panics once", runs: 1, says: ended},
		{toy: "exits 0 once", runs: 1, says: ended},
		{toy: "exits 1 once", runs: 2, says: ended},
		{toy: "is ended once", runs: 1, says: "UNFINISHED\tchancery.dev/toy\n"},
		{toy: "hangs", flag: "-timeout=1s", runs: 1, says: ended},
		{toy: "TestMain fails", runs: 2, says: "FAIL\tchancery.dev/toy: failed, and none of its tests did\n"},
		{toy: "TestMain fails once", runs: 2, says: "FAIL\tchancery.dev/toy: failed, and none of its tests did\n"},
		{toy: "both fail once", runs: 2, says: "FAIL\tchancery.dev/toy: failed, and said more after its tests\n"},
		{toy: "skips later once", runs: 2, says: "FAIL\tchancery.dev/toy.TestOne\n"},
		{toy: "passes", flag: "-tags=broken", runs: 1, says: "FAIL\tchancery.dev/toy: does not build\n"},
	} {
		t.Run(strings.TrimSpace(c.toy+" "+c.flag), func(t *testing.T) {
			t.Parallel()
			said, runs, err := toy(t, c.toy, c.flag)
			if (err == nil) != c.passes || runs != c.runs || !strings.Contains(said, c.says) {
				t.Errorf("%d runs, error: %v, want it to pass: %t, after %d runs, and to say %q; it said:\n%s",
					runs, err, c.passes, c.runs, c.says, said)
			}
			if strings.Contains(said, "FLAKY") != c.passes && c.toy != "passes" && c.toy != "both fail once" {
				t.Errorf("FLAKY is for what has passed after all:\n%s", said)
			}
		})
	}
}

// toy makes the toy module do something. It returns what outcome says, and how often the tests were run.
func toy(t *testing.T, does, flag string) (said string, runs int, err error) {
	t.Helper()
	program := os.Getenv("CHANCERY_GOTESTSUM_BIN")
	if program == "" {
		program = "gotestsum"
	}
	program = tool.Path(t, program)
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`(?m)^RERUN := (.*)$`).FindSubmatch(makefile)
	if flags == nil {
		t.Fatal("the Makefile has no variable RERUN, with the flags about tests that fail")
	}
	dir := filepath.Join(t.TempDir(), "tests")
	args := append(strings.Fields(string(flags[1])), "--jsonfile="+filepath.Join(dir, "events.json"),
		"--packages=.", "--", "-count=1", "-vet=off", "-ldflags=-w")
	if flag != "" {
		args = append(args, flag)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", `mkdir -p "$0" && go list . >"$0/packages" && exec "$@"`, dir, program)
	cmd.Args = append(cmd.Args, args...)
	cmd.Dir = filepath.Join("testdata", "toy")
	cmd.Env = append(os.Environ(), "TOY="+does, "TOY_DIR="+t.TempDir())
	var out, gotestsum strings.Builder
	cmd.Stdout, cmd.Stderr = &gotestsum, &gotestsum
	err = run(&out, dir, "", cmd)
	events, failed := os.ReadFile(filepath.Join(dir, "events.json"))
	if failed != nil {
		t.Fatalf("%v; gotestsum said:\n%s", failed, &gotestsum)
	}
	file, failed := os.ReadFile(filepath.Join(dir, "flaky"))
	if failed != nil || !strings.HasSuffix(out.String(), string(file)) {
		t.Errorf("the file of flaky tests: %v, %q", failed, file)
	}
	return fmt.Sprintf("%s\ngotestsum said:\n%s", &out, &gotestsum), strings.Count(string(events), `"Action":"start"`), err
}
