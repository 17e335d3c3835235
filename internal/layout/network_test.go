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

// unbounded lists the functions that read from the network, or from what is compressed, in a way that shows no bound
// where it is read, with the reason why there is one nevertheless.
var unbounded = map[string]string{
	"internal/signer/vault/aws.go fetch":                  "its client is the one of connection.go, whose transport reads limits.VaultBody",
	"internal/signer/vault/session.go send":               "its client is the one of connection.go, whose transport reads limits.VaultBody",
	"internal/signer/venafi/exchange.go RoundTrip":        "its transport reads limits.VenafiBody",
	"internal/solver/http01/selfcheck.go client":          "egress.NewTransport bounds the two transports",
	"internal/tracing/tracing.go New":                     "the collector is the operator's, and the package is beside package limits at the bottom",
	"internal/tracing/tracing.go send":                    "the collector is the operator's, and the package is beside package limits at the bottom",
	"dnsproviders/internal/adapter/adapter.go Configure":  "a process of its own for each credential, which asks the provider's API by its SDK",
	"dnsproviders/internal/native/native.go client":       "a process of its own for each credential, which asks the provider's API; api.call bounds bodies",
	"standalone/cmd/chancery-standalone/up.go withParent": "the parent's pipe is read until it ends, and nothing is kept of it",
}

// noProduct are directories with what only tests and measurements run.
var noProduct = []string{
	"internal/rig", "standalone/bench", "standalone/child", "standalone/compare", "e2e", "deploy/images", "tools", "dnsproviders/internal/standin", "kubectl/internal/kubelet",
}

// TestNetworkIsReadWithinBounds: product code makes HTTP clients by package egress, which bounds headers and bodies, or
// shows its bounds; and reads, copies and unpacks nothing to its end that has no bound.
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
			for _, p := range checkReads(s) {
				if spared[p.in] = true; unbounded[p.in] == "" {
					t.Errorf("%s, in %q", p.says, p.in)
				}
			}
		}
	}
	for in := range unbounded {
		if !spared[in] {
			t.Errorf("%s needs no exception: take it out of the list", in)
		}
	}
}

// problem is what is wrong in a function: its file and its name.
type problem struct{ in, says string }

// checkReads finds what in a file may read without a bound, or by a bound that is not of package limits.
func checkReads(s source) (problems []problem) {
	bounded, unpacked, constants := map[ast.Node]bool{}, unpackedWithin(s.file), constantsOf(s.file)
	found := func(n ast.Node, what string) {
		in := s.path
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Pos() <= n.Pos() && n.Pos() < f.End() {
				in += " " + f.Name.Name
			}
		}
		problems = append(problems, problem{in, fmt.Sprintf("%s:%d: %s", s.path, s.fset.Position(n.Pos()).Line, what)})
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			called := selected(n.Fun)
			if strings.HasSuffix(called, ".Transport") && len(n.Args) > 0 { // a Policy's
				if at, ok := n.Args[0].(*ast.UnaryExpr); ok {
					bounded[at.X] = true
				}
			}
			if slices.Contains(limited, called) && invents(n.Args[len(n.Args)-1], constants) {
				found(n, called+" has a bound of its own: take one of package limits")
			}
			if slices.Contains([]string{"io.ReadAll", "json.NewDecoder", "xml.NewDecoder"}, called) && !held(n.Args[0]) {
				found(n, called+" reads to the end: read an io.LimitReader")
			}
			if slices.Contains([]string{"io.Copy", "io.CopyBuffer"}, called) && !held(n.Args[1]) {
				found(n, called+" copies to the end: copy an io.LimitReader")
			}
			if slices.Contains(unpackers, called) && !unpacked[n] {
				found(n, called+" makes much of little: read it by an io.LimitReader")
			}
			if fun, ok := n.Fun.(*ast.Ident); ok && fun.Name == "new" && slices.Contains([]string{"http.Transport", "http.Client"}, selected(n.Args[0])) {
				found(n, "new("+selected(n.Args[0])+") has no bounds: use egress.Policy.Client")
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
		case *ast.ValueSpec:
			if n.Type != nil && slices.Contains([]string{"http.Transport", "http.Client"}, selected(n.Type)) {
				found(n, "a variable that is an "+selected(n.Type)+" has no bounds: use egress.Policy.Client")
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

// limited are the calls that make a reader of a part.
var limited = []string{"io.LimitReader", "http.MaxBytesReader"}

// unpackers are the calls that make a reader of what is compressed: a thousand times as much may come out of it.
var unpackers = []string{
	"gzip.NewReader", "flate.NewReader", "flate.NewReaderDict", "zlib.NewReader", "zlib.NewReaderDict", "bzip2.NewReader", "lzw.NewReader",
}

// held reports whether a reader that is made where it is read has a bound, or reads what is in memory.
func held(reader ast.Expr) bool {
	call, ok := reader.(*ast.CallExpr)
	return ok && slices.Contains(append([]string{"bytes.NewReader", "strings.NewReader"}, limited...), selected(call.Fun))
}

// unpackedWithin are the calls of unpackers whose reader is read through a bound alone: it is the argument of a limited
// reader, or a variable that is used as one in the same function, and nowhere else but to be closed.
func unpackedWithin(file *ast.File) map[ast.Node]bool {
	within := map[ast.Node]bool{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		bounded, uses, made := map[string]int{}, map[string]int{}, map[string][]ast.Node{}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if call, ok := n.Rhs[0].(*ast.CallExpr); ok && slices.Contains(unpackers, selected(call.Fun)) {
					if name, ok := n.Lhs[0].(*ast.Ident); ok {
						made[name.Name] = append(made[name.Name], call)
						uses[name.Name]--
					}
				}
			case *ast.CallExpr:
				if strings.HasSuffix(selected(n.Fun), ".Close") {
					return false
				}
				if !slices.Contains(limited, selected(n.Fun)) {
					return true
				}
				switch reader := n.Args[len(n.Args)-2].(type) {
				case *ast.Ident:
					bounded[reader.Name]++
				case *ast.CallExpr:
					within[reader] = true
				}
			case *ast.Ident:
				uses[n.Name]++
			}
			return true
		})
		for name, calls := range made {
			for _, call := range calls {
				within[call] = bounded[name] > 0 && bounded[name] == uses[name]
			}
		}
	}
	return within
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
		"&http.Transport{}":                                                  1,
		"new(http.Transport)":                                                1,
		"new(http.Client)":                                                   1,
		"new(http.Request)":                                                  0,
		"io.Copy(file, resp.Body)":                                           1,
		"io.CopyBuffer(file, resp.Body, room)":                               1,
		"io.Copy(file, io.LimitReader(resp.Body, limits.ErrorBody))":         0,
		"io.CopyBuffer(file, io.LimitReader(resp.Body, 5), room)":            1,
		"io.Copy(file, bytes.NewReader(text))":                               0,
		"flate.NewReader(bytes.NewReader(text))":                             1,
		"io.LimitReader(flate.NewReader(r), limits.ErrorBody)":               0,
		"bzip2.NewReader(r)":                                                 1,
		// Statements from here on.
		");var t http.Transport;use(t":                                                                  1,
		");var c http.Client;use(c":                                                                     1,
		");var c *http.Client;use(c":                                                                    0,
		");z, err := gzip.NewReader(r);use(z":                                                           1,
		");z, err := zlib.NewReader(r);use(io.LimitReader(z, limits.ErrorBody)":                         0,
		");z, err := gzip.NewReader(r);use(io.LimitReader(y, limits.ErrorBody)":                         1,
		");z, err := gzip.NewReader(r);defer z.Close();use(http.MaxBytesReader(w, z, limits.ErrorBody)": 0,
		");z, err := gzip.NewReader(r);json.NewDecoder(io.LimitReader(z, limits.ErrorBody));use(z":      1,
	} {
		s := parse(t, "internal/a/a.go", []byte("package a\n\nfunc f() {\n\tuse("+code+")\n}\n"))
		if got := checkReads(s); len(got) != want {
			t.Errorf("%s: %q, want %d", code, got, want)
		}
	}
}
