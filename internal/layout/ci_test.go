package layout_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

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
