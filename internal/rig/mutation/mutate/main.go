// Command mutate tests the tests. It applies each mutation of internal/rig/mutation in turn, runs the tests that must
// find the mutation, and prints the test that found it. The command fails if no test finds a mutation, or if a mutation
// cannot be tried. It runs in the directory of the repository, with an API server (.ci/with-control-plane), and changes
// no file there.
//
//	mutate [-only NAME] [-quarter N]
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
	"chancery.dev/internal/rig/slow"
)

func main() {
	only := flag.String("only", "", "the `name` of the one mutation to try; empty means all")
	quarter := flag.Int("quarter", 0, "the `number` from 1 to 4 of the quarter of the mutations to try; 0 means all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := mutate(ctx, os.Stdout, *only, *quarter)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// mutate tries the mutation of a name, or those of a quarter, or all, and writes the table to w.
func mutate(ctx context.Context, w io.Writer, only string, quarter int) error {
	all, err := mutation.All()
	if err != nil {
		return err
	}
	n := 0
	all = slices.DeleteFunc(all, func(m mutation.Mutation) bool {
		n++
		return only != "" && m.Name != only || quarter != 0 && n%4 != quarter%4
	})
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
		env := []string{slow.Variable + "=" + string(tests.Slow)}
		if tests.Module != "" {
			program, err := controller(ctx, filepath.Dir(overlay), overlay)
			if err != nil {
				return "", err
			}
			env = append(env, program)
		}
		args := []string{"test", "-C", filepath.Join(root, tests.Module), "-overlay", overlay, "-json", "-count=1", "-timeout", "10m", "-run", tests.Run, tests.Package}
		failed, err := firstFailure(ctx, args, env)
		if err != nil || failed != "" {
			return failed, err
		}
	}
	return "", nil
}

// controller builds the controller with a mutation, and returns the variable that names it to tests.
func controller(ctx context.Context, dir, overlay string) (string, error) {
	path := filepath.Join(dir, "chancery")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", path, "./cmd/chancery")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the controller does not compile: %s", out)
	}
	return "CHANCERY_BIN=" + path, nil
}
