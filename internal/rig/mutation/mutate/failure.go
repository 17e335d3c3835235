package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// event is a line of go test -json.
type event struct{ Action, Package, Test, FailedBuild, Output string }

// firstFailure runs the go command until the first test fails, and returns its name and package; empty if none does.
// The rest of the run is not waited for. Tests that do not end in their time have found nothing: they may be slow for
// another reason, so that is an error.
func firstFailure(ctx context.Context, args, env []string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) } // what the tests have started, too
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	failed, last := "", ""
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		switch {
		case e.Action == "output" || e.Action == "build-output":
			last = strings.TrimSpace(e.Output)
			if strings.HasPrefix(last, "panic: test timed out") {
				err = fmt.Errorf("the tests of %s did not end: %s", e.Package, last)
				cancel()
			}
		case e.Action == "fail" && e.FailedBuild != "":
			err = fmt.Errorf("%s does not compile: %s", e.FailedBuild, last)
		case e.Action == "fail" && e.Test != "" && failed == "" && err == nil:
			failed = e.Test + " of " + strings.TrimPrefix(e.Package, "chancery.dev/")
			cancel()
		}
	}
	ended := cmd.Wait()
	if failed != "" || err != nil {
		return failed, err
	}
	if exit := (*exec.ExitError)(nil); ended != nil && !errors.As(ended, &exit) {
		return "", ended
	}
	if ended != nil { // a panic outside of a test, or a data race
		return "the end of the process: " + last, nil
	}
	return "", nil
}
