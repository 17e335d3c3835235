package layout_test

import (
	"go/ast"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// concurrent says what a package outside of the engine does by itself while other things go on, and why the engine does
// not do it.
var concurrent = map[string]struct{ what, why string }{
	"dnsproviders/cmd/chancery-dns": {
		"goroutine serve; queue serve; timer serve",
		"serves each connection, so many at a time; knows no objects",
	},
	"dnsproviders/internal/adapter": {
		"goroutine newStub; mutex stub; queue newStub",
		"is the DNS server that lego asks, in a process of its own",
	},
	"dnsproviders/internal/native": {
		"mutex zoneIDs; timer cloudDNS.await",
		"ids of zones, for calls at once; asks whether a change is done, in a process of its own",
	},
	"internal/acme/client": {
		"mutex server",
		"nonces and the directory of a server, which all calls share",
	},
	"internal/acme/accounts": {
		"goroutine authorizations; mutex Account, Registry; queue Registry.Open, authorizations",
		"authorizations are read a few at a time, within a call of the engine; its state is shared by such calls",
	},
	"internal/app": {
		"goroutine App.Run, App.trace, responder.Start; mutex adding; queue newWaits, responder.Start; timer adding.Start, waits.serve",
		"servers, the lease and the end, which are of the process and not of an object",
	},
	"internal/cli": {
		"goroutine newControllerProcess, newInjectorProcess; timer UntilStopped, newCheckAPICommand, returnMemory",
		"the process itself: signals, servers, memory that is given back",
	},
	"internal/controller": {
		"goroutine Deps.AllSetUp; queue Deps.Options, NewQueue; timer Deps.AfterFunc, Deps.Late, Deps.pause, afterFunc",
		"makes the work queues of the engine, and its clock; the start that waits for the first caches",
	},
	"internal/controller/issuers": {
		"timer repeat",
		"the solver test makes and removes a record within one call of the engine, which ends in a minute",
	},
	"internal/controller/externalissuers": {
		"goroutine Keeper.Start; informer Keeper.Start; queue New; timer Keeper.Start",
		"keeps a table for admission from definitions: no kind that is decided upon, and no status",
	},
	"internal/controller/orders": {
		"goroutine scheduler.Start; mutex scheduler; queue newScheduler, scheduler.Start; timer scheduler.Start",
		"the scheduler decides about all Challenges at once, and needs to know which of its writes was answered",
	},
	"internal/dashboard": {
		"goroutine Serve, follow; mutex board, guard; queue Serve, follow",
		"serves a page to one person, and reads only",
	},
	"internal/clientside/inventory": {
		"goroutine Inventory.live; timer Follow, Inventory.await",
		"follows objects for commands of people, without the engine",
	},
	"internal/kube/informers": {
		"informer NewPagedInformer, NewStoppable; mutex Following, Requests, solvers; timer stoppable.waitForAll",
		"the caches that the engine reads",
	},
	"internal/kube/leader": {
		"timer Lease.wait",
		"the lease that the engine acts by",
	},
	"internal/kube/secrets": {
		"goroutine Secrets.Start; informer Secrets.Start; mutex Claims, Identity, Secrets, bodies; queue Claims.Note",
		"the caches that the engine reads",
	},
	"internal/kube/ownwrites": {
		"mutex Client",
		"own writes, which all workers of the engine read",
	},
	"internal/kube/requesterwebhook": {
		"queue NewHandler",
		"requests of the API server, and of whoever else reaches the webhook, take turns",
	},
	"internal/kube/servingcert": {
		"goroutine Certificate.Start; informer Certificate.Start; queue New; timer Certificate.Start",
		"one Secret and its certificate, by which servers of the process answer",
	},
	"internal/install": {
		"timer admits, established",
		"waits of an installation, which ends",
	},
	"internal/fairshare": {
		"mutex Places",
		"places that calls of the engine and processes share",
	},
	"internal/metrics": {
		"mutex PodRequests",
		"passes of the engine tell it of requests of Pods, and scrapes read it: there are too many to list them",
	},
	"internal/signer": {
		"mutex Kept",
		"connections that calls of the engine share",
	},
	"internal/signer/vault": {
		"queue plan.open",
		"one login at a time for a credential, within calls of the engine",
	},
	"internal/signer/venafi": {
		"queue Signer.account, newTurns",
		"one login at a time for a credential, one comparison at a time, within calls of the engine",
	},
	"internal/solver/dns01": {
		"goroutine Resolver.askAll, Resolver.askServers, Resolver.noteBehind, Resolver.recursive, Resolver.resolveAll; mutex Persistent.Check; queue Resolver.recursive; timer Resolver.exchange, Resolver.recursive",
		"asks servers side by side within a call of the engine, and waits for all",
	},
	"internal/solver/dns01/provider/acmedns": {
		"mutex Client",
		"accounts that calls of the engine share",
	},
	"internal/solver/dns01/provider/exec": {
		"goroutine Pool.start, session.ask, worker.do; mutex Pool; queue session.ask, worker.do; timer New, Pool.start, worker.do, worker.restTimer",
		"processes of DNS providers: their pipes, their end, their rest",
	},
	"internal/solver/dns01/provider/limit": {
		"mutex Limits; timer Limits.Enter",
		"spreads calls with one credential over a second or two, within calls of the engine",
	},
	"internal/solver/dns01/provider/rfc2136": {
		"goroutine Queues.join; mutex Queues; timer Provider.exchange, lifeOf",
		"changes of one zone that come together are sent together",
	},
	"internal/solver/http01": {
		"goroutine Dialer.Each; mutex Connections, Index; queue NewQueue, Serve; timer Serve, Solver.check",
		"the responder, which serves and decides nothing; the self check within a call of the engine",
	},
	"internal/solver/http01/route": {
		"goroutine Router.edit; mutex Router; queue New",
		"edits of one Ingress that come together are written together",
	},
	"internal/solver/tlsalpn01": {
		"goroutine Responder.Serve; timer Responder.Serve",
		"the responder, which serves and decides nothing",
	},
	"internal/tracing": {
		"queue New; timer Exporter.Run",
		"sends spans now and then, and drops what is too much",
	},
	"kubectl/internal/check": {
		"timer checker.await",
		"a command waits for the person who has started it",
	},
	"kubectl/internal/move": {
		"timer mover.deleteLeft, mover.quiet",
		"a command waits for the person who has started it",
	},
	"kubectl/internal/plugin": {
		"goroutine StartProgress; mutex Progress; timer Await, Progress.run",
		"a command waits for the person who has started it, and shows how far it is",
	},
	"kubectl/internal/preflight": {
		"mutex checker.each, checker.handshake, checker.http; timer checker.await",
		"a command tries many names side by side, and waits for the person who has started it",
	},
	"kubectl/internal/takeover": {
		"timer runner.admitted, runner.restoreKinds",
		"a command waits for the person who has started it",
	},
	"kubectl/internal/waits": {
		"goroutine Get, dial; queue Get, dial; timer Get",
		"a command reads through a port of a Pod",
	},
	"standalone/child": {
		"goroutine Start; mutex tail; timer Process.Stop, Process.Until, askHelp",
		"processes that it has started: their end, their output",
	},
	"standalone/cmd/chancery-standalone": {
		"goroutine startControllers, up, withControllers, withParent; queue up; timer removeAll",
		"servers of one process that begin and end together",
	},
	"standalone/controlplane": {
		"goroutine apiServer.start, controllerSet.garbageCollector, parts.finish, startControllers, within; informer controllerSet.build, newMetadataInformers; mutex ControlPlane, apiServer, logFile; queue apiServer.start; timer poll, startEtcd, within",
		"Kubernetes' own servers and controllers, which the engine is a client of",
	},
	"standalone/demo": {
		"goroutine Run, startNode, watch; informer startNode, watch; mutex board; queue Run, newBoard; timer board.awaitIssuer, display.until, node.await, remove",
		"a command shows what goes on, waits for the person who has started it, and does what a node does for a Pod",
	},
	"standalone/kubelet": {
		"mutex Kubelet",
		"Kubernetes' own code for certificates of Pods asks it for the Pods",
	},
}

// unattended are folders that are left out: the engine, whose business this is, what serves tests, and what measures or
// breaks a system.
var unattended = []string{
	"internal/engine", "internal/rig", "e2e", "standalone/bench", "standalone/chaos", "standalone/compare",
	"dnsproviders/internal/standin", "kubectl/internal/kubelet",
}

// concurrencyOf are the calls and types that count, in which * is any text, by what they count as.
var concurrencyOf = map[string][]string{
	"timer":    {"time.NewTimer", "time.NewTicker", "time.Tick", "time.After", "*.AfterFunc", "time.Sleep", "wait.Until*", "wait.Poll*", "wait.*Backoff*"},
	"queue":    {"workqueue.New*", "heap.Push", "rate.NewLimiter", "semaphore.NewWeighted"},
	"informer": {"cache.New", "*.NewReflector*", "*.NewSharedI*", "*.NewInformer*", "*.RunWithContext"},
	"mutex":    {"sync.Mutex", "sync.RWMutex", "sync.Map", "sync.Cond", "sync.Once", "singleflight.Group"},
}

// checkConcurrency compares what packages do by themselves with the table.
func checkConcurrency(sources map[string][]source) []string {
	var problems []string
	for _, dir := range slices.Sorted(maps.Keys(sources)) {
		if slices.ContainsFunc(unattended, func(u string) bool { return dir == u || strings.HasPrefix(dir, u+"/") }) {
			continue
		}
		got, row := concurrencyIn(sources[dir]), concurrent[dir]
		switch {
		case got != row.what:
			problems = append(problems, dir+" has "+strconv.Quote(got)+", and its row "+strconv.Quote(row.what)+
				": let the engine do it (internal/engine), or write the row in internal/layout/concurrency_test.go")
		case got != "" && row.why == "":
			problems = append(problems, dir+": its row does not say why the engine does not do it")
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(concurrent)) {
		if len(sources[dir]) == 0 {
			problems = append(problems, dir+" has a row, and is not there")
		}
	}
	return problems
}

// concurrencyIn says what a package does by itself, and in which functions and types.
func concurrencyIn(files []source) string {
	found := map[string]map[string]bool{}
	for _, s := range files {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			for name, node := range declared(d) {
				ast.Inspect(node, func(n ast.Node) bool {
					if kind := concurrency(n); kind != "" {
						if found[kind] == nil {
							found[kind] = map[string]bool{}
						}
						found[kind][name] = true
					}
					return true
				})
			}
		}
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		all = append(all, kind+" "+strings.Join(slices.Sorted(maps.Keys(found[kind])), ", "))
	}
	return strings.Join(all, "; ")
}

// declared are the functions, types and variables of a declaration, by name.
func declared(d ast.Decl) map[string]ast.Node {
	all := map[string]ast.Node{}
	switch d := d.(type) {
	case *ast.FuncDecl:
		all[functionName(d)] = d
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				all[spec.Name.Name] = spec
			case *ast.ValueSpec:
				all[spec.Names[0].Name] = spec
			}
		}
	}
	return all
}

// concurrency says as what a node counts; empty if it does not. A channel with room is a queue.
func concurrency(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "goroutine"
	case *ast.CallExpr:
		if f, is := n.Fun.(*ast.SelectorExpr); is && f.Sel.Name == "Go" && len(n.Args) == 1 {
			return "goroutine"
		}
		if f, is := n.Fun.(*ast.Ident); is && f.Name == "make" && len(n.Args) == 2 {
			if _, is := n.Args[0].(*ast.ChanType); is {
				return "queue"
			}
		}
		return counted(n.Fun, "timer", "queue", "informer")
	case *ast.Field:
		return counted(n.Type, "mutex")
	case *ast.CompositeLit:
		return counted(n.Type, "mutex")
	case *ast.ValueSpec:
		return counted(n.Type, "mutex")
	}
	return ""
}

// counted says as which of the kinds an expression counts. It may name type arguments.
func counted(e ast.Expr, kinds ...string) string {
	switch of := e.(type) {
	case *ast.IndexExpr:
		return counted(of.X, kinds...)
	case *ast.IndexListExpr:
		return counted(of.X, kinds...)
	case *ast.StarExpr:
		return counted(of.X, kinds...)
	case *ast.ArrayType:
		return counted(of.Elt, kinds...)
	case *ast.MapType:
		return counted(of.Value, kinds...)
	case *ast.SelectorExpr:
		name := "." + of.Sel.Name
		if x, is := of.X.(*ast.Ident); is {
			name = x.Name + name
		}
		for _, kind := range kinds {
			if slices.ContainsFunc(concurrencyOf[kind], func(pattern string) bool { return matches(pattern, name) }) {
				return kind
			}
		}
	}
	return ""
}

// matches compares a name with a pattern, in which * is any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	for i, part := range parts {
		at := strings.Index(name, part)
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		name = name[at+len(part):]
	}
	return name == "" || strings.HasSuffix(pattern, "*")
}

// TestConcurrency: what goes on by itself outside of the engine, waits or repeats has its row, and its reason.
func TestConcurrency(t *testing.T) {
	for _, problem := range checkConcurrency(readSources(t)) {
		t.Error(problem)
	}
}

// TestConcurrencyBites shows what counts, and that each rule can fail.
func TestConcurrencyBites(t *testing.T) {
	for src, want := range map[string]string{
		"func f() { go g() }":                          "goroutine f",
		"func (t *T) f() { t.wg.Go(func() {}) }":       "goroutine T.f",
		"func f() { time.AfterFunc(1, g) }":            "timer f",
		"func f() { <-time.After(1) }":                 "timer f",
		"func f() { _ = time.NewTimer(1); go g() }":    "goroutine f; timer f",
		"func f() { wait.PollUntilContextTimeout() }":  "timer f",
		"func f() { c := make(chan int, 1); _ = c }":   "queue f",
		"func f() { c := make(chan int); _ = c }":      "",
		"func f() { q := workqueue.NewTyped[int]() }":  "queue f",
		"func f() { _, _ = cache.New(c, o) }":          "informer f",
		"func f() { i.RunWithContext(c) }":             "informer f",
		"type T struct { mu sync.RWMutex }":            "mutex T",
		"type T struct { sync.Mutex }":                 "mutex T",
		"func f() { var mu sync.Mutex }":               "mutex f",
		"func f() { mu := sync.Mutex{}; _ = mu }":      "mutex f",
		"type T struct { mu map[string]*sync.Mutex }":  "mutex T",
		"func f() { d.AfterFunc(1, g) }":               "timer f",
		"func f() { context.AfterFunc(ctx, g) }":       "timer f",
		"func f() { q := workqueue.NewA[int, int]() }": "queue f",
		"func b() { go g() }\nfunc a() { go g() }":     "goroutine a, b",
	} {
		s := parse(t, "internal/a/a.go", []byte("// Package a is for a test.\npackage a\n"+src))
		if got := concurrencyIn([]source{s}); got != want {
			t.Errorf("%s: got %q, want %q", src, got, want)
		}
	}
	one := parse(t, "internal/a/a.go", []byte("// Package a is for a test.\npackage a\nfunc f() { go f() }"))
	problems := strings.Join(checkConcurrency(map[string][]source{"internal/a": {one}}), "\n")
	for _, want := range []string{`internal/a has "goroutine f", and its row ""`, "internal/kube/ownwrites has a row, and is not there"} {
		if !strings.Contains(problems, want) {
			t.Errorf("got %q, want %q in it", problems, want)
		}
	}
	if got := checkConcurrency(map[string][]source{"internal/engine": {one}}); strings.Contains(strings.Join(got, " "), "internal/engine") {
		t.Errorf("the engine is to be left out: %q", got)
	}
}
