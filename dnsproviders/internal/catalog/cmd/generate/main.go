// Command generate writes the catalog of lego's providers, from the descriptions that
// lego carries next to each one.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"

	"chancery.dev/dnsproviders/internal/catalog"
)

// remembers finds providers that keep in memory what it takes to clean up: those that
// guard a field of theirs with a mutex.
var remembers = regexp.MustCompile(`\bsync\.(RW)?Mutex\b`)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run() error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/go-acme/lego/v5").Output() //nolint:noctx // a tool that a person runs
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "providers", "dns", "*", "*.toml"))
	if err != nil {
		return err
	}
	entries := make([]catalog.Entry, 0, len(files))
	for _, file := range files {
		e, err := read(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		entries = append(entries, e)
	}
	text, err := json.MarshalIndent(entries, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile("zz_generated.providers.json", append(text, '\n'), 0o644) //nolint:gosec // a source file
}

func read(file string) (catalog.Entry, error) {
	var d struct {
		Name, Code, URL string
		Aliases         []string
		Configuration   struct{ Credentials, Additional map[string]string }
	}
	if _, err := toml.DecodeFile(file, &d); err != nil {
		return catalog.Entry{}, err
	}
	e := catalog.Entry{
		Name: d.Code, Title: d.Name, URL: d.URL, Aliases: d.Aliases,
		Credentials: d.Configuration.Credentials, Settings: d.Configuration.Additional,
	}
	sources, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.go"))
	if err != nil {
		return e, err
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			return e, err
		}
		if !strings.HasSuffix(source, "_test.go") && remembers.Match(text) {
			e.Stateful = true
		}
	}
	return e, nil
}
