package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocumentedCommands: what the documentation says to type is what the binary takes.
func TestDocumentedCommands(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			command, ok := strings.CutPrefix(strings.TrimPrefix(line, "    "), "chancery ")
			if !ok {
				continue
			}
			seen++
			words := strings.Fields(strings.NewReplacer("'", "", "[", "", "]", "").Replace(command))
			cmd, flags, err := New().Find(words)
			if err == nil {
				err = cmd.ParseFlags(flags)
			}
			if err != nil {
				t.Errorf("%s: chancery %s: %v", filepath.Base(file), strings.TrimSpace(command), err)
			}
		}
	}
	if seen == 0 {
		t.Error("there are no commands: are they indented otherwise?")
	}
}
