// Command parts prints which tests belong to a part of the tests: a line for each module that has some, with its
// directory, a pattern for go test -run, and the packages. It runs nothing.
//
// Most parts are those of internal/rig/slow: the test functions that mention the part, themselves or by functions of
// their package. Three parts are whole packages of the root module. quick has those whose tests need no API server:
// they do not import internal/rig. race has those that need the race detector: they say go, name a channel or import
// sync, in their tests or elsewhere. race-short has those that are in both.
//
//	parts crash docs
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) < 2 || slices.Contains(os.Args, "") {
		fmt.Fprintln(os.Stderr, "usage: parts PART...")
		os.Exit(2)
	}
	for _, part := range os.Args[1:] {
		if err := list(os.Stdout, os.DirFS("."), part); err != nil {
			fmt.Fprintln(os.Stderr, "parts:", err)
			os.Exit(1)
		}
	}
}

// list writes the lines of a part for the modules below a directory. It is an error if the part has no test.
func list(w io.Writer, root fs.FS, part string) error {
	modules, tests := []string{}, map[string][]string{} // patterns by directory
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if base := d.Name(); name == "e2e" || base == "testdata" || base != "." && strings.HasPrefix(base, ".") {
				return fs.SkipDir
			}
			found, err := testsOf(root, name, part)
			if len(found) > 0 {
				tests[name] = found
			}
			return err
		case d.Name() == "go.mod":
			modules = append(modules, path.Dir(name))
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(modules, func(a, b string) int { return len(b) - len(a) }) // the innermost first
	printed := false
	for _, module := range modules {
		names, packages := []string{}, []string{}
		for _, dir := range slices.Sorted(maps.Keys(tests)) {
			rel, err := filepath.Rel(module, dir)
			if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
				continue
			}
			packages = append(packages, "./"+filepath.ToSlash(rel))
			names = append(names, tests[dir]...)
			delete(tests, dir)
		}
		if len(packages) > 0 && (module == "." || !whole(part)) {
			slices.Sort(names)
			fmt.Fprintf(w, "%s ^(%s)$ %s\n", module, strings.Join(slices.Compact(names), "|"), strings.Join(packages, " "))
			printed = true
		}
	}
	if !printed {
		return fmt.Errorf("no test belongs to the part %q", part)
	}
	return nil
}

// whole reports whether a part is made of whole packages.
func whole(part string) bool { return part == "quick" || part == "race" || part == "race-short" }

// testsOf returns patterns for the names of the test functions in a directory that belong to the part.
func testsOf(root fs.FS, dir, part string) ([]string, error) {
	names, err := fs.Glob(root, path.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	tests := map[string]*ast.BlockStmt{} // all functions of tests
	for _, name := range names {
		test := strings.HasSuffix(name, "_test.go")
		if !test && !whole(part) {
			continue
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && test {
				tests[f.Name.Name] = f.Body
			}
		}
	}
	if whole(part) {
		server := slices.ContainsFunc(files, func(f *ast.File) bool { return imports(f, "chancery.dev/internal/rig") })
		belongs := (part == "race" || !server) && (part == "quick" || slices.ContainsFunc(files, concurrent))
		if len(tests) == 0 || !belongs {
			return nil, nil
		}
		return []string{".*"}, nil
	}
	constant := strings.ToUpper(part[:1]) + part[1:]
	var found []string
	for name := range tests {
		if strings.HasPrefix(name, "Test") && name != "TestMain" && mentions(tests, name, constant, map[string]bool{}) {
			found = append(found, name)
		}
	}
	return found, nil
}

// concurrent reports whether a file says that something runs beside something else.
func concurrent(f *ast.File) bool {
	found := imports(f, "sync") || imports(f, "sync/atomic")
	ast.Inspect(f, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.GoStmt, *ast.ChanType:
			found = true
		}
		return !found
	})
	return found
}

func imports(f *ast.File, name string) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(name) })
}

// mentions reports whether a function says slow.CONSTANT, or a function that it calls does.
func mentions(bodies map[string]*ast.BlockStmt, function, constant string, seen map[string]bool) bool {
	if seen[function] || bodies[function] == nil {
		return false
	}
	seen[function] = true
	found := false
	ast.Inspect(bodies[function], func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			found = found || ok && x.Name == "slow" && n.Sel.Name == constant || mentions(bodies, n.Sel.Name, constant, seen)
		case *ast.Ident:
			found = found || mentions(bodies, n.Name, constant, seen)
		}
		return !found
	})
	return found
}
