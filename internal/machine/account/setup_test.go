package account

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
)

var where = types.NamespacedName{Namespace: "ns", Name: "account"}

// world is an issuer, its Secret and a CA, on which steps have their effect. Of a process, only SetUp's knowledge of
// the account is lost with it.
type world struct {
	s SetUp
	// ca is which key the CA goes by: 0 for none, 1 for the first, 2 for the next one.
	ca            int
	current, next int // in the Secret
	statusKey     int
	statusLast    string
	wanted        string
	steps         []Step
}

// restart is another process.
func (w *world) restart() {
	w.s = SetUp{SolverSecrets: true, Where: where, NextEntry: "tls.key.next", Stored: w.s.Stored}
	w.observe()
}

// observe reads Secret and status anew.
func (w *world) observe() {
	w.s.HasKey, w.s.NextKey = w.current > 0, w.next > 0
	w.s.Wanted, w.s.Last = w.wanted, w.statusLast
	w.s.Unchanged, w.s.SameURL = w.statusKey > 0, w.statusKey > 0 && w.s.Registered
	w.s.SameKey = w.statusKey == w.current && w.current > 0
	w.s.WasReady = w.statusKey > 0
}

// do makes a step take effect.
func (w *world) do(t *testing.T, step Step) {
	t.Helper()
	w.steps = append(w.steps, step)
	switch step {
	case StepCreateKey:
		w.current = 1
	case StepCheckSolvers:
		w.s.Answered = append(w.s.Answered, step)
	case StepAskWhichKey:
		if w.ca == w.next {
			w.s.Registered, w.s.UsesNext = true, true
		} else {
			w.s.DeniesNext = true
		}
	case StepAdopt:
		w.s.Registered, w.s.Contact = true, true
		if w.ca != w.current {
			t.Fatalf("adopted the key %d, and the CA goes by %d: %v", w.current, w.ca, w.steps)
		}
	case StepRegister:
		if w.ca != 0 && w.ca != w.current && !w.s.UsesNext {
			t.Fatalf("registered the key %d, and the CA goes by %d: %v", w.current, w.ca, w.steps)
		}
		if w.ca == 0 {
			w.ca = w.current
		}
		w.s.Registered, w.s.Contact = true, true
	case StepBind:
		w.s.Bound = true
	case StepAskKeyChange:
		w.s.Answered = append(w.s.Answered, step)
	case StepStoreNextKey:
		w.next, w.s.Stored = w.current+1, w.wanted
	case StepReplaceKey:
		if w.next == 0 {
			t.Fatalf("the CA is told of a key that is not stored: %v", w.steps)
		}
		w.ca, w.s.UsesNext = w.next, true
	case StepFinishKey:
		if w.ca != w.next {
			t.Fatalf("the key %d is dropped, and the CA goes by it: %v", w.current, w.steps)
		}
		w.current, w.next, w.s.UsesNext = w.next, 0, false
	case StepRest:
		t.Fatal("resting has no effect")
	}
	w.observe()
}

// settle walks to where nothing is left to do, or stops after so many steps. It reports whether it has come to rest.
func (w *world) settle(t *testing.T, most int) bool {
	t.Helper()
	for range most {
		a := w.s.Decide()
		if a.Step != StepRest {
			w.do(t, a.Step)
			continue
		}
		if a.Failure != nil || a.Say == nil || !a.Say.Ready || a.Say.Reason != certmanagerv1.IssuerReasonACMEAccountRegistered {
			t.Fatalf("it ends with %+v: %v", a, w.steps)
		}
		w.statusKey, w.statusLast = w.current, a.Say.Last
		return true
	}
	return false
}

// TestWalks: a new issuer, a restart, another key, and all of them again by a process that ends after each step: there
// is one account, and the Secret and the CA agree in the end.
func TestWalks(t *testing.T) {
	for crash := range 12 {
		w := &world{}
		w.restart()
		w.settle(t, crash)
		w.restart()
		if !w.settle(t, 20) || w.current != 1 || w.ca != 1 {
			t.Fatalf("crash after %d steps: the Secret has the key %d, the CA goes by %d: %v", crash, w.current, w.ca, w.steps)
		}
		w.steps = nil
		w.restart()
		if w.settle(t, 20); !slices.Equal(w.steps, []Step{StepCheckSolvers, StepAdopt, StepBind}) {
			t.Errorf("a restart takes %v", w.steps)
		}
		w.wanted, w.steps = "today", nil
		w.observe()
		w.settle(t, crash)
		w.restart()
		if !w.settle(t, 20) || w.current != 2 || w.ca != 2 || w.next != 0 || w.statusLast != "today" {
			t.Fatalf("crash after %d steps of a replacement: the Secret has %d and %d, the CA goes by %d: %v", crash, w.current, w.next, w.ca, w.steps)
		}
	}
}

// TestInvariants holds for every combination of what can be observed.
func TestInvariants(t *testing.T) {
	failures := []error{nil, errors.New("conflict"), fault.After(time.Second, "", "later"),
		fault.ClassUnavailable.After(0, "Down", "is away"), fault.ClassPermanent.After(time.Hour, "No", "refused")}
	for bits := range 1 << 12 {
		on := func(n int) bool { return bits>>n&1 == 1 }
		for _, failure := range failures {
			for failed := StepRest; failed <= StepFinishKey; failed++ {
				s := SetUp{Where: where, NextEntry: "tls.key.next", HasKey: on(0), NextKey: on(1), Registered: on(2), Contact: on(2) && on(3),
					Bound: on(4), UsesNext: on(2) && on(5), DeniesNext: on(6), Lost: on(7), Unchanged: on(8), SameKey: on(9), SameURL: on(10), Failure: failure, Failed: failed}
				if on(11) {
					s.Wanted = "today"
				}
				check(t, &s, s.Decide())
			}
		}
	}
}

func check(t *testing.T, s *SetUp, a Action) {
	t.Helper()
	bad := func(why string) { t.Fatalf("%s: %+v leads to %+v", why, *s, a) }
	switch {
	case (a.Step == StepRest) != (a.Say != nil || a.Failure != nil):
		bad("either a step or a word")
	case a.Say != nil && a.Failure != nil && (s.Failure == nil || a.Say.Again != 0):
		bad("a word about a failure that there is not, or two times")
	case a.Step >= StepAskKeyChange && !(s.Registered && s.Bound):
		bad("a key is replaced of an account that is not used")
	case (a.Step == StepReplaceKey || a.Step == StepFinishKey) && !s.NextKey:
		bad("there is no next key")
	case a.Step == StepFinishKey && !s.UsesNext:
		bad("the CA goes by the current key")
	case a.Step == StepAdopt && (!s.Unchanged || !s.SameKey || s.Lost):
		bad("a registration that may not be the issuer's")
	case (a.Step == StepAdopt || a.Step == StepRegister) && s.NextKey && !s.Registered && !s.DeniesNext && !s.UsesNext:
		bad("a key is used that the CA may not go by any more")
	case a.Say != nil && a.Say.Ready && !s.Registered && !s.WasReady:
		bad("ready without an account")
	case a.Say != nil && a.Say.Reason == certmanagerv1.IssuerReasonErrReplaceACMEAccountKey && a.Say.Again == 0 && a.Failure == nil:
		bad("it is never tried again")
	}
}

// TestWords: what is said of an issuer while its key is replaced, or cannot be.
func TestWords(t *testing.T) {
	ready := SetUp{Where: where, NextEntry: "tls.key.next", HasKey: true, Registered: true, Contact: true, Bound: true,
		Unchanged: true, SameKey: true, SameURL: true, Wanted: "today", WasReady: true}
	with := func(change func(*SetUp)) SetUp {
		s := ready
		change(&s)
		return s
	}
	for what, c := range map[string]struct {
		s    SetUp
		want string
	}{
		"an obstacle": {with(func(s *SetUp) { s.Obstacle = "the Secret is immutable" }),
			"true ErrReplaceACMEAccountKey in 30s, warns: The ACME account was registered with the ACME server; its key is not replaced: the Secret is immutable"},
		"an obstacle that was told": {with(func(s *SetUp) {
			s.Obstacle, s.WasSaid = "the Secret is immutable", registeredStill+"is not replaced: the Secret is immutable"
		}), "true ErrReplaceACMEAccountKey in 30s: The ACME account was registered with the ACME server; its key is not replaced: the Secret is immutable"},
		"not yet": {with(func(s *SetUp) {
			s.Failed, s.Failure = StepReplaceKey, fault.After(time.Second, "", "it waits for the ACME server")
		}), "true ReplacingACMEAccountKey in 1s: The ACME account was registered with the ACME server; its key is being replaced: it waits for the ACME server"},
		"not yet, after a failure": {with(func(s *SetUp) {
			s.Failed, s.Failure = StepReplaceKey, fault.After(time.Second, "", "it waits for the ACME server")
			s.WasReason, s.WasSaid = certmanagerv1.IssuerReasonErrReplaceACMEAccountKey, registeredStill+"is not replaced: refused"
			s.WasBound = true
		}), "true ErrReplaceACMEAccountKey in 1s: The ACME account was registered with the ACME server; its key is not replaced: refused"},
		"not yet, after it was not known which key": {with(func(s *SetUp) {
			s.Failed, s.Failure = StepReplaceKey, fault.After(time.Second, "", "it waits for the ACME server")
			s.WasReason, s.WasSaid = certmanagerv1.IssuerReasonErrReplaceACMEAccountKey, "Secret ns/account holds two keys"
		}), "true ReplacingACMEAccountKey in 1s: The ACME account was registered with the ACME server; its key is being replaced: it waits for the ACME server"},
		"the CA is away": {with(func(s *SetUp) {
			s.Failed, s.Failure = StepReplaceKey, fault.ClassUnavailable.After(0, "Down", "is away")
		}),
			"true ErrReplaceACMEAccountKey in 1s, warns: The ACME account was registered with the ACME server; its key is not replaced: is away; retrying with back-off"},
		"the CA refuses": {with(func(s *SetUp) {
			s.Failed, s.Failure = StepAskKeyChange, fault.ClassPermanent.After(0, "No", "has no keyChange")
		}), "true ErrReplaceACMEAccountKey in 1h0m0s, warns: The ACME account was registered with the ACME server; its key is not replaced: has no keyChange. The account keeps its key, and works. This is tried again every hour; to give up, remove the annotation chancery.dev/rotate-account-key and, if it is there, the entry \"tls.key.next\" of Secret ns/account"},
		"others have to follow": {with(func(s *SetUp) { s.NextKey, s.UsesNext, s.Follows = true, true, "it waits for Issuer b" }),
			"true ReplacingACMEAccountKey in 5s: The ACME account was registered with the ACME server; its key is being replaced: it waits for Issuer b"},
		"which key": {with(func(s *SetUp) {
			s.NextKey, s.Registered, s.Failed, s.Failure = true, false, StepAskWhichKey, fault.ClassUnavailable.After(0, "Down", "is away")
		}), "true ErrReplaceACMEAccountKey in 1s: Secret ns/account holds two keys of the account, and the ACME server has not said which one it goes by: is away; retrying with back-off"},
	} {
		a := c.s.Decide()
		say := a.Say
		if say == nil {
			t.Errorf("%s: it says nothing", what)
			continue
		}
		wait := say.Again
		if f := fault.Of(a.Failure); f != nil {
			wait = fault.Calls.With(f.Class).Wait(f.Delay, 1, 0.5)
		}
		got := fmt.Sprintf("%t %s in %s", say.Ready, say.Reason, wait)
		if say.Warn {
			got += ", warns"
		}
		if got += ": " + say.Message; got != c.want {
			t.Errorf("%s: %s\nwant %s", what, got, c.want)
		}
	}
	if got := StepFinishKey.String(); got != "finish account key" {
		t.Error(got)
	}
}
