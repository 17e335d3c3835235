package layout_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// constantCalls make values that nobody changes once they are made.
var constantCalls = []string{
	"errors.New", "fmt.Errorf", // sentinels
	"flag.Bool",                                                                                // of go test: only flag.Parse writes to it
	"conversion.EqualitiesOrDie", "regexp.MustCompile", "strings.NewReplacer", "template.Must", // safe for concurrent use, never written
	"netip.MustParseAddr", "netip.MustParsePrefix", "time.Date", // values
	"sync.OnceFunc", "sync.OnceValue", "sync.OnceValues", // made once, the same for everybody
}

// schemeNames are what every Kubernetes scheme and client expects an API package to export.
var schemeNames = []string{"GroupVersion", "SchemeGroupVersion", "SchemeBuilder", "AddToScheme"}

// checkGlobals finds package variables that could change. Go has no constant tables,
// so a variable is taken for a constant if it is unexported, is made of literals, and
// no code of its package writes to it.
func checkGlobals(dir string, files []source) []string {
	var problems []string
	for _, s := range files {
		if s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec) // what GenDecl.Specs holds for token.VAR
				if embedded(d.Doc) || embedded(v.Doc) {
					continue
				}
				for i, name := range v.Names {
					if why := whyMutable(dir, files, v, i); why != "" {
						problems = append(problems, fmt.Sprintf("%s:%d: package variable %s is mutable: %s",
							s.path, s.fset.Position(name.Pos()).Line, name.Name, why))
					}
				}
			}
		}
	}
	return problems
}

// whyMutable returns why the i-th name of a variable declaration is no constant, or "".
func whyMutable(dir string, files []source, v *ast.ValueSpec, i int) string {
	name := v.Names[i]
	if name.Name == "_" || dir != "api" && strings.HasPrefix(dir, "api/") && slices.Contains(schemeNames, name.Name) {
		return ""
	}
	if len(v.Values) <= i {
		return "it starts without a value"
	}
	if !constant(v.Values[i]) {
		return "its value is neither a literal nor one of the calls in internal/layout/globals_test.go; make it a function or a field"
	}
	sentinel := strings.HasPrefix(name.Name, "Err")
	if name.IsExported() && !sentinel {
		return "it is exported, so any package can write to it"
	}
	for _, s := range files {
		if pos := firstWrite(s.file, v, name.Name); pos.IsValid() {
			return fmt.Sprintf("%s:%d writes to it", s.path, s.fset.Position(pos).Line)
		}
	}
	return ""
}

// constant reports whether e is made of literals, constants and constant calls only.
func constant(e ast.Expr) bool {
	ok := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit: // what it does happens later, not here
			return false
		case *ast.UnaryExpr:
			ok = ok && n.Op != token.AND // others can write through a pointer
		case *ast.CompositeLit:
			ok = ok && !ofPackage(n.Type, "sync", "atomic")
		case *ast.CallExpr:
			if !constantCall(n.Fun) {
				ok = false
			}
		}
		return ok
	})
	return ok
}

func constantCall(fun ast.Expr) bool {
	switch f := fun.(type) {
	case *ast.ArrayType: // a conversion
		return true
	case *ast.Ident:
		return f.Name == "string" || f.Name == "len"
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && slices.Contains(constantCalls, x.Name+"."+f.Sel.Name) {
			return true
		}
		// Of a schema.GroupVersion: the result is a value.
		return f.Sel.Name == "WithKind" || f.Sel.Name == "WithResource"
	default:
		return false
	}
}

func ofPackage(e ast.Expr, packages ...string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && slices.Contains(packages, x.Name)
}

// firstWrite finds the first place of a file that could write to a package variable:
// an assignment, ++, clear, delete, or taking its address.
func firstWrite(file *ast.File, v *ast.ValueSpec, name string) token.Pos {
	found := token.NoPos
	check := func(e ast.Expr) {
		if id := rootIdent(e); id != nil && id.Name == name && (id.Obj == nil || id.Obj.Decl == v) && !found.IsValid() {
			found = id.Pos()
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, left := range n.Lhs {
					check(left)
				}
			}
		case *ast.IncDecStmt:
			check(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				check(n.X)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "clear" || f.Name == "delete") && len(n.Args) > 0 {
				check(n.Args[0])
			}
		}
		return true
	})
	return found
}

// rootIdent returns a in a.b[c].d, or nil.
func rootIdent(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

func TestGlobals(t *testing.T) {
	for name, tc := range map[string]struct {
		src     string
		mutable bool
	}{
		"sentinel":           {`var ErrGone = errors.New("gone")`, false},
		"interface check":    {`var _ I = (*T)(nil)`, false},
		"embedded":           {"//go:embed x\nvar files embed.FS", false},
		"table":              {`var names = map[string][]int{"a": {1}}`, false},
		"table read":         {"var names = []int{1}\nfunc f() int { return names[0] }", false},
		"link-time version":  {`var version = "dev"`, false},
		"expression":         {`var re = regexp.MustCompile("a")`, false},
		"local of that name": {"var names = []int{1}\nfunc f() { var names []int; names = append(names, 1) }", false},
		"no value":           {`var n int`, true},
		"exported table":     {`var Names = []string{"a"}`, true},
		"assigned":           {"var n = 1\nfunc f() { n = 2 }", true},
		"counted":            {"var n = 1\nfunc f() { n++ }", true},
		"element assigned":   {"var m = map[int]int{}\nfunc f() { m[1] = 2 }", true},
		"deleted from":       {"var m = map[int]int{}\nfunc f() { delete(m, 1) }", true},
		"address taken":      {"var n = 1\nfunc f() *int { return &n }", true},
		"pointer":            {`var client = &http.Client{}`, true},
		"lock":               {`var mu = sync.Mutex{}`, true},
		"call":               {`var now = time.Now()`, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := parse(t, "internal/a/a.go", []byte("// Package a is for a test.\npackage a\n"+tc.src))
			if got := checkGlobals("internal/a", []source{s}); (len(got) > 0) != tc.mutable {
				t.Errorf("want mutable = %v, got %q", tc.mutable, got)
			}
		})
	}
}
