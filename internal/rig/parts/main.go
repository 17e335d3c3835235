// Command parts prints which tests belong to a part of the tests. It prints one line for each module with such tests:
// the directory of the module, a pattern for go test -run, and the packages. The command runs no test.
//
// Most parts are those of internal/rig/slow. A test function belongs to such a part if the function mentions the part,
// directly or through functions of its package. Three parts are whole packages of the root module. The part race has
// the packages that need the race detector. In such a package, a file or a test file starts a goroutine, or names a
// channel or a type of the package sync. The part race-short has the packages of race that need no API server: they do
// not import internal/rig. The part quick has the packages whose tests do not link a client of the API server: half of
// all packages, in a third of the time.
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
		case d.IsDir() && left(name):
			return fs.SkipDir
		case d.IsDir():
			tests[name], err = testsOf(root, name, part)
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
		names, packages := taken(tests, module)
		if len(packages) > 0 && (module == "." || !whole(part)) {
			fmt.Fprintf(w, "%s ^(%s)$ %s\n", module, strings.Join(names, "|"), strings.Join(packages, " "))
			printed = true
		}
	}
	if !printed {
		return fmt.Errorf("no test belongs to the part %q", part)
	}
	return nil
}

// left reports whether a directory is left out: what go does not look into, and e2e, whose tests have targets of their
// own.
func left(dir string) bool {
	base := path.Base(dir)
	return dir == "e2e" || base == "testdata" || dir != "." && strings.HasPrefix(base, ".")
}

// taken returns the patterns and the packages of a module, and removes them from tests.
func taken(tests map[string][]string, module string) (names, packages []string) {
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		rel, err := filepath.Rel(module, dir)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		if len(tests[dir]) > 0 {
			packages = append(packages, "./"+filepath.ToSlash(rel))
			names = append(names, tests[dir]...)
		}
		delete(tests, dir)
	}
	slices.Sort(names)
	return slices.Compact(names), packages
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
		file, err := parse(root, name)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		if test {
			maps.Copy(tests, functions(file))
		}
	}
	if whole(part) {
		if member, err := belongs(root, dir, files, part); len(tests) == 0 || !member {
			return nil, err
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

// functions returns the bodies of functions and methods by their names.
func functions(file *ast.File) map[string]*ast.BlockStmt {
	bodies := map[string]*ast.BlockStmt{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			bodies[f.Name.Name] = f.Body
		}
	}
	return bodies
}

func parse(root fs.FS, name string) (*ast.File, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, err
	}
	return parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
}

// belongs reports whether a package, of which these are the files, belongs to a part that is made of whole packages.
func belongs(root fs.FS, dir string, files []*ast.File, part string) (bool, error) {
	if part == "quick" {
		client, err := links(root, dir, true, map[string]bool{})
		return !client, err
	}
	server := slices.ContainsFunc(files, func(f *ast.File) bool { return imports(f, module+"internal/rig") })
	return (part == "race" || !server) && slices.ContainsFunc(files, concurrent), nil
}

// module is what the import paths of the root module's packages begin with.
const module = "chancery.dev/"

// links reports whether a package is linked with a client of the API server, or its tests are.
func links(root fs.FS, dir string, tests bool, seen map[string]bool) (bool, error) {
	if seen[dir] {
		return false, nil
	}
	seen[dir] = true
	imported, err := importsOf(root, dir, tests)
	if err != nil {
		return false, err
	}
	for _, name := range imported {
		if strings.HasPrefix(name, "k8s.io/client-go/") || strings.HasPrefix(name, "sigs.k8s.io/controller-runtime/") {
			return true, nil
		}
		if own, is := strings.CutPrefix(name, module); is {
			if found, err := links(root, own, false, seen); found || err != nil {
				return found, err
			}
		}
	}
	return false, nil
}

// importsOf returns what a package imports, with or without its tests.
func importsOf(root fs.FS, dir string, tests bool) (imported []string, err error) {
	names, err := fs.Glob(root, path.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") && !tests {
			continue
		}
		file, err := parse(root, name)
		if err != nil {
			return nil, err
		}
		for _, i := range file.Imports {
			imported = append(imported, strings.Trim(i.Path.Value, `"`))
		}
	}
	return imported, nil
}

// concurrent reports whether a file says that something runs beside something else.
func concurrent(f *ast.File) bool {
	found := imports(f, "sync/atomic")
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.ChanType:
			found = true
		case *ast.SelectorExpr: // sync.OnceValue and its kin make a value late, and start nothing
			x, ok := n.X.(*ast.Ident)
			found = found || ok && x.Name == "sync" && !strings.HasPrefix(n.Sel.Name, "Once")
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
