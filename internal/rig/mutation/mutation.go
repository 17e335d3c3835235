// Package mutation holds mutations. A mutation is a deliberate mistake in product code. It shows whether the tests find
// such a mistake. Each mutation is a patch in testdata: with the patch, a test must fail. The package applies patches
// to copies of the files, for go test -overlay, and never to the files of the repository. Command mutate runs the
// mutations. Only tests and the command mutate import the package.
package mutation

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"chancery.dev/internal/rig/slow"
)

// Mutation is one wrong change of product code.
type Mutation struct {
	// Name is that of the patch, without its extension.
	Name string `json:"name"`
	// Breaks says in one sentence what goes wrong.
	Breaks string `json:"breaks"`
	// Reverses is the commit whose fix the patch turns round; empty if there is none.
	Reverses string `json:"reverses"`
	// Tests are those that find it.
	Tests []Tests `json:"tests"`
}

// Tests are tests of one package.
type Tests struct {
	// Module is the directory of the package's module; empty means the root module. The tests of another module run the
	// programs, which are built with the patch then.
	Module string `json:"module"`
	// Package is the package's directory in its module, as ./internal/app.
	Package string `json:"package"`
	// Run is what go test -run is given; empty means all tests.
	Run string `json:"run"`
	// Slow is the part of make test-slow that the tests belong to; empty if make test runs them.
	Slow slow.Part `json:"slow"`
}

//go:embed testdata
var testdata embed.FS

// All returns the set, which testdata/mutations.json lists. A patch is made by hand: change the code, keep the output
// of git diff, and undo the change. A mutation that no test finds shows that a test is missing.
func All() ([]Mutation, error) {
	text, err := testdata.ReadFile("testdata/mutations.json")
	if err != nil {
		return nil, err
	}
	var all []Mutation
	return all, json.Unmarshal(text, &all)
}

// Patch returns the patch of a mutation, in the form of git diff.
func (m Mutation) Patch() ([]byte, error) {
	return testdata.ReadFile("testdata/" + m.Name + ".patch")
}

// Packages returns the directories of the packages that the patch changes, as ./internal/app.
func (m Mutation) Packages() ([]string, error) {
	patch, err := m.Patch()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, file := range changed(patch) {
		out = append(out, "./"+filepath.Dir(file))
	}
	return out, nil
}

// changed returns the files that a patch changes.
func changed(patch []byte) []string {
	var out []string
	for line := range strings.Lines(string(patch)) {
		if file, ok := strings.CutPrefix(strings.TrimSpace(line), "+++ b/"); ok {
			out = append(out, file)
		}
	}
	return out
}

// Overlay applies patches to copies of their files in a new directory below scratch, and returns the file for
// go test -overlay and go build -overlay. root is the directory of the repository. A patch that does not apply is an
// error: whoever moves the code carries the patch over.
func Overlay(ctx context.Context, root, scratch string, all ...Mutation) (string, error) {
	dir, err := os.MkdirTemp(scratch, "overlay-")
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, m := range all {
		patch, err := m.Patch()
		if err != nil {
			return "", err
		}
		for _, file := range changed(patch) {
			from, to := filepath.Join(root, file), filepath.Join(dir, file)
			if err := copyOnce(from, to); err != nil {
				return "", fmt.Errorf("%s: %w", m.Name, err)
			}
			replace[from] = to
		}
		if err := apply(ctx, dir, patch); err != nil {
			return "", fmt.Errorf("testdata/%s.patch does not apply any more: carry it over to the code as it is now: %w", m.Name, err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// copyOnce copies a file, unless there is a copy already.
func copyOnce(from, to string) error {
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

func apply(ctx context.Context, dir string, patch []byte) error {
	cmd := exec.CommandContext(ctx, "git", "apply", "-")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(patch)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // in no repository, or git apply is silent
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
