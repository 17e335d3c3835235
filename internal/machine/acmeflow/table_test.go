package acmeflow

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
	"chancery.dev/internal/rig/golden"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// situation is where an object stands before a decision.
type situation[S any] struct {
	name  string
	state S
}

// environment is what surrounds an object when it is decided about.
type environment struct {
	name     string
	issuer   Readiness
	parked   time.Duration
	after    time.Duration
	deleting bool
}

func environments() []environment {
	return []environment{
		{name: "soon", after: time.Millisecond},
		{name: "after a minute", after: time.Minute},
		{name: "after the CA's expiry", after: 24*time.Hour + time.Second},
		{name: "long after the CA's expiry", after: 26 * time.Hour},
		{name: "issuer starting", issuer: IssuerStarting, after: time.Millisecond},
		{name: "issuer not ready", issuer: IssuerNotReady, after: time.Millisecond},
		{name: "issuer missing", issuer: IssuerMissing, after: time.Millisecond},
		{name: "account parked", parked: time.Hour, after: time.Millisecond},
	}
}

func (e environment) apply(i *Issuer, a *AccountState) {
	i.Readiness = e.issuer
	if e.issuer == IssuerStarting {
		a.URL = ""
	}
	if e.parked > 0 {
		a.ParkedUntil, a.ParkedReason = start.Add(e.parked), "slow down"
	}
}

// trial is what is pinned of one of the two machines: S is its state, M its memory and A its action.
type trial[S, M, A any] struct {
	// name is that of the function, file that of the golden file.
	name, file   string
	situations   []situation[S]
	environments []environment
	in           func(S, environment) S
	decide       func(S, time.Time) A
	text         func(A, time.Time) string
	check        func(t *testing.T, s S, a A, now time.Time, where func() string)
	// memory is that of a state, and step the name of what an action asks the outside for; empty if
	// nothing. started and failed are how the memory takes that in.
	memory  func(*S) *M
	step    func(A) string
	started func(M, A) M
	failed  func(M, A, *fault.Fault) M
}

// failures are what a call may come back with.
func failures() []*fault.Fault {
	of := func(class fault.Class) *fault.Fault { return failure(class, "detail") }
	return []*fault.Fault{
		of(fault.ClassNotProcessed), of(fault.ClassUnavailable), of(fault.ClassRateLimited), of(fault.ClassSolver),
		of(fault.ClassSelfCheck), of(fault.ClassNotReady), of(fault.ClassRefused), refusal(fault.ClassRefused, acme.CodeMalformed),
		of(fault.ClassNotFound), page("detail"), refusal(fault.ClassPermanent, acme.CodeRejectedIdentifier), of(fault.ClassCredential),
	}
}

// refusal is a problem that the CA has answered with, and page a page in place of one.
func refusal(class fault.Class, code acme.Code) *fault.Fault {
	return fault.Answered(class, code.Type(), 0, errors.New("detail"))
}

func page(text string) *fault.Fault {
	return &fault.Fault{Kind: fault.KindAfter, Exact: true, Class: fault.ClassNotFound, Unsure: true, Err: errors.New(text)}
}

// nowhere is the failure of a solver that finds no zone.
func nowhere() *fault.Fault {
	f := failure(fault.ClassSolver, "no such zone")
	f.Reason = fault.ReasonNoZone
	return f
}

// after is a failure whose answer asks for a wait.
func after(wait time.Duration, class fault.Class) *fault.Fault {
	return fault.Answered(class, "", wait, errors.New("detail"))
}

// nameOf is that of a kind of failure.
func nameOf(f *fault.Fault) string {
	switch {
	case f.Unsure:
		return string(f.Class) + " perhaps"
	case codeOf(f) == acme.CodeMalformed:
		return string(f.Class) + " as malformed"
	default:
		return string(f.Class)
	}
}

// outcomes are what may become of the step that a state asks for.
func (x trial[S, M, A]) outcomes(s S) map[string]S {
	all := map[string]S{"(no outcome)": s}
	action := x.decide(s, start.Add(time.Minute))
	step := x.step(action)
	if step == "" {
		return all
	}
	flying := s
	*x.memory(&flying) = x.started(*x.memory(&s), action)
	all[fmt.Sprintf("(%s is under way)", step)] = flying
	add := func(name string, times int, f *fault.Fault) {
		failed := s
		m := x.memory(&failed)
		for range times {
			*m = x.failed(x.started(*m, action), action, f)
		}
		all[fmt.Sprintf("%s: %s×%d", step, name, times)] = failed
	}
	for _, f := range failures() {
		add(nameOf(f), 1, f)
		add(nameOf(f), 4, f)
	}
	add("Solver, nowhere", 1, nowhere())
	for _, class := range []fault.Class{fault.ClassUnavailable, fault.ClassRateLimited} {
		add(string(class)+" with Retry-After", 1, after(10*time.Minute, class))
	}
	return all
}

// run writes or compares the golden table, and checks every decision in it.
func (x trial[S, M, A]) run(t *testing.T) {
	t.Helper()
	b := table{}
	fmt.Fprintf(&b, "What %s does in each situation, for each outcome (step: class×times in a row), in each environment.\n", x.name)
	fmt.Fprintf(&b, "Written by %s -update. Times are relative to the decision.\n", t.Name())
	for _, e := range x.environments {
		b.environments = append(b.environments, e.name)
	}
	for _, situation := range x.situations {
		fmt.Fprintf(&b, "\n== %s\n", situation.name)
		outcomes := x.outcomes(situation.state)
		for _, outcome := range sortedKeys(outcomes) {
			var actions []string
			for _, e := range x.environments {
				now := start.Add(e.after)
				s := x.in(outcomes[outcome], e)
				a := x.decide(s, now)
				x.check(t, s, a, now, func() string { return situation.name + " / " + outcome + " / " + e.name })
				actions = append(actions, x.text(a, now))
			}
			b.row(outcome, actions)
		}
		b.end()
	}
	golden.Check(t, x.file, b.String())
}

// examine checks what is decided in a state, for every outcome in all of the environments, and
// returns how many decisions that were. Outcomes four times in a row only count if asked for.
func (x trial[S, M, A]) examine(t *testing.T, s S, fourTimes bool, environments []environment, where func() string) int {
	t.Helper()
	n := 0
	for name, outcome := range x.outcomes(s) {
		if !fourTimes && strings.HasSuffix(name, "×4") {
			continue
		}
		for _, e := range environments {
			n++
			now := start.Add(e.after)
			in := x.in(outcome, e)
			x.check(t, in, x.decide(in, now), now, func() string { return where() + ", " + name + ", " + e.name })
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
