package layout_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// measured are the functions of tests that may tell how much time has passed by the machine's clock, and why: in none
// of them does it decide whether a test of make test passes, or it is as good as certain.
var measured = map[string]string{
	"cmd/chancery runsOut":                                        "waits until a lease has run out, whose times other processes compare",
	"dnsproviders/cmd/chancery-dns startServe":                    "waits for two minutes until a program listens",
	"e2e/ingress stopwatch.ask":                                   "measures for a comparison, by make e2e; waits by rig.Patience",
	"internal/acme/accounts TestStepsOfAnOrder":                   "waits for two minutes, twice, until a server has got on",
	"internal/acme/accounts issue":                                "waits for two minutes until a server has issued",
	"internal/acme/accounts TestReplaceKeyWaitsForValidations":    "waits for two minutes until a server has validated",
	"internal/app answered":                                       "is measured by TestReplicasAnswerAtOnce, of test-slow-numbers",
	"internal/cli TestSignalsThatComeTogether":                    "sends no more signals when they would count as impatience: a slow machine sends fewer",
	"internal/controller/certificates TestRevocationCalledOff":    "compares with an hour: the Secret was made a moment ago, and not with the certificate",
	"internal/controller/issuers await":                           "waits for two minutes",
	"internal/controller/orders TestCrashAtEveryACMEWrite":        "writes to the log how long all rows took",
	"internal/controller/orders meet":                             "writes to the log how long all rows took",
	"internal/controller/orders neighbour.median":                 "is measured by TestHostileServersTakeNoTime, of test-slow-numbers",
	"internal/controller/orders swift.issue":                      "is measured by TestSilentCATakesNoTime, of test-slow-numbers; otherwise it is for the log",
	"internal/controller/orders within":                           "waits by rig.Patience, for more at once",
	"internal/dashboard TestViewsTakeNoTime":                      "measures, in test-slow-numbers",
	"internal/signer/venafi checkTPPRequest":                      "compares a date that was computed a moment ago with what it is to be, within a minute",
	"internal/solver/dns01/provider/rfc2136 await":                "waits by rig.Patience",
	"internal/solver/dns01/provider/webhook await":                "waits by rig.Patience",
	"internal/stories TestRule8SigningRequests":                   "compares how long a certificate lasts with 80 days",
	"internal/stories overtaken":                                  "writes to the log how long a certificate took",
	"kubectl/cmd/kubectl-chancery TestCompletion":                 "compares with rig.Patience: an API server that never answers is given up",
	"kubectl/internal/takeover TestTakeover":                      "writes to the log how long apply and rollback took",
	"standalone/cmd/chancery-standalone TestLifeOfADataDirectory": "writes to the log how long the starts took",
	"standalone/cmd/chancery-standalone TestStopTakesNoTime":      "measures, in test-slow-numbers",
}

// checkClock finds the functions in the tests of a directory that tell how much time has passed: by time.Since and
// time.Until, however used, by Sub with a time that comes from time.Now, by Before, After and Compare of two such
// times, and by arithmetic with numbers made of one. A time comes from time.Now by a chain of methods, by a variable
// of the function, by a variable or a field of the package, or by a function of the package. What is compared with one
// such time only, the end of a certificate for example, is a date, and no time that passes.
//
// In synctest.Test the clock stands still while anything goes on: what is passed to it is left out, and so are
// functions that nothing else calls.
func checkClock(dir string, files []source) []string {
	c := &clockwork{now: map[string]bool{}, within: bubbled(files)}
	for range 3 { // a function may return what another one returns
		for _, s := range files {
			if s.test {
				ast.Inspect(s.file, c.learn)
			}
		}
	}
	var found []string
	for _, s := range files {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !s.test || !ok || f.Body == nil || c.within[f.Name.Name] {
				continue
			}
			c.local = map[string]bool{}
			unbubbled(f.Body, c.assigned)
			hit := false
			unbubbled(f.Body, func(n ast.Node) { hit = hit || c.differs(n) })
			if name := strings.TrimSpace(dir + " " + receiver(f) + f.Name.Name); hit && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	return found
}

// receiver is the type of a method, with a dot.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	if star, is := t.(*ast.StarExpr); is {
		t = star.X
	}
	if name, is := t.(*ast.Ident); is {
		return name.Name + "."
	}
	return ""
}

// inBubble reports whether a node is a call of synctest.Test.
func inBubble(n ast.Node) bool {
	call, is := n.(*ast.CallExpr)
	return is && isSelector(call.Fun, "synctest", "Test")
}

func isSelector(e ast.Node, x string, names ...string) bool {
	s, is := e.(*ast.SelectorExpr)
	if !is {
		return false
	}
	of, is := s.X.(*ast.Ident)
	return is && of.Name == x && slices.Contains(names, s.Sel.Name)
}

// unbubbled calls do for each node outside of synctest.Test.
func unbubbled(n ast.Node, do func(ast.Node)) {
	ast.Inspect(n, func(n ast.Node) bool {
		if n != nil {
			do(n)
		}
		return !inBubble(n)
	})
}

// bubbled are the functions and methods of tests, by their names, that are mentioned by synctest.Test, or by another
// such function, and nowhere else.
func bubbled(files []source) map[string]bool {
	all, users, roots := map[string]bool{}, map[string][]string{}, map[string]bool{}
	for _, s := range files {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || !s.test {
				continue
			}
			in := f.Name.Name
			roots[in] = roots[in] || strings.HasPrefix(in, "Test") || strings.HasPrefix(in, "Benchmark") || strings.HasPrefix(in, "Fuzz")
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, is := n.(*ast.Ident); is {
					all[id.Name] = true
				}
				return true
			})
			unbubbled(f.Body, func(n ast.Node) {
				if id, is := n.(*ast.Ident); is && id.Name != in {
					users[id.Name] = append(users[id.Name], in)
				}
			})
		}
	}
	within := maps.Clone(all)
	for name := range roots {
		within[name] = all[name] && !roots[name]
	}
	for changed := true; changed; {
		changed = false
		for name := range within {
			if within[name] && slices.ContainsFunc(users[name], func(user string) bool { return !within[user] }) {
				within[name], changed = false, true
			}
		}
	}
	return within
}

// clockwork knows where times come from.
type clockwork struct {
	// now are the functions, variables and fields of the package that hold the time of the machine, local the variables of
	// a function.
	now, local map[string]bool
	within     map[string]bool
}

// learn remembers the functions, fields and variables of a package that time.Now comes by.
func (c *clockwork) learn(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Body == nil || len(n.Body.List) == 0 {
			return true
		}
		if last, is := n.Body.List[len(n.Body.List)-1].(*ast.ReturnStmt); is && len(last.Results) == 1 && c.isNow(last.Results[0]) {
			c.now[n.Name.Name] = true
		}
	case *ast.KeyValueExpr:
		if key, is := n.Key.(*ast.Ident); is && !slices.Contains(dates, key.Name) && c.isNow(n.Value) {
			c.now["."+key.Name] = true
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if field, is := left.(*ast.SelectorExpr); is && !slices.Contains(dates, field.Sel.Name) && i < len(n.Rhs) && c.isNow(n.Rhs[i]) {
				c.now["."+field.Sel.Name] = true
			}
		}
	case *ast.File:
		for _, d := range n.Decls {
			if d, is := d.(*ast.GenDecl); is && d.Tok == token.VAR {
				for _, spec := range d.Specs {
					c.named(spec, c.now)
				}
			}
		}
	}
	return true
}

// assigned remembers the variables of a function that are given such a time.
func (c *clockwork) assigned(n ast.Node) {
	switch n := n.(type) {
	case *ast.ValueSpec:
		c.named(n, c.local)
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if name, is := left.(*ast.Ident); is && i < len(n.Rhs) && c.isNow(n.Rhs[i]) {
				c.local[name.Name] = true
			}
		}
	}
}

func (c *clockwork) named(spec ast.Spec, into map[string]bool) {
	if v, is := spec.(*ast.ValueSpec); is {
		for i, name := range v.Names {
			if i < len(v.Values) && c.isNow(v.Values[i]) {
				into[name.Name] = true
			}
		}
	}
}

// dates are the fields that hold the ends of a certificate: the difference of two of them is no time that passes.
var dates = []string{"NotBefore", "NotAfter"}

// made are the methods that make a time, or a number, of a time.
var made = []string{"Add", "AddDate", "Round", "Truncate", "UTC", "Local", "In", "Unix", "UnixNano", "UnixMilli", "UnixMicro", "Rfc3339Copy"}

// isNow reports whether an expression comes from time.Now.
func (c *clockwork) isNow(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return c.isNow(e.X)
	case *ast.UnaryExpr:
		return c.isNow(e.X)
	case *ast.Ident:
		return c.now[e.Name] || c.local[e.Name]
	case *ast.SelectorExpr: // a field, or the Time of a metav1.Time
		return isSelector(e, "time", "Now") || c.now["."+e.Sel.Name] || e.Sel.Name == "Time" && c.isNow(e.X)
	case *ast.CallExpr:
		if f, is := e.Fun.(*ast.SelectorExpr); is {
			wraps := isSelector(f, "metav1", "NewTime") && len(e.Args) == 1 && c.isNow(e.Args[0])
			return isSelector(f, "time", "Now") || isSelector(f, "metav1", "Now") || wraps || slices.Contains(made, f.Sel.Name) && c.isNow(f.X)
		}
		f, is := e.Fun.(*ast.Ident)
		return is && (c.now[f.Name] || c.local[f.Name])
	}
	return false
}

// differs reports whether a node tells how much time has passed.
func (c *clockwork) differs(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		return isSelector(n, "time", "Since", "Until")
	case *ast.BinaryExpr:
		arithmetic := []token.Token{token.SUB, token.LSS, token.LEQ, token.GTR, token.GEQ}
		return slices.Contains(arithmetic, n.Op) && (c.isNow(n.X) || c.isNow(n.Y))
	case *ast.CallExpr:
		f, is := n.Fun.(*ast.SelectorExpr)
		if !is || len(n.Args) != 1 {
			return false
		}
		switch f.Sel.Name {
		case "Sub":
			return c.isNow(f.X) || c.isNow(n.Args[0])
		case "Before", "After", "Compare":
			return c.isNow(f.X) && c.isNow(n.Args[0])
		}
	}
	return false
}

// TestNoWallClock: no test of make test is decided by how long something takes on the machine, but for the exceptions.
func TestNoWallClock(t *testing.T) {
	var found []string
	sources := readSources(t)
	for _, dir := range slices.Sorted(maps.Keys(sources)) {
		if dir == "standalone/chaos" {
			continue // make chaos and make soak: how long everything takes is what they are about
		}
		found = append(found, checkClock(dir, sources[dir])...)
	}
	for _, name := range found {
		if measured[name] == "" {
			t.Errorf("%s tells how much time has passed: count, step a clock, measure it with slow.Best, or list the function with its reason", name)
		}
	}
	for name := range measured {
		if !slices.Contains(found, name) {
			t.Errorf("%s is listed, and tells no time", strconv.Quote(name))
		}
	}
	t.Log(fmt.Sprint(len(found), " functions tell how much time has passed"))
}

// TestNoWallClockBites shows what counts.
func TestNoWallClockBites(t *testing.T) {
	for src, want := range map[string]int{
		"func f() { _ = time.Since(x) }": 1,
		"func f() { _ = time.Until(x) }": 1,
		"func f() { g(time.Since) }":     1,
		"func (w *world) f() { began := time.Now(); work(); if time.Since(began) > time.Second {} }": 1,
		"func f() { _ = time.Now().Sub(x) }":                                                                                        1,
		"func f() { _ = x.Sub(time.Now()) }":                                                                                        1,
		"func f() { began := time.Now(); _ = x.Sub(began) }":                                                                        1,
		"func f() { a, began := 1, time.Now(); _ = x.Sub(began) }":                                                                  1,
		"func f() { var end = time.Now().Add(time.Minute); _ = end.Sub(x) }":                                                        1,
		"func f() { w.began = time.Now() }\nfunc g() { _ = x.Sub(w.began) }":                                                        1,
		"func f() { w := world{began: time.Now()}; _ = x.Sub(w.began) }":                                                            1,
		"var began = time.Now()\nfunc f() { _ = x.Sub(began) }":                                                                     1,
		"var clock = time.Now\nfunc f() { _ = clock().Sub(x) }":                                                                     1,
		"func f() { now := time.Now; _ = now().Sub(x) }":                                                                            1,
		"func now() time.Time { return time.Now() }\nfunc f() { _ = x.Sub(now()) }":                                                 1,
		"func f() { _ = x.Sub(metav1.Now().Time) }":                                                                                 1,
		"func f() { end := time.Now().Add(1); for time.Now().Before(end) {} }":                                                      1,
		"func f() { end := time.Now().Add(1); for !time.Now().After(end) {} }":                                                      1,
		"func f() { _ = time.Now().UnixNano() - x }":                                                                                1,
		"func f() { n := time.Now().Unix(); if x > n {} }":                                                                          1,
		"func f() { go func() { _ = time.Since(x) }() }":                                                                            1,
		"func TestA(t *testing.T) { g() }\nfunc g() { _ = time.Since(x) }":                                                          1,
		"func TestA(t *testing.T) { synctest.Test(t, func(*testing.T) { g() }); g() }\nfunc g() { _ = time.Since(x) }":              1,
		"func TestA(t *testing.T) { synctest.Test(t, func(*testing.T) { g() }) }\nfunc g() { h() }\nfunc h() { _ = time.Since(x) }": 0,
		"func TestA(t *testing.T) { synctest.Test(t, func(*testing.T) { _ = time.Since(x) }) }":                                     0,
		"func TestA(t *testing.T) { synctest.Test(t, g) }\nfunc g(*testing.T) { _ = time.Since(x) }":                                0,
		"func f() { c := cert{NotAfter: time.Now()}; _ = c.NotAfter.Sub(c.NotBefore) }":                                             0,
		"func f() { if crt.NotAfter.Before(time.Now()) {} }":                                                                        0,
		"func f() { _ = x.Sub(y); _ = time.Now().Add(time.Hour); _ = a - b }":                                                       0,
	} {
		s := parse(t, "a/a_test.go", []byte("// Package a is for a test.\npackage a\n"+src))
		if got := checkClock("a", []source{s}); len(got) != want {
			t.Errorf("%s: found %q, want %d", src, got, want)
		}
	}
}
