package layout_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// source is one parsed Go file.
type source struct {
	// path is relative to the repository.
	path  string
	test  bool
	lines int
	fset  *token.FileSet
	file  *ast.File
}

func TestNumbers(t *testing.T) {
	sources := readSources(t)
	var lengths []int
	for _, dir := range slices.Sorted(maps.Keys(sources)) {
		for _, problem := range checkPackage(dir, sources[dir]) {
			t.Error(problem)
		}
		for _, s := range sources[dir] {
			if !s.test {
				lengths = append(lengths, functionLengths(s)...)
			}
		}
	}
	if len(lengths) == 0 {
		t.Fatal("found no function at all: wrong directory?")
	}
	slices.Sort(lengths)
	if p95 := lengths[len(lengths)*95/100]; p95 > p95FunctionLines {
		t.Errorf("the 95th percentile of function lengths is %d lines, the bar is %d", p95, p95FunctionLines)
	}
}

// TestNumbersBite shows that each rule can fail.
func TestNumbersBite(t *testing.T) {
	const doc = "// Package a is for a test.\npackage a\n"
	lines := func(n int) string { return strings.Repeat("\n", n) }
	for name, tc := range map[string]struct{ path, src, want string }{
		"fine":             {"a/a.go", doc + "func New(a, b, c, d, e int) {}\nfunc f() {}\ntype I interface{ A(); B(); C(); D() }", ""},
		"no doc":           {"a/a.go", "package a", "doc comment"},
		"vague name":       {"a/a.go", "// Package util is for nothing.\npackage util", "says nothing"},
		"long file":        {"a/a.go", doc + lines(600), "602 lines"},
		"long function":    {"a/a.go", doc + "func f() {" + lines(82) + "}", "81 lines"},
		"long method":      {"a/a.go", doc + "func (T) M() {" + lines(82) + "}", "T.M has 81 lines"},
		"long Reconcile":   {"a/a.go", doc + "func (*T) Reconcile() {" + lines(62) + "}", "61 lines"},
		"long test":        {"a/a_test.go", doc + "func TestX() {" + lines(152) + "}", "151 lines"},
		"shorter test":     {"a/a_test.go", doc + "func TestX() {" + lines(140) + "}", ""},
		"wide interface":   {"a/a.go", doc + "type I interface{ A(); B(); C(); D(); E() }", "5 methods"},
		"wide constructor": {"a/a.go", doc + "func NewT(a, b, c, d, e, f int) {}", "6 parameters"},
		"variadic":         {"a/a.go", doc + "func NewT(int, int, int, int, int, ...int) {}", "6 parameters"},
		"init":             {"a/a.go", doc + "func init() {}", "init()"},
		"state":            {"a/a.go", doc + "var n int", "mutable"},
	} {
		t.Run(name, func(t *testing.T) {
			s := parse(t, tc.path, []byte(tc.src))
			got := strings.Join(checkPackage("a", []source{s}), "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q in it", got, tc.want)
			}
		})
	}
	t.Run("long package", func(t *testing.T) {
		var all []source
		for i := range 6 {
			all = append(all, parse(t, fmt.Sprintf("a/%d.go", i), []byte(doc+lines(590))))
		}
		if got := strings.Join(checkPackage("a", all), "\n"); !strings.Contains(got, "3552 lines") {
			t.Errorf("got %q, want its length in it", got)
		}
	})
}

// checkPackage says in which ways the files of one directory miss the bar.
func checkPackage(dir string, files []source) []string {
	var problems []string
	total, documented := 0, false
	for _, s := range files {
		problems = append(problems, checkFile(s)...)
		documented = documented || s.file.Doc != nil
		if !s.test {
			total += s.lines
		}
	}
	if total > maxPackageLines {
		problems = append(problems, fmt.Sprintf("%s has %d lines without tests, the bar is %d: two packages?", dir, total, maxPackageLines))
	}
	if !documented {
		problems = append(problems, fmt.Sprintf("%s has no doc comment: say what the package is for and what it is not", dir))
	}
	if name := strings.TrimSuffix(files[0].file.Name.Name, "_test"); slices.Contains(vagueNames, name) {
		problems = append(problems, fmt.Sprintf("%s: package name %q says nothing about what it is for", dir, name))
	}
	return append(problems, checkGlobals(dir, files)...)
}

func checkFile(s source) []string {
	var problems []string
	report := func(n ast.Node, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s:%d: %s", s.path, s.fset.Position(n.Pos()).Line, fmt.Sprintf(format, args...)))
	}
	if s.lines > maxFileLines {
		report(s.file, "the file has %d lines, the bar is %d", s.lines, maxFileLines)
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			checkFunction(s, n, report)
		case *ast.TypeSpec:
			if i, ok := n.Type.(*ast.InterfaceType); ok && i.Methods.NumFields() > maxInterfaceMethod {
				report(n, "interface %s has %d methods, the bar is %d", n.Name.Name, i.Methods.NumFields(), maxInterfaceMethod)
			}
		}
		return true
	})
	return problems
}

func checkFunction(s source, f *ast.FuncDecl, report func(ast.Node, string, ...any)) {
	name, bar := functionName(f), maxFunctionLines
	switch {
	case s.test:
		bar = maxTestLines
	case f.Name.Name == "Reconcile":
		bar = maxReconcileLines
	}
	if n := bodyLines(s.fset, f); n > bar {
		report(f, "%s has %d lines, the bar is %d", name, n, bar)
	}
	if n := f.Type.Params.NumFields(); f.Recv == nil && !s.test && strings.HasPrefix(name, "New") && n > maxConstructorArgs {
		report(f, "%s has %d parameters, the bar is %d: take a struct", name, n, maxConstructorArgs)
	}
	if f.Recv == nil && name == "init" {
		report(f, "init(): call it from where it is needed")
	}
}

// functionName returns Type.Method or Function.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	typ := f.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// bodyLines counts the lines between a function's braces, as the linter funlen does.
func bodyLines(fset *token.FileSet, f *ast.FuncDecl) int {
	return max(0, fset.Position(f.End()).Line-fset.Position(f.Pos()).Line-1)
}

func functionLengths(s source) []int {
	var lengths []int
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			lengths = append(lengths, bodyLines(s.fset, f))
		}
	}
	return lengths
}

// allSources parses all Go files of all modules that people wrote, by directory: once, for all tests.
var allSources = sync.OnceValues(func() (map[string][]source, error) {
	sources := map[string][]source{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && name != root
			if hidden || slices.Contains([]string{"bin", "testdata", "vendor"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		s, err := parsed(filepath.ToSlash(rel), content)
		if err == nil && !ast.IsGenerated(s.file) {
			sources[path.Dir(s.path)] = append(sources[path.Dir(s.path)], s)
		}
		return err
	})
	return sources, err
})

// readSources returns all Go files of all modules that people wrote, by directory. They are not to be changed.
func readSources(t *testing.T) map[string][]source {
	t.Helper()
	sources, err := allSources()
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

func parse(t *testing.T, name string, content []byte) source {
	t.Helper()
	s, err := parsed(name, content)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parsed(name string, content []byte) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, content, parser.ParseComments)
	return source{
		path: name, test: strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(content, []byte("\n")), fset: fset, file: file,
	}, err
}
