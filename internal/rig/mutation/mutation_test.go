package mutation

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"chancery.dev/internal/rig/slow"
)

const root = "../../.."

func all(t *testing.T) []Mutation {
	t.Helper()
	set, err := All()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestPatchesApply: each patch fits the code as it is now, and leaves code that can be parsed; the tests that are to
// find it are there.
func TestPatchesApply(t *testing.T) {
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	inSet := map[string]bool{}
	for _, m := range all(t) {
		inSet[m.Name] = true
		t.Run(m.Name, func(t *testing.T) {
			overlay, err := Overlay(t.Context(), top, t.TempDir(), m)
			if err != nil {
				t.Fatal(err)
			}
			patch, err := m.Patch()
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range changed(patch) {
				if _, err := parser.ParseFile(token.NewFileSet(), filepath.Join(filepath.Dir(overlay), file), nil, parser.SkipObjectResolution); err != nil {
					t.Error(err)
				}
			}
			if len(m.Tests) == 0 || m.Breaks == "" {
				t.Error("it does not say what it breaks, or which tests find that")
			}
			for _, tests := range m.Tests {
				if !hasTest(t, filepath.Join(top, tests.Module, tests.Package), tests.Run, tests.Slow) {
					t.Errorf("no test of %s of the part %q is called %q", tests.Package, tests.Slow, tests.Run)
				}
			}
		})
	}
	files, err := filepath.Glob("testdata/*.patch")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".patch"); !inSet[name] {
			t.Errorf("%s is not in mutations.json", file)
		}
	}
	if len(files) != len(inSet) {
		t.Errorf("%d patches, and %d in mutations.json", len(files), len(inSet))
	}
}

// hasTest reports whether each alternative of the first part of a -run expression names a test of the package that runs
// with a part of make test-slow, or with none.
func hasTest(t *testing.T, dir, run string, part slow.Part) bool {
	t.Helper()
	var names []string
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") && runs(f, part) {
				names = append(names, f.Name.Name)
			}
		}
	}
	first, _, _ := strings.Cut(run, "/")
	for one := range strings.SplitSeq(first, "|") {
		is, err := regexp.Compile(one)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, name := range names {
			found = found || is.MatchString(name)
		}
		if !found {
			return false
		}
	}
	return true
}

// runs reports whether a test function, if it says itself that it is slow, says so of the part.
func runs(f *ast.FuncDecl, part slow.Part) bool {
	runs := true
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if ok && types.ExprString(call.Fun) == "slow.Test" {
			runs = strings.EqualFold(types.ExprString(call.Args[1]), "slow."+string(part))
		}
		return true
	})
	return runs
}

// TestSetIsWhatItPromises: most are mistakes that were made once, and most are not found without an API server.
func TestSetIsWhatItPromises(t *testing.T) {
	parts := exec.Command("go", "run", "./internal/rig/parts", "quick")
	parts.Dir = root
	quick, err := parts.Output()
	if err != nil {
		t.Fatal(err)
	}
	reversed, slow := 0, 0
	for _, m := range all(t) {
		if m.Reverses != "" {
			reversed++
		}
		if !slices.ContainsFunc(m.Tests, func(tests Tests) bool {
			return tests.Module == "" && slices.Contains(strings.Fields(string(quick)), tests.Package)
		}) {
			slow++
		}
	}
	if reversed < 12 || slow < 12 {
		t.Errorf("%d turn a fix round, %d need more than make quick: at least 12 of each are wanted", reversed, slow)
	}
}

// TestPatchesCompile: with all patches at once, the code compiles. TestPatchesApply is its short twin.
func TestPatchesCompile(t *testing.T) {
	slow.Test(t, slow.Builds)
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", ""}
	set := all(t)
	for _, m := range set {
		packages, err := m.Packages()
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, packages...)
	}
	if args[2], err = Overlay(t.Context(), top, t.TempDir(), set...); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir, build.Env = top, os.Environ()
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
