package layout_test

import (
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// patient are the packages whose waits after failures are rows of internal/fault/patience.go.
var patient = []string{
	"internal/engine", "internal/machine/renewal", "internal/machine/acmeflow", "internal/machine/order", "internal/machine/challenge",
	"internal/machine/account", "internal/solver/dns01/provider/limit", "internal/cause", "internal/signer/acmeorder",
}

// lasting are the durations in those packages that are no waits after failures, and what they are.
var lasting = map[string]string{
	"internal/cause Pause":                             "bounds writes that tell of a cause",
	"internal/signer/acmeorder lookAgain":              "looks whether an obstacle of ours is gone",
	"internal/signer/acmeorder callTimeout":            "bounds a call",
	"internal/signer/acmeorder renewalInfoSoon":        "bounds what a CA asks for between two looks",
	"internal/signer/acmeorder renewalInfoLater":       "is between two looks",
	"internal/engine nextPass":                         "how soon an object goes on that has used up its steps",
	"internal/engine passLimit":                        "ends a pass",
	"internal/engine soon":                             "tells a wait that is one from one that is about to end",
	"internal/engine stuckAfter":                       "is when work counts as stuck, for the liveness probe",
	"internal/machine/account ParseShare":              "is the shortest setting",
	"internal/machine/account HoldPoll":                "looks at validations that are under way",
	"internal/machine/account failureKept":             "is how long a failure is remembered",
	"internal/machine/account followAgain":             "looks at other issuers",
	"internal/machine/account holdLimit":               "bounds how long validations are held back",
	"internal/machine/account lateLimit":               "is how late a request may reach the CA",
	"internal/machine/account lookAgain":               "looks whether an obstacle of ours is gone",
	"internal/machine/account lookedFor":               "is how long a validation is watched by who has begun it",
	"internal/machine/account pruneEvery":              "is between two clean-ups of memory",
	"internal/machine/account retryAfter":              "tells a retry from a new order; machine/certificate makes it wait",
	"internal/machine/account strangersLimit":          "is how long a validation of an earlier process is watched",
	"internal/machine/account validationLimit":         "bounds how long a validation keeps a key",
	"internal/machine/account writeAgain":              "lets the watch show what has overtaken a write",
	"internal/machine/acmeflow DefaultSettings":        "are settings, which people may change",
	"internal/machine/acmeflow ExpiryGrace":            "is for clocks that differ",
	"internal/machine/acmeflow expiryPoll":             "looks at an order that has expired by our clock",
	"internal/machine/acmeflow maxUntold":              "is when a wait is told of",
	"internal/machine/acmeflow ShortPark":              "is when a wait is told of",
	"internal/machine/order causeAgain":                "bounds writes that tell of a cause",
	"internal/machine/order causePause":                "bounds writes that tell of a cause",
	"internal/machine/order deactivationWindow":        "is how old a failure may be",
	"internal/machine/order orderAnew":                 "comes before the first call",
	"internal/machine/order sentAgain":                 "looks at a call that is under way",
	"internal/machine/order slowProcessing":            "is when a wait is told of",
	"internal/machine/order startingPause":             "looks whether the issuer has its account yet",
	"internal/machine/challenge callLimit":             "is longer than any call",
	"internal/machine/challenge changingPoll":          "looks at our own key, which is being replaced",
	"internal/machine/challenge issuerHold":            "ends with an event of the issuer",
	"internal/machine/challenge lingering":             "keeps a finalizer",
	"internal/machine/challenge nameHold":              "bounds how long a name is held",
	"internal/machine/challenge shortSettle":           "is when a wait is told of",
	"internal/machine/challenge slotSettle":            "bounds how long a slot is held",
	"internal/machine/challenge yieldValidation":       "is when a slot is given to others",
	"internal/machine/renewal Floor":                   "is between an issuance and the next one, whatever comes of it",
	"internal/machine/renewal Time.Serves":             "is the second that times are told in",
	"internal/machine/renewal shortLived":              "tells apart lifetimes",
	"internal/machine/renewal slack":                   "is for clocks that differ",
	"internal/solver/dns01/provider/limit bucket.turn": "is the second of a rate",
	"internal/solver/dns01/provider/limit patience":    "is how long a call waits for its turn",
	"internal/solver/dns01/provider/limit probeLimit":  "bounds a call",
	"internal/solver/dns01/provider/limit probePeriod": "looks at a call that is under way",
	"internal/solver/dns01/provider/limit rememberFor": "is how long a failure is remembered",
	"internal/solver/dns01/provider/limit turnsHold":   "is how long a turn is kept",
}

// durationsIn finds the constants, variables and functions of a package that say a duration in numbers.
func durationsIn(dir string, files []source) []string {
	found, skipped := map[string]bool{}, map[ast.Node]bool{}
	for _, s := range files {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			for name, node := range declared(d) {
				ast.Inspect(node, func(n ast.Node) bool {
					if skipped[n] {
						return false
					}
					if call, is := n.(*ast.CallExpr); is && rounds(call) {
						skipped[call.Args[len(call.Args)-1]] = true
					}
					if isSelector(n, "time", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour") {
						found[dir+" "+name] = true
					}
					return true
				})
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// rounds reports whether the last argument of a call makes a time or a duration shorter to read, or is the least that a
// library takes.
func rounds(call *ast.CallExpr) bool {
	if f, is := call.Fun.(*ast.SelectorExpr); is {
		return len(call.Args) == 1 && (f.Sel.Name == "Truncate" || f.Sel.Name == "Round")
	}
	f, is := call.Fun.(*ast.Ident)
	return is && f.Name == "max" && len(call.Args) == 2 && isSelector(call.Args[1], "time", "Millisecond")
}

// TestPatience: how long somebody waits after a failure is in the one table.
func TestPatience(t *testing.T) {
	var found []string
	for _, dir := range patient {
		found = append(found, durationsIn(dir, readSources(t)[dir])...)
	}
	for _, name := range found {
		if lasting[name] == "" {
			t.Errorf("%s says a duration: a wait after a failure is a row of internal/fault/patience.go; what is none gets its reason in internal/layout/patience_test.go", name)
		}
	}
	for name := range lasting {
		if !slices.Contains(found, name) {
			t.Errorf("%s is listed, and says no duration", name)
		}
	}
}

// TestPatienceBites shows what counts.
func TestPatienceBites(t *testing.T) {
	for src, want := range map[string]int{
		"const wait = time.Minute":                                         1,
		"const (\n\ta = 3 * time.Second\n\tb = 2\n)":                       1,
		"var waits = []time.Duration{time.Hour}":                           1,
		"func f() { g(5 * time.Millisecond) }":                             1,
		"func (t T) f(d time.Duration) { g(d) }":                           0,
		"func f() { _ = time.Now() }":                                      0,
		"func f() { g(t.Truncate(time.Second)) }":                          0,
		"func f() { u = now.Add(10 * time.Second).Truncate(time.Second) }": 1,
	} {
		s := parse(t, "internal/a/a.go", []byte("// Package a is for a test.\npackage a\n"+src))
		if got := durationsIn("internal/a", []source{s}); len(got) != want {
			t.Errorf("%s: %q, want %d", src, got, want)
		}
	}
}
