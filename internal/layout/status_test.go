package layout_test

import (
	"go/ast"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// statusWriters are the functions that may write the status of an object, and why: it has one writer, the engine.
var statusWriters = map[string]string{
	"internal/kube/ownwrites Client.PatchStatus": "the client of the engine",
	"internal/engine Engine.WriteStatus":         "the writer",
	"internal/engine Runner.write":               "calls it, once for a plan",
	"internal/controller/orders scheduler.apply": "the scheduler: its guarantee needs to know which write was answered",
	"kubectl/internal/change":                    "a person's renewal or approval",
	"standalone/demo node.await":                 "what the kubelet of a node says of a Pod",
	"kubectl/internal/move":                      "a person moves objects to another cluster, with their status",
}

// statusCalls finds the functions and variables of a package, without its tests, that write the status of an object: by
// a status client, by the functions that are listed, or by a subresource that is named.
func statusCalls(dir string, files []source) []string {
	found := map[string]bool{}
	for _, s := range files {
		for _, d := range s.file.Decls {
			if s.test {
				continue
			}
			for name, node := range declared(d) {
				ast.Inspect(node, func(n ast.Node) bool {
					if call, is := n.(*ast.CallExpr); is && writesStatus(call) {
						found[dir+" "+name] = true
					}
					return true
				})
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// writesStatus reports whether a call writes a status.
func writesStatus(call *ast.CallExpr) bool {
	f, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return false
	}
	switch f.Sel.Name {
	case "PatchStatus", "WriteStatus", "UpdateStatus", "ApplyStatus":
		return true
	case "Create", "Update", "Patch", "Apply":
		of, is := f.X.(*ast.CallExpr)
		if is {
			s, is := of.Fun.(*ast.SelectorExpr)
			if is && (s.Sel.Name == "Status" && len(of.Args) == 0 || s.Sel.Name == "SubResource" && names(of.Args, "status")) {
				return true
			}
		}
		return names(call.Args, "status")
	case "SubResource", "UpdateSubResource":
		return names(call.Args, "status")
	}
	return false
}

// names reports whether one of the arguments is a text.
func names(args []ast.Expr, text string) bool {
	return slices.ContainsFunc(args, func(e ast.Expr) bool {
		l, is := e.(*ast.BasicLit)
		return is && l.Value == strconv.Quote(text)
	})
}

// TestStatusWriters: a status has one writer, the engine.
func TestStatusWriters(t *testing.T) {
	used := map[string]bool{}
	for dir, files := range readSources(t) {
		if slices.ContainsFunc(unattended, func(u string) bool { return u != "internal/engine" && (dir == u || strings.HasPrefix(dir, u+"/")) }) {
			continue
		}
		for _, at := range statusCalls(dir, files) {
			switch {
			case statusWriters[at] != "":
				used[at] = true
			case statusWriters[dir] != "":
				used[dir] = true
			default:
				t.Errorf("%s writes a status: let the engine do it, by the plan of its kind (engine.Plan)", at)
			}
		}
	}
	for at := range statusWriters {
		if !used[at] {
			t.Errorf("%s may write a status, and writes none", at)
		}
	}
}

// TestStatusWritersBite shows what counts.
func TestStatusWritersBite(t *testing.T) {
	for src, want := range map[string]bool{
		"c.Status().Update(ctx, o)":                      true,
		"c.Status().Patch(ctx, o, p)":                    true,
		"k.api.Status().Apply(ctx, o)":                   true,
		"over.PatchStatus(ctx, o, p)":                    true,
		"c.Orders(ns).UpdateStatus(ctx, o, p)":           true,
		`c.SubResource("status").Patch(ctx, o, p)`:       true,
		`d.Resource(r).Patch(ctx, n, t, p, o, "status")`: true,
		`over.UpdateSubResource(ctx, "status", o)`:       true,
		`w := c.SubResource("status"); _ = w`:            true,
		"c.Update(ctx, o)":                               false,
		`c.SubResource("approval").Update(ctx, o)`:       false,
		"_ = err.Status().Code":                          false,
		`delete(o, "status")`:                            false,
	} {
		s := parse(t, "internal/a/a.go", []byte("// Package a is for a test.\npackage a\nfunc f() { "+src+" }"))
		if got := len(statusCalls("internal/a", []source{s})) > 0; got != want {
			t.Errorf("%s: got %v, want %v", src, got, want)
		}
	}
}
