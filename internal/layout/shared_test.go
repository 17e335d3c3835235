package layout_test

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// maxShared is how many structs outside of the engine and the caches may hold what goroutines share. Two of them are of
// the dashboard, which the controller does not run. The nineteenth keeps the policies of tenants to one core, the
// twentieth the connections of strangers to a number. The twenty-first works around a fault of controller-runtime.
// The twenty-second has what scrapes tell of the requests of Pods, which are too many to be listed.
const maxShared = 22

// sharedRooms are the engine and the caches: waiting and sharing is what they are for.
var sharedRooms = []string{"internal/engine", "internal/kube/informers", "internal/kube/ownwrites", "internal/kube/secrets"}

// shared are the structs outside of those rooms that hold a lock, an atomic or a channel of one slot, and why.
var shared = map[string]string{
	"internal/acme/client.server":                   "calls for all accounts at a server use one directory and one pool of nonces",
	"internal/acme/accounts.Account":                "calls sign with a key that is replaced while none is under way; issuers that share the account register it in turn",
	"internal/acme/accounts.Registry":               "issuers, Orders and Challenges find the accounts in it",
	"internal/app.adding":                           "controllers are added once their kind is served, while the process may end",
	"internal/controller/orders.scheduler":          "the watch, passes and answers to writes tell it of all Challenges",
	"internal/dashboard.board":                      "views are made of it while the watch changes it",
	"internal/dashboard.guard":                      "requests of browsers that come together: one of them is admitted",
	"internal/kube/servingcert.Certificate":         "handshakes take the certificate from it while it is replaced",
	"internal/fairshare.Places":                     "who may have to wait for a place",
	"internal/metrics.PodRequests":                  "scrapes read what passes and the watch of issuers tell it",
	"internal/signer.Kept":                          "calls for an issuer find the session of an earlier call in it",
	"internal/signer/vault.session":                 "calls share a token, and one of them logs in",
	"internal/signer/venafi.session":                "calls share a token, and one of them logs in",
	"internal/signer/venafi.turns":                  "requests are compared with policies one at a time, whoever makes them",
	"internal/solver/dns01/provider/acmedns.Client": "an account keeps its last two values, which calls for two Challenges set",
	"internal/solver/dns01/provider/exec.Pool":      "calls find the running programs in it, which end with it",
	"internal/solver/dns01/provider/limit.Limits":   "calls with one credential share its rate and its pauses",
	"internal/solver/dns01/provider/rfc2136.Queues": "changes of one zone that come together are one message",
	"internal/solver/http01.Connections":            "connections come, ask and end while the quietest of too many is closed",
	"internal/solver/http01.Index":                  "requests of CAs are answered by it while the watch changes it",
	"internal/solver/http01/route.Router":           "Challenges that edit one Ingress at once share a write",
	"internal/solver/http01/route.parents":          "Challenges that come together look at their Gateway once",
}

// checkShared finds the structs of a package that hold a lock, an atomic or a channel of one slot.
func checkShared(dir string, files []source) []string {
	slots := oneSlot(files)
	var found []string
	for _, s := range files {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			ast.Inspect(spec.Type, func(n ast.Node) bool {
				if fields, ok := n.(*ast.StructType); ok && slices.ContainsFunc(fields.Fields.List, func(f *ast.Field) bool { return isShared(f, slots) }) {
					found = append(found, dir+"."+spec.Name.Name)
				}
				return true
			})
			return false
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// isShared reports whether a field is a lock, an atomic, or a channel that is made with one slot.
func isShared(f *ast.Field, slots map[string]bool) bool {
	shares := false
	ast.Inspect(f.Type, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			shares = shares || ofPackage(sel, "sync", "atomic")
		}
		return true
	})
	if _, isChannel := f.Type.(*ast.ChanType); isChannel {
		shares = shares || slices.ContainsFunc(f.Names, func(name *ast.Ident) bool { return slots[name.Name] })
	}
	return shares
}

// oneSlot names the fields and variables to which a package gives channels of one slot.
func oneSlot(files []source) map[string]bool {
	names := map[string]bool{}
	for _, s := range files {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if name, ok := n.Key.(*ast.Ident); ok && makesOneSlot(n.Value) {
					names[name.Name] = true
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if sel, ok := to.(*ast.SelectorExpr); ok && len(n.Rhs) == len(n.Lhs) && makesOneSlot(n.Rhs[i]) {
						names[sel.Sel.Name] = true
					}
				}
			}
			return true
		})
	}
	return names
}

// makesOneSlot reports whether an expression is make(chan T, 1).
func makesOneSlot(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return false
	}
	_, isChannel := call.Args[0].(*ast.ChanType)
	size, isNumber := call.Args[1].(*ast.BasicLit)
	return isChannel && isNumber && size.Kind == token.INT && size.Value == "1"
}

// TestShared: who shares what between goroutines is a short list, with a reason for each.
func TestShared(t *testing.T) {
	var found []string
	sources := readSources(t)
	for _, dir := range slices.Sorted(maps.Keys(sources)) {
		outside := !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/")
		if outside || slices.Contains(sharedRooms, dir) || slices.Contains(strings.Split(dir, "/"), "rig") {
			continue
		}
		found = append(found, checkShared(dir, sources[dir])...)
	}
	for _, name := range found {
		if shared[name] == "" {
			t.Errorf("%s holds a lock, an atomic or a channel of one slot: have the engine or a cache keep what is shared, or list the struct with its reason", name)
		}
	}
	for name := range shared {
		if !slices.Contains(found, name) {
			t.Errorf("%s is listed, and shares nothing", name)
		}
	}
	if len(found) > maxShared {
		t.Errorf("%d structs outside of %s share something, at most %d may", len(found), strings.Join(sharedRooms, ", "), maxShared)
	}
}

// TestSharedBites shows what counts.
func TestSharedBites(t *testing.T) {
	for src, want := range map[string]int{
		"type T struct { mu sync.Mutex }":                                              1,
		"type T struct { sync.RWMutex }":                                               1,
		"type T struct { all sync.Map }":                                               1,
		"type T struct { a atomic.Pointer[string] }":                                   1,
		"type T struct { a map[string]*sync.Mutex }":                                   1,
		"type T struct { a struct { mu sync.Mutex } }":                                 1,
		"type T struct { c chan int }\nvar t = T{c: make(chan int, 1)}":                1,
		"type T struct { c chan int }\nfunc f(t *T) { t.c = make(chan int, 1) }":       1,
		"type T struct { c chan int }\nvar t = T{c: make(chan int)}":                   0,
		"type T struct { c chan int }\nvar t = T{c: make(chan int, 8)}":                0,
		"type T struct { n int }\nfunc f() { var mu sync.Mutex; mu.Lock() }":           0,
		"type T struct { n int }\nfunc f() { done := make(chan int, 1); close(done) }": 0,
	} {
		s := parse(t, path.Join("internal/a", "a.go"), []byte("// Package a is for a test.\npackage a\n"+src))
		if got := checkShared("internal/a", []source{s}); len(got) != want {
			t.Errorf("%s: found %q, want %d", src, got, want)
		}
	}
}
