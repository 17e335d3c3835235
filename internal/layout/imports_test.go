package layout_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	module = "chancery.dev"
	root   = "../.."
)

// listed is what go list says about a package.
type listed struct {
	ImportPath           string
	Imports, TestImports []string
}

func TestLayers(t *testing.T) {
	packages := list(t, "./...")
	if len(packages) < 3 {
		t.Fatalf("go list found %d packages: not the root module?", len(packages))
	}
	for _, p := range packages {
		for _, problem := range checkImports(rooms, p) {
			t.Error(problem)
		}
	}
}

// TestRoomsAreThere: each row of the table is a package, and has one row.
func TestRoomsAreThere(t *testing.T) {
	seen, there := map[string]bool{}, map[string]bool{}
	for _, p := range list(t, "./...") {
		there[p.ImportPath] = true
	}
	for _, r := range rooms {
		if !there[module+"/"+r.path] {
			t.Errorf("%s has a row in the table of layers, and is no package", r.path)
		}
		if seen[r.path] {
			t.Errorf("%s has two rows in the table of layers", r.path)
		}
		seen[r.path] = true
	}
}

func TestHeavyModulesStayOutside(t *testing.T) {
	for _, p := range list(t, "-deps", "./...") {
		if isAny(p.ImportPath, outside) {
			t.Errorf("the root module depends on %s, which belongs to standalone or dnsproviders: `go mod why %[1]s` tells by which way", p.ImportPath)
		}
	}
}

func TestDirectDependencies(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(run(t, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	if len(direct) == 0 || len(direct) > maxDirectRequires {
		t.Errorf("the root module requires %d modules directly, the bar is %d: %s",
			len(direct), maxDirectRequires, strings.Join(direct, ", "))
	}
}

// TestImportRulesBite shows that each rule can fail.
func TestImportRulesBite(t *testing.T) {
	plan := []room{
		{layer: 0, path: "internal/low"},
		{layer: 1, path: "internal/mid"},
		{layer: 1, path: "internal/peer"},
		{layer: 2, path: "internal/rig", rig: true},
	}
	for name, tc := range map[string]struct {
		pkg  listed
		want string
	}{
		"lower":         {listed{ImportPath: "internal/mid", Imports: []string{"chancery.dev/internal/low", "fmt"}}, ""},
		"same layer":    {listed{ImportPath: "internal/mid", Imports: []string{"chancery.dev/internal/peer"}}, "strictly lower"},
		"upwards":       {listed{ImportPath: "internal/low", Imports: []string{"chancery.dev/internal/mid"}}, "strictly lower"},
		"no row":        {listed{ImportPath: "internal/new"}, "add a row"},
		"import no row": {listed{ImportPath: "internal/mid", Imports: []string{"chancery.dev/internal/new"}}, "not in the table"},
		"rig":           {listed{ImportPath: "internal/mid", Imports: []string{"chancery.dev/internal/rig"}}, "made for tests"},
		"rig in test":   {listed{ImportPath: "internal/low", TestImports: []string{"chancery.dev/internal/rig"}}, ""},
		"test upwards":  {listed{ImportPath: "internal/low", TestImports: []string{"chancery.dev/internal/mid"}}, "strictly lower"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.pkg.ImportPath = module + "/" + tc.pkg.ImportPath
			got := strings.Join(checkImports(plan, tc.pkg), "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q in it", got, tc.want)
			}
		})
	}
}

// checkImports says in which ways a package breaks the plan.
func checkImports(plan []room, p listed) []string {
	here, ok := find(plan, p.ImportPath)
	if !ok {
		return []string{fmt.Sprintf("%s is not in the table of layers: add a row to internal/layout/layers_test.go", p.ImportPath)}
	}
	var problems []string
	check := func(imported string, test bool) {
		if !strings.HasPrefix(imported, module+"/") {
			return
		}
		there, ok := find(plan, imported)
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("%s imports %s, which is not in the table of layers", p.ImportPath, imported))
		case there.rig && test:
		case there.rig && !here.rig:
			problems = append(problems, fmt.Sprintf("%s imports %s, which is made for tests", p.ImportPath, imported))
		case there.layer >= here.layer:
			problems = append(problems, fmt.Sprintf("%s (layer %d) imports %s (layer %d): a package imports strictly lower layers",
				p.ImportPath, here.layer, imported, there.layer))
		}
	}
	for _, imported := range p.Imports {
		check(imported, false)
	}
	// An external test (package x_test) stands above its package, and may tell a story with the real parts up there.
	for _, imported := range p.TestImports {
		check(imported, true)
	}
	return problems
}

func find(plan []room, importPath string) (room, bool) {
	i := slices.IndexFunc(plan, func(r room) bool { return module+"/"+r.path == importPath })
	if i < 0 {
		return room{}, false
	}
	return plan[i], true
}

// isAny reports whether importPath is one of modules or a package of one.
func isAny(importPath string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool {
		return importPath == m || strings.HasPrefix(importPath, m+"/")
	})
}

// list asks go list about packages of the root module. A package that does not
// compile is still listed: that is for the compiler to say.
func list(t *testing.T, args ...string) []listed {
	t.Helper()
	args = append([]string{"list", "-e", "-json=ImportPath,Imports,TestImports"}, args...)
	d := json.NewDecoder(bytes.NewReader(run(t, args...)))
	var all []listed
	for {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("reading the output of go list: %v", err)
		}
		all = append(all, p)
	}
}

// run runs the go command in the root module.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}
