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
				filepath.Join(bin, "git"):                standInGit,
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

// standIn is a make that fails at the targets in FAIL, and prints for each target what SAY_<target> says.
const standIn = `#!/bin/bash
echo "made $1"
say=SAY_${1//-/_}
[[ ! -v $say ]] || printf '%b\n' "${!say}"
[[ " $FAIL " != *" $1 "* ]]
`

// standInGit is a git that knows COMMITS commits, and names the one 3 before HEAD minus-3.
const standInGit = `#!/bin/bash
case $1 in
rev-list) echo $COMMITS ;;
rev-parse) [[ ! $3 =~ ^HEAD~[0-9]+$ ]] || echo minus-${3#HEAD~} ;;
esac
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

// TestContinuousIntegrationRunsEverything: each directory of e2e that holds tests is a peer of the Makefile or a part
// of make nightly; each part of internal/rig/slow is one of make test-slow, and has tests; and each of these parts is
// in .ci/run. So is all that make check does.
func TestContinuousIntegrationRunsEverything(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	words := func(text, pattern string) []string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("nothing matches %q", pattern)
		}
		return strings.Fields(m[1])
	}
	makefile, script := read("Makefile"), read(".ci/run")
	names := regexp.MustCompile(`=\d+`).ReplaceAllString(script, "")
	parts, rotation := words(names, `(?m)^parts=\((.*)\)$`), words(names, `(?ms)^rotation=\((.*?)\)$`)
	targets := []string{"fuzz", "chaos", "soak"}
	files, err := filepath.Glob(filepath.Join(root, "e2e", "*", "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("no tests in e2e", err)
	}
	for _, peer := range words(makefile, `(?m)^PEERS := (.*)$`) {
		targets = append(targets, "e2e-"+peer)
	}
	for _, part := range words(makefile, `(?m)^NIGHTLY := (.*)$`) {
		targets = append(targets, "nightly-"+part)
	}
	for _, file := range files {
		room := filepath.Base(filepath.Dir(file))
		if !slices.Contains(targets, "e2e-"+room) && !slices.Contains(targets, "nightly-"+room) {
			t.Errorf("%s is run neither by make e2e (PEERS) nor by make nightly (NIGHTLY)", file)
		}
	}
	slowParts := words(makefile, `(?m)^SLOW := (.*)$`)
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ Part = "(.*)"$`).FindAllStringSubmatch(read("internal/rig/slow/slow.go"), -1) {
		if !slices.Contains(slowParts, m[1]) {
			t.Errorf("make test-slow does not run the part %s of internal/rig/slow (SLOW)", m[1])
		}
	}
	for _, part := range slowParts {
		targets = append(targets, "test-slow-"+part)
	}
	run := exec.CommandContext(t.Context(), "go", append([]string{"run", "-C", root, "./internal/rig/parts"}, slowParts...)...)
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("a part of make test-slow would run nothing: %v\n%s", err, out)
	}
	for _, target := range targets {
		if !slices.Contains(parts, target) && !slices.Contains(rotation, target) {
			t.Errorf("%s is in the Makefile, and .ci/run does not run it", target)
		}
	}
	covered := append(words(makefile, `(?m)^checks:.*\n\t@for step in (.*?);`), parts...)
	for _, step := range words(makefile, `(?m)^check:.*\n\t@for step in (.*?);`) {
		if !slices.Contains(covered, step) {
			t.Errorf("make check does %s, and .ci/run does not", step)
		}
	}
	if !slices.Contains(parts, "checks") {
		t.Error(".ci/run does not run make checks")
	}
}
