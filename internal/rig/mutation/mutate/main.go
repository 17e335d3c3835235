// Command mutate applies each mutation of internal/rig/mutation in turn, runs the tests that are to find it, and prints
// which test did. It ends with an error if one is not found, or cannot be tried. It runs in the directory of the
// repository, beside an API server (.ci/with-control-plane), and changes nothing there.
//
//	mutate [-only NAME]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"chancery.dev/internal/rig/mutation"
)

func main() {
	only := flag.String("only", "", "the `name` of the one mutation to try; empty means all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := mutate(ctx, os.Stdout, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// mutate tries the mutation of a name, or all, and writes the table to w.
func mutate(ctx context.Context, w io.Writer, only string) error {
	all, err := mutation.All()
	if err != nil {
		return err
	}
	if only != "" {
		all = slices.DeleteFunc(all, func(m mutation.Mutation) bool { return m.Name != only })
	}
	if len(all) == 0 {
		return fmt.Errorf("there is no mutation %q: internal/rig/mutation/testdata/mutations.json lists them", only)
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	var failures []error
	fmt.Fprintf(w, "%-24s %-8s %7s  %s\n", "MUTATION", "", "SECONDS", "BY")
	for _, m := range all {
		began := time.Now()
		by, err := try(ctx, root, scratch, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		outcome := "found"
		switch {
		case err != nil:
			outcome, by = "FAILED", err.Error()
			failures = append(failures, fmt.Errorf("%s could not be tried", m.Name))
		case by == "":
			outcome, by = "MISSED", m.Breaks
			failures = append(failures, fmt.Errorf("no test finds %s", m.Name))
		}
		fmt.Fprintf(w, "%-24s %-8s %7.0f  %s\n", m.Name, outcome, time.Since(began).Seconds(), by)
	}
	fmt.Fprintf(w, "%d of %d found\n", len(all)-len(failures), len(all))
	return errors.Join(failures...)
}

// try returns the first test that fails with a mutation, with its package; empty if none does.
func try(ctx context.Context, root, scratch string, m mutation.Mutation) (by string, err error) {
	overlay, err := mutation.Overlay(ctx, root, scratch, m)
	if err != nil {
		return "", err
	}
	for _, tests := range m.Tests {
		var env []string
		if tests.Module != "" {
			if env, err = programs(ctx, filepath.Dir(overlay), overlay); err != nil {
				return "", err
			}
		}
		args := []string{"test", "-C", filepath.Join(root, tests.Module), "-overlay", overlay, "-json", "-count=1", "-timeout", "10m", "-run", tests.Run, tests.Package}
		failed, err := firstFailure(ctx, args, env)
		if err != nil || failed != "" {
			return failed, err
		}
	}
	return "", nil
}

// programs builds the controller with a mutation, and returns the variable that names it to tests.
func programs(ctx context.Context, dir, overlay string) ([]string, error) {
	path := filepath.Join(dir, "chancery")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", path, "./cmd/chancery")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the controller does not compile: %s", out)
	}
	return []string{"CHANCERY_BIN=" + path}, nil
}
