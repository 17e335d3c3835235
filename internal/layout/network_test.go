package layout_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// unbounded lists the files that read from the network, or from what is compressed, in a way that shows no bound where
// it is read, with the reason why there is one nevertheless.
var unbounded = map[string]string{
	"internal/signer/vault/aws.go":             "its client is the one of connection.go, whose transport reads limits.VaultBody",
	"internal/signer/vault/session.go":         "its client is the one of connection.go, whose transport reads limits.VaultBody",
	"internal/signer/venafi/exchange.go":       "its transport reads limits.VenafiBody",
	"internal/solver/http01/selfcheck.go":      "egress.NewTransport bounds the two transports",
	"internal/tracing/tracing.go":              "the collector is the operator's, and the package is beside package limits at the bottom",
	"dnsproviders/internal/adapter/adapter.go": "a process of its own for each credential, which asks the provider's API by its SDK",
	"dnsproviders/internal/native/native.go":   "a process of its own for each credential, which asks the provider's API; api.call bounds bodies",
	"dnsproviders/internal/standin/simple.go":  "for tests",
	"dnsproviders/internal/standin/signed.go":  "for tests",
}

// noProduct are directories with what only tests and measurements run.
var noProduct = []string{"internal/rig", "standalone/bench", "standalone/child", "standalone/compare", "e2e", "deploy/images", "tools"}

// TestNetworkIsReadWithinBounds: product code makes HTTP clients by package egress, which bounds headers and bodies, or
// shows its bounds; and reads nothing to its end that has no bound.
func TestNetworkIsReadWithinBounds(t *testing.T) {
	sources, spared := readSources(t), map[string]bool{}
	for _, dir := range slices.Sorted(maps.Keys(sources)) {
		if slices.ContainsFunc(noProduct, func(d string) bool { return dir == d || strings.HasPrefix(dir, d+"/") }) {
			continue
		}
		for _, s := range sources[dir] {
			if s.test {
				continue
			}
			for _, problem := range checkReads(s) {
				if spared[s.path] = true; unbounded[s.path] == "" {
					t.Error(problem)
				}
			}
		}
	}
	for path := range unbounded {
		if !spared[path] {
			t.Errorf("%s needs no exception: take it out of the list", path)
		}
	}
}

// checkReads finds what in a file may read without a bound, or by a bound that is not of package limits.
func checkReads(s source) (problems []string) {
	bounded, constants := map[ast.Node]bool{}, constantsOf(s.file)
	found := func(n ast.Node, what string) {
		problems = append(problems, fmt.Sprintf("%s:%d: %s", s.path, s.fset.Position(n.Pos()).Line, what))
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			called := selected(n.Fun)
			first := ""
			if len(n.Args) > 0 {
				if call, ok := n.Args[0].(*ast.CallExpr); ok {
					first = selected(call.Fun)
				}
				if strings.HasSuffix(called, ".Transport") { // a Policy's
					if at, ok := n.Args[0].(*ast.UnaryExpr); ok {
						bounded[at.X] = true
					}
				}
			}
			if slices.Contains([]string{"io.LimitReader", "http.MaxBytesReader"}, called) && invents(n.Args[len(n.Args)-1], constants) {
				found(n, called+" has a bound of its own: take one of package limits")
			}
			held := slices.Contains([]string{"io.LimitReader", "http.MaxBytesReader", "bytes.NewReader", "strings.NewReader"}, first)
			if slices.Contains([]string{"io.ReadAll", "json.NewDecoder", "xml.NewDecoder"}, called) && !held {
				found(n, called+" reads to the end: read an io.LimitReader")
			}
			if slices.Contains([]string{"http.Get", "http.Post", "http.PostForm", "http.Head"}, called) {
				found(n, called+" has no bounds: use egress.Policy.Client")
			}
		case *ast.CompositeLit:
			of := ""
			if n.Type != nil {
				of = selected(n.Type)
			}
			if of == "http.Transport" && !bounded[n] && !has(n, "MaxResponseHeaderBytes") {
				found(n, "an http.Transport without MaxResponseHeaderBytes: use egress.Policy.Transport")
			}
			if of == "http.Client" && !has(n, "Transport") {
				found(n, "an http.Client without a transport has no bounds: use egress.Policy.Client")
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "MaxResponseHeaderBytes" && invents(n.Value, constants) {
				found(n, "MaxResponseHeaderBytes has a bound of its own: take limits.Headers")
			}
		case *ast.SelectorExpr:
			if name := selected(n); name == "http.DefaultClient" || name == "http.DefaultTransport" {
				found(n, name+" has no bounds: use egress.Policy.Client")
			}
		}
		return true
	})
	return problems
}

// constantsOf are the constants of a file, each with its value.
func constantsOf(file *ast.File) map[string]ast.Expr {
	constants := map[string]ast.Expr{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for i := range min(len(spec.Names), len(spec.Values)) {
				constants[spec.Names[i].Name] = spec.Values[i]
			}
		}
		return true
	})
	return constants
}

// invents reports whether a bound is a number, or a constant of the file that is one, and no constant of package
// limits. One that is added allows to tell a longer answer.
func invents(bound ast.Expr, constants map[string]ast.Expr) bool {
	switch e := bound.(type) {
	case *ast.BasicLit:
		return true
	case *ast.BinaryExpr:
		if one, ok := e.Y.(*ast.BasicLit); ok && e.Op == token.ADD && one.Value == "1" {
			return invents(e.X, constants)
		}
		return invents(e.X, constants) && invents(e.Y, constants)
	case *ast.Ident:
		value, ok := constants[e.Name]
		return ok && invents(value, constants)
	default:
		return false
	}
}

// selected is what an expression selects, as in "io.ReadAll"; of more than one selection the last.
func selected(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := s.X.(*ast.Ident); ok {
		return x.Name + "." + s.Sel.Name
	}
	return "." + s.Sel.Name
}

// has reports whether a literal sets a field.
func has(n *ast.CompositeLit, field string) bool {
	return slices.ContainsFunc(n.Elts, func(e ast.Expr) bool {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return false
		}
		key, ok := pair.Key.(*ast.Ident)
		return ok && key.Name == field
	})
}

// TestNetworkBoundsBite shows what the rule finds.
func TestNetworkBoundsBite(t *testing.T) {
	for code, want := range map[string]int{
		"io.ReadAll(resp.Body)":                                              1,
		"io.ReadAll(io.LimitReader(resp.Body, 1))":                           1,
		"io.ReadAll(io.LimitReader(resp.Body, 4<<10+1))":                     1,
		"io.ReadAll(io.LimitReader(resp.Body, limits.ErrorBody+1))":          0,
		"json.NewDecoder(resp.Body).Decode(v)":                               1,
		"json.NewDecoder(bytes.NewReader(text))":                             0,
		"http.DefaultClient.Do(req)":                                         1,
		"http.Get(address)":                                                  1,
		"&http.Client{Timeout: 1}":                                           1,
		"&http.Client{Transport: policy.Transport(&http.Transport{}, d, 1)}": 0,
		"&http.Client{Transport: &http.Transport{}}":                         1,
		"&http.Transport{MaxResponseHeaderBytes: 1}":                         1,
		"&http.Transport{MaxResponseHeaderBytes: limits.Headers}":            0,
	} {
		s := parse(t, "internal/a/a.go", []byte("package a\n\nfunc f() {\n\tuse("+code+")\n}\n"))
		if got := checkReads(s); len(got) != want {
			t.Errorf("%s: %q, want %d", code, got, want)
		}
	}
}
