package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"chancery.dev/internal/rig/tool"
	"chancery.dev/kubectl/internal/plugin"
)

// TestManual: each command has a manual page with its flags and examples, and groff has nothing to say against it.
func TestManual(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	cmd := root(plugin.Streams{Out: io.Discard, ErrOut: io.Discard})
	cmd.SetArgs([]string{"man", "--dir", dir})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	groff, err := tool.Find("groff")
	if err != nil {
		t.Log("SKIPPED in part: this machine has no groff")
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" {
			return
		}
		for _, below := range cmd.Commands() {
			visit(below)
		}
		page := filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
		text, err := os.ReadFile(page)
		if err != nil || !strings.Contains(string(text), ".SH NAME\n") || cmd.Example != "" && !strings.Contains(string(text), ".SH EXAMPLES\n") {
			t.Errorf("%s: %v\n%s", page, err, text)
		}
		if groff == "" {
			return
		}
		said, err := exec.CommandContext(t.Context(), groff, "-man", "-ww", "-z", "-Tutf8", "-K", "utf8", page).CombinedOutput()
		if err != nil || len(said) > 0 {
			t.Errorf("groff %s: %v\n%s", page, err, said)
		}
	}
	visit(commands(plugin.Streams{}))
}
