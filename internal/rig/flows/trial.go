package flows

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/rig/golden"
)

// SortedKeys are the keys of a map.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Situations are where an object may stand before a decision, each with its name.
type Situations[S any] []struct {
	Name  string
	State S
}

// Environment is what surrounds an object when it is decided about.
type Environment struct {
	Name     string
	Deleting bool
	// After is when the decision is made, since Start.
	After  time.Duration
	issuer acmeflow.Readiness
	parked time.Duration
}

// Environments are those of each table.
func Environments() []Environment {
	return []Environment{
		{Name: "soon", After: time.Millisecond},
		{Name: "after a minute", After: time.Minute},
		{Name: "after the CA's expiry", After: 24*time.Hour + time.Second},
		{Name: "long after the CA's expiry", After: 26 * time.Hour},
		{Name: "issuer starting", issuer: acmeflow.IssuerStarting, After: time.Millisecond},
		{Name: "issuer not ready", issuer: acmeflow.IssuerNotReady, After: time.Millisecond},
		{Name: "issuer missing", issuer: acmeflow.IssuerMissing, After: time.Millisecond},
		{Name: "account parked", parked: time.Hour, After: time.Millisecond},
	}
}

// Apply makes an issuer and its account what they are in the environment.
func (e Environment) Apply(i *acmeflow.Issuer, a *acmeflow.AccountState) {
	i.Readiness = e.issuer
	if e.issuer == acmeflow.IssuerStarting {
		a.URL = ""
	}
	if e.parked > 0 {
		a.ParkedUntil, a.ParkedReason = Start().Add(e.parked), "slow down"
	}
}

// Step is one that an action asks for.
type Step interface {
	fmt.Stringer
	External() bool
}

// Trial is what is pinned of one of the two machines: S is its state, M its memory and A its action.
type Trial[S, M, A any] struct {
	// Name is that of the function, File that of the golden file.
	Name, File   string
	Situations   Situations[S]
	Environments []Environment
	In           func(S, Environment) S
	Decide       func(S, time.Time) A
	Text         func(A, time.Time) string
	Check        func(t *testing.T, s S, a A, now time.Time, where func() string)
	// Memory is that of a state, and Step that of an action. Started and Failed are how the memory takes in an external
	// step.
	Memory  func(*S) *M
	Step    func(A) Step
	Started func(M, A) M
	Failed  func(M, A, *fault.Fault) M
}

// Failures are what a call may come back with.
func Failures() []*fault.Fault {
	plain := func(class fault.Class) *fault.Fault { return acmeflow.NewFault(class, "detail") }
	return []*fault.Fault{
		plain(fault.ClassNotProcessed), plain(fault.ClassUnavailable), plain(fault.ClassRateLimited), plain(fault.ClassSolver),
		plain(fault.ClassSelfCheck), plain(fault.ClassNotReady), plain(fault.ClassRefused), Refusal(fault.ClassRefused, acme.CodeMalformed),
		plain(fault.ClassNotFound), Page("detail"), Refusal(fault.ClassPermanent, acme.CodeRejectedIdentifier), plain(fault.ClassCredential),
	}
}

// Refusal is a problem that the CA has answered with.
func Refusal(class fault.Class, code acme.Code) *fault.Fault {
	return fault.Answered(class, code.Type(), 0, errors.New("detail"))
}

// Page is a page in place of the answer of the CA.
func Page(text string) *fault.Fault {
	return &fault.Fault{Kind: fault.KindAfter, Exact: true, Class: fault.ClassNotFound, Unsure: true, Err: errors.New(text)}
}

// NoZone is the failure of a solver that finds no zone.
func NoZone() *fault.Fault {
	f := acmeflow.NewFault(fault.ClassSolver, "no such zone")
	f.Reason = fault.ReasonNoZone
	return f
}

// After is a failure whose answer asks for a wait.
func After(wait time.Duration, class fault.Class) *fault.Fault {
	return fault.Answered(class, "", wait, errors.New("detail"))
}

// nameOf is that of a kind of failure.
func nameOf(f *fault.Fault) string {
	switch {
	case f.Unsure:
		return string(f.Class) + " perhaps"
	case acmeflow.CodeOf(f) == acme.CodeMalformed:
		return string(f.Class) + " as malformed"
	default:
		return string(f.Class)
	}
}

// outcomes are what may become of the step that a state asks for.
func (x Trial[S, M, A]) outcomes(s S) map[string]S {
	all := map[string]S{"(no outcome)": s}
	action := x.Decide(s, Start().Add(time.Minute))
	step := x.Step(action)
	if !step.External() {
		return all
	}
	flying := s
	*x.Memory(&flying) = x.Started(*x.Memory(&s), action)
	all[fmt.Sprintf("(%s is under way)", step)] = flying
	add := func(name string, times int, f *fault.Fault) {
		failed := s
		m := x.Memory(&failed)
		for range times {
			*m = x.Failed(x.Started(*m, action), action, f)
		}
		all[fmt.Sprintf("%s: %s×%d", step, name, times)] = failed
	}
	for _, f := range Failures() {
		add(nameOf(f), 1, f)
		add(nameOf(f), 4, f)
	}
	add("Solver, nowhere", 1, NoZone())
	for _, class := range []fault.Class{fault.ClassUnavailable, fault.ClassRateLimited} {
		add(string(class)+" with Retry-After", 1, After(10*time.Minute, class))
	}
	return all
}

// Run writes or compares the golden table, and checks every decision in it.
func (x Trial[S, M, A]) Run(t *testing.T) {
	t.Helper()
	b := table{}
	fmt.Fprintf(&b, "What %s does in each situation, for each outcome (step: class×times in a row), in each environment.\n", x.Name)
	fmt.Fprintf(&b, "Written by %s -update. Times are relative to the decision.\n", t.Name())
	for _, e := range x.Environments {
		b.environments = append(b.environments, e.Name)
	}
	for _, situation := range x.Situations {
		fmt.Fprintf(&b, "\n== %s\n", situation.Name)
		outcomes := x.outcomes(situation.State)
		for _, outcome := range SortedKeys(outcomes) {
			var actions []string
			for _, e := range x.Environments {
				now := Start().Add(e.After)
				s := x.In(outcomes[outcome], e)
				a := x.Decide(s, now)
				x.Check(t, s, a, now, func() string { return situation.Name + " / " + outcome + " / " + e.Name })
				actions = append(actions, x.Text(a, now))
			}
			b.row(outcome, actions)
		}
		b.end()
	}
	golden.Check(t, x.File, b.String())
}

// Examine checks what is decided in a state, for every outcome in all of the environments, and
// returns how many decisions that were. Outcomes four times in a row only count if asked for.
func (x Trial[S, M, A]) Examine(t *testing.T, s S, fourTimes bool, environments []Environment, where func() string) int {
	t.Helper()
	n := 0
	for name, outcome := range x.outcomes(s) {
		if !fourTimes && strings.HasSuffix(name, "×4") {
			continue
		}
		for _, e := range environments {
			n++
			now := Start().Add(e.After)
			in := x.In(outcome, e)
			x.Check(t, in, x.Decide(in, now), now, func() string { return where() + ", " + name + ", " + e.Name })
		}
	}
	return n
}

// table is the text of a golden file: outcomes that lead to the same actions are
// joined, and so are environments.
type table struct {
	strings.Builder
	environments []string
	bodies       []string
	outcomes     map[string][]string
}

func (b *table) row(outcome string, actions []string) {
	var body strings.Builder
	done := map[string]bool{}
	for _, action := range actions {
		if done[action] {
			continue
		}
		done[action] = true
		var same []string
		for j, other := range actions {
			if other == action {
				same = append(same, b.environments[j])
			}
		}
		label := strings.Join(same, ", ")
		if len(same) == len(b.environments) {
			label = "always"
		}
		fmt.Fprintf(&body, "      %s -> %s\n", label, action)
	}
	if b.outcomes == nil {
		b.outcomes = map[string][]string{}
	}
	if b.outcomes[body.String()] == nil {
		b.bodies = append(b.bodies, body.String())
	}
	b.outcomes[body.String()] = append(b.outcomes[body.String()], outcome)
}

// end finishes a situation.
func (b *table) end() {
	for _, body := range b.bodies {
		fmt.Fprintf(b, "  %s:\n%s", strings.Join(b.outcomes[body], ", "), body)
	}
	b.bodies, b.outcomes = nil, nil
}
