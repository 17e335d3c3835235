package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"chancery.dev/kubectl/internal/plugin"
)

// TestExamples: what the documentation and the help say to type is what the commands take.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(file)] = string(text)
	}
	var help func(*cobra.Command)
	help = func(cmd *cobra.Command) {
		texts["the help of "+cmd.CommandPath()] = cmd.Example
		for _, below := range cmd.Commands() {
			help(below)
		}
	}
	help(commands(plugin.Streams{}))
	seen, quoted := map[string]int{}, regexp.MustCompile(`'[^']*'|\S+`)
	for where, text := range texts {
		for line := range strings.Lines(text) {
			command, is := strings.CutPrefix(strings.TrimSpace(line), "kubectl chancery ")
			if !is {
				continue
			}
			command, _, _ = strings.Cut(command, " >") // where the shell writes the output
			words := quoted.FindAllString(command, -1)
			cmd, flags, err := commands(plugin.Streams{}).Find(words)
			if err == nil {
				err = cmd.ParseFlags(flags)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil || !cmd.Runnable() {
				t.Errorf("%s: kubectl chancery %s: %v", where, command, err)
			}
			seen[cmd.Name()]++
		}
	}
	for _, want := range []string{"status", "list"} {
		if seen[want] < 3 {
			t.Errorf("only %d examples of %s: are they written otherwise?", seen[want], want)
		}
	}
}
