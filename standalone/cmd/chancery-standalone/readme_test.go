package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"chancery.dev/internal/rig/slow"
)

// TestReadme runs every command that the README shows in a block of its own, but
// `make test`, which is what runs this test.
func TestReadme(t *testing.T) {
	slow.Test(t, slow.Docs)
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	ran := 0
	for _, block := range blocks {
		for command := range strings.Lines(block[1]) {
			command = strings.TrimSpace(command)
			if command == "" || command == "make test" {
				continue
			}
			ran++
			cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
			cmd.Dir = root
			// As a user's shell would have it, not as a recipe of make has it.
			cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=", "MFLAGS=")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", command, err, out)
			}
			if !strings.Contains(string(out), "every chain is verified") {
				t.Errorf("%s does not show what the README promises:\n%s", command, out)
			}
		}
	}
	if ran == 0 {
		t.Error("the README shows no command but make test")
	}
}
