package layout_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/yaml"

	"chancery.dev/internal/rig/tool"
)

// TestContinuousIntegration runs .ci/run with a make that only says what it is asked for; testdata/ci/*.txtar are
// the stories.
func TestContinuousIntegration(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/ci",
		Setup: func(env *testscript.Env) error {
			bin := filepath.Join(env.WorkDir, "bin")
			for file, text := range map[string]string{
				filepath.Join(env.WorkDir, ".ci", "run"): string(script),
				filepath.Join(bin, "make"):               standIn,
				filepath.Join(bin, "timeout"):            standInTimeout,
				filepath.Join(bin, "sleep"):              "#!/bin/sh\n",
				filepath.Join(bin, "apt-get"):            "#!/bin/sh\necho apt-get \"$@\"\n",
			} {
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					return err
				}
				if err := tool.WriteProgram(file, text); err != nil {
					return err
				}
			}
			// Every program that .ci/run would install is there.
			for _, m := range regexp.MustCompile(`([a-z]+)=[a-z0-9-]+`).FindAllStringSubmatch(installLine(string(script)), -1) {
				if err := os.Symlink("/bin/true", filepath.Join(bin, m[1])); err != nil && !os.IsExist(err) {
					return err
				}
			}
			env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			return nil
		},
	})
}

// standIn is a make that fails at what FAIL says, and prints for its first target what SAY_<target> says.
const standIn = `#!/bin/bash
[[ $1 == --* ]] && quiet=true || quiet=
while [[ $1 == --* ]]; do shift; done
[[ $quiet ]] || echo "made $*"
say=SAY_${1//-/_}
[[ ! -v $say ]] || printf '%b\n' "${!say}"
[[ "$FAIL" != "$*" ]]
`

// standInTimeout is a timeout for which the targets in SLOW last too long.
const standInTimeout = `#!/bin/bash
shift 2
[[ " $SLOW " != *" $2 "* ]] || { echo "made half of $2"; exit 124; }
"$@"
`

func installLine(script string) string {
	_, after, _ := strings.Cut(script, "\ninstall_missing ")
	before, _, _ := strings.Cut(strings.ReplaceAll(after, "\\\n", " "), "\n")
	return before
}

// TestDue runs .ci/due in a repository with a table of its own; testdata/due/*.txtar are the stories.
func TestDue(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci", "due"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/due",
		Setup: func(env *testscript.Env) error {
			dir := filepath.Join(env.WorkDir, ".ci")
			return errors.Join(os.MkdirAll(dir, 0o700), tool.WriteProgram(filepath.Join(dir, "due"), string(script)))
		},
	})
}

// dueRow is a row of the table in CONTRIBUTING.md that .ci/due reads: a part, its minutes, and what it is about.
var dueRow = regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| [0-9]+ \\| (`.*`) \\|$")

// TestPartsAreDue: what the gate leaves out is in the table in CONTRIBUTING.md; what a part is about is there.
func TestPartsAreDue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, row := range dueRow.FindAllStringSubmatch(string(text), -1) {
		parts = append(parts, row[1])
		for about := range strings.FieldsSeq(row[2]) {
			if _, err := os.Stat(filepath.Join(root, strings.Trim(about, "`"))); err != nil {
				t.Errorf("%s is about %s, which is not there", row[1], about)
			}
		}
	}
	others, err := exec.CommandContext(t.Context(), "make", "-C", root, "--no-print-directory", "--silent", "others").Output()
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.FieldsSeq(string(others)) {
		if !slices.Contains(parts, part) {
			t.Errorf("make gate leaves %s out, and the table of parts in CONTRIBUTING.md has no such row", part)
		}
	}
	for _, part := range parts {
		if !slices.Contains(strings.Fields(string(others)), part) {
			t.Errorf("CONTRIBUTING.md has a row for %s, which is no part that make gate leaves out", part)
		}
	}
}

// TestWorkflows: the workflows are YAML, and take the version of Go that go.mod asks for. So do the README, the other
// modules, the tools and the peers.
func TestWorkflows(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	asks := regexp.MustCompile(`(?m)^go (\d+\.\d+)\.0\n\ntoolchain go(.+)$`).FindStringSubmatch(string(mod))
	if asks == nil {
		t.Fatal("go.mod has no line go 1.….0, and a line toolchain after it")
	}
	version := asks[1]
	others, err := exec.Command("git", "-C", root, "ls-files", "README.md", "*/go.mod", "tools/*.mod", "e2e/peers/*.mod").Output()
	if err != nil || strings.Count(string(others), ".mod") < 15 {
		t.Fatalf("%v: %s", err, others)
	}
	for name := range strings.FieldsSeq(string(others)) {
		want := asks[0] + "\n"
		if name == "README.md" {
			want = asks[2] + ", by itself"
		} else if strings.HasPrefix(name, "internal/rig/") {
			continue // a module that stands for a stranger's
		}
		if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not ask for Go %s as go.mod does (%v)", name, asks[2], err)
		}
	}
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal("there are no workflows", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, &map[string]any{}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, m := range regexp.MustCompile(`(?:golang:|go-version: "|go-version-file: )([^-"]+?)(?:-|\.x")`).FindAllStringSubmatch(string(text), -1) {
			if m[1] != version {
				t.Errorf("%s takes Go %s, and go.mod asks for %s", file, m[1], version)
			}
		}
	}
}

// TestEveryTestHasItsPart: each directory of e2e that holds tests is a peer of the Makefile or a part of make nightly,
// and each part of internal/rig/slow is one of make test-slow, and has tests. The gate does all that make check does.
func TestEveryTestHasItsPart(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	makefile := read("Makefile")
	words := func(pattern string) []string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(makefile)
		if m == nil {
			t.Fatalf("nothing in the Makefile matches %q", pattern)
		}
		return strings.Fields(m[1])
	}
	files, err := filepath.Glob(filepath.Join(root, "e2e", "*", "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("no tests in e2e", err)
	}
	rooms := append(words(`(?m)^PEERS := (.*)$`), words(`(?m)^NIGHTLY := (.*)$`)...)
	for _, file := range files {
		if !slices.Contains(rooms, filepath.Base(filepath.Dir(file))) {
			t.Errorf("%s is run neither by make e2e (PEERS) nor by make nightly (NIGHTLY)", file)
		}
	}
	slowParts := words(`(?m)^SLOW := (.*)$`)
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ Part = "(.*)"$`).FindAllStringSubmatch(read("internal/rig/slow/slow.go"), -1) {
		if !slices.Contains(slowParts, m[1]) {
			t.Errorf("make test-slow does not run the part %s of internal/rig/slow (SLOW)", m[1])
		}
	}
	run := exec.CommandContext(t.Context(), "go", append([]string{"run", "-C", root, "./internal/rig/parts"}, slowParts...)...)
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("a part of make test-slow would run nothing: %v\n%s", err, out)
	}
	gate := append(words(`(?m)^GATE := (.*)$`), words(`(?m)^checks:.*\n\t@for step in (.*?);`)...)
	for _, step := range append(words(`(?m)^check:.*\n\t@for step in (.*?);`), "checks") {
		if !slices.Contains(gate, step) {
			t.Errorf("make check does %s, and make gate does not", step)
		}
	}
}
