package acmeflow_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/rig/flows"
	"chancery.dev/internal/rig/slow"
)

// walk is an executor that follows the contract of the package, an API server, a
// scheduler, solvers and a CA, all in one process with a clock that is stepped.
// What goes wrong is drawn from a seed.
type walk struct {
	t   *testing.T
	r   *rand.Rand
	now time.Time
	// trouble is the chance of a fault per call, death that of losing all memory per
	// step; both end at calm.
	trouble, death float64
	calm           time.Time

	// solver is the issuer's, if it is not the usual one; settle is what the self check's outcomes say.
	solver acmev1.ACMEChallengeSolver
	settle time.Duration
	// wrong is the issuer's solver until corrected; broken says which of its calls fail, and which act.
	wrong     acmev1.ACMEChallengeSolver
	corrected time.Time
	broken    func(step challenge.Step, since time.Duration) (fails, acts bool)
	// blind lets no self check pass.
	blind bool
	// refuses says whether the API server refuses a status of the Order; nil takes all.
	refuses func(acmev1.OrderStatus) bool
	// heir says that a process has died: who goes on has not made the Order. lost counts orders at the CA whose
	// address died with the process.
	heir bool
	lost int

	// shown is when the issuer's solver last presented.
	shown time.Time

	order      *acmev1.Order
	challenges map[string]*acmev1.Challenge
	memory     order.Memory
	memories   map[string]challenge.Memory
	wakes      []time.Time

	// the CA
	orders         int
	orderStatus    acme.Status
	expires        time.Time
	authorizations map[string]*acme.Authorization
	verdict        acme.Status
	// presented counts what solvers show, by Challenge
	presented map[string]bool
	visibleAt map[string]time.Time

	writes  []string
	history []string
}

func newWalk(t *testing.T, seed int64, names ...string) *walk {
	t.Helper()
	w := &walk{
		t: t, r: rand.New(rand.NewSource(seed)), now: start, order: flows.NewOrder(),
		challenges: map[string]*acmev1.Challenge{}, memories: map[string]challenge.Memory{},
		authorizations: map[string]*acme.Authorization{}, presented: map[string]bool{},
		visibleAt: map[string]time.Time{}, verdict: "valid",
	}
	w.order.Spec.DNSNames = names
	w.solver = flows.ReadyIssuer().Solvers[0]
	return w
}

// run decides until nothing is left to do, or time has run far beyond the CA's expiry.
func (w *walk) run() {
	for range 20_000 {
		acted := w.stepOrder()
		for _, name := range flows.SortedKeys(w.challenges) {
			acted = w.stepChallenge(name) || acted
		}
		if w.r.Float64() < w.death && w.now.Before(w.calm) {
			w.die()
			acted = true
		}
		if acted {
			continue
		}
		next := w.nextWake()
		if next.IsZero() {
			return
		}
		w.now = next
	}
	w.t.Fatalf("the walk does not end:\n%s", strings.Join(w.history[max(0, len(w.history)-40):], "\n"))
}

// die lets another process go on.
func (w *walk) die() {
	if w.memory.Remote != nil && w.order.Status.URL == "" {
		w.lost++
	}
	w.memory, w.memories, w.heir = order.Memory{}, map[string]challenge.Memory{}, true
	w.history = append(w.history, "the process dies")
}

// told is all that has happened.
func (w *walk) told() string { return strings.Join(w.history, "\n") }

// nextWake is the earliest wake-up after now.
func (w *walk) nextWake() time.Time {
	var next time.Time
	for _, at := range w.wakes {
		if at.After(w.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	w.wakes = slices.DeleteFunc(w.wakes, func(at time.Time) bool { return !at.After(w.now) })
	return next
}

func (w *walk) wake(at time.Time) {
	if at.IsZero() {
		return
	}
	if !at.After(w.now) {
		w.t.Fatalf("a wake-up in the past:\n%s", strings.Join(w.history, "\n"))
	}
	w.wakes = append(w.wakes, at)
}

// fault draws what goes wrong with a call. A third of the lost answers are lost
// after the CA has acted.
func (w *walk) fault(classes ...fault.Class) (f *fault.Fault, acted bool) {
	if w.now.After(w.calm) || w.r.Float64() >= w.trouble {
		return nil, true
	}
	class := classes[w.r.Intn(len(classes))]
	f = acmeflow.NewFault(class, "fault of "+string(class)) // a class that changes alone is not written
	if w.r.Intn(3) == 0 {
		f.Delay = time.Duration(w.r.Intn(100)) * time.Second
	}
	return f, f.Class == fault.ClassUnavailable && w.r.Intn(3) == 0
}

func (w *walk) stepOrder() bool {
	var owned []*acmev1.Challenge
	for _, name := range flows.SortedKeys(w.challenges) {
		owned = append(owned, w.challenges[name])
	}
	s := flows.NewOrderState()
	w.memory = w.memory.Seen(w.now)
	s.Order, s.Challenges, s.Memory, s.Made = w.order, owned, w.memory, !w.heir
	s.Issuer.Solvers = w.solvers()
	a := s.Decide(w.now)
	flows.CheckOrder(w.t, s, a, w.now, w.told)
	if a.Status != nil && w.refuses != nil && w.refuses(*a.Status) {
		w.memory = w.memory.Writing()
		w.history = append(w.history, w.now.Format(time.TimeOnly)+" refused: "+flows.Text(a, w.now))
		w.wake(w.now.Add(time.Second))
		return false
	}
	if a.Status != nil {
		w.order = w.order.DeepCopy()
		w.order.Status = *a.Status
		w.memory = w.memory.Writing().Wrote(a, w.now)
		w.writes = append(w.writes, "order "+string(a.Status.State))
	}
	w.wake(a.Wake)
	if a.Status != nil || a.Step != order.Wait && a.Step != order.Done {
		w.history = append(w.history, fmt.Sprintf("%s order: %s", w.now.Format(time.TimeOnly), flows.Text(a, w.now)))
	}
	switch a.Step {
	case order.Wait, order.Done:
		return a.Status != nil
	case order.CreateChallenges:
		for _, c := range a.Challenges {
			if w.challenges[c.Name] == nil {
				w.challenges[c.Name] = c
			}
		}
	case order.DeleteChallenges:
		for _, name := range a.Delete {
			at := metav1.NewTime(w.now)
			w.challenges[name] = w.challenges[name].DeepCopy()
			w.challenges[name].DeletionTimestamp = &at
		}
	default:
		o := w.callForOrder(a)
		o.Step, o.At, o.Jitter = a.Step, w.now, w.r.Float64()
		w.memory = w.memory.Started(a.Step, w.now).After(o)
	}
	return true
}

func (w *walk) callForOrder(a order.Action) order.Outcome {
	classes := []fault.Class{fault.ClassUnavailable, fault.ClassRateLimited, fault.ClassNotProcessed}
	f, acted := w.fault(classes...)
	if acted {
		switch a.Step {
		case order.Create:
			w.orders++
			w.orderStatus, w.expires = "pending", w.now.Add(24*time.Hour)
			w.authorizations = map[string]*acme.Authorization{}
			for _, id := range a.NewOrder.Identifiers {
				url := fmt.Sprintf("ca/%d/%s", w.orders, id.Value)
				authz := flows.RemoteAuthorization("pending")
				authz.URL, authz.Identifier, authz.Wildcard = url, acme.DNS(strings.TrimPrefix(id.Value, "*.")), strings.HasPrefix(id.Value, "*.")
				authz.Challenges[0].URL, authz.Expires = url+"/dns", w.expires
				w.authorizations[url] = &authz
			}
		case order.Finalize:
			if f == nil && w.status() != "ready" {
				return order.Outcome{Failure: acmeflow.NewFault(fault.ClassNotReady, "not ready")}
			}
			if w.status() == "ready" {
				w.orderStatus = "processing"
			}
		case order.Fetch:
			if w.orderStatus == "processing" && w.r.Intn(2) == 0 {
				w.orderStatus = "valid"
			}
		case order.Deactivate:
			for _, url := range a.URLs {
				w.authorizations[url].Status = "deactivated"
			}
		default: // reading changes nothing
		}
	}
	if f != nil {
		return order.Outcome{Failure: f}
	}
	return w.answer(a)
}

func (w *walk) answer(a order.Action) order.Outcome {
	switch a.Step {
	case order.FetchAuthorizations:
		var read []acme.Authorization
		for _, url := range a.URLs {
			read = append(read, *w.authorizations[url])
		}
		return order.Outcome{Authorizations: read}
	case order.Download:
		return order.Outcome{Chain: []byte("chain")}
	case order.Deactivate:
		return order.Outcome{}
	default: // the others are answered with the order
	}
	prefix := fmt.Sprintf("ca/%d/", w.orders)
	o := &acme.Order{URL: prefix, Finalize: prefix + "finalize", Status: w.status(), Expires: w.expires}
	o.Authorizations = flows.SortedKeys(w.authorizations)
	if o.Status == "valid" {
		o.Certificate = prefix + "certificate"
	}
	return order.Outcome{Order: o}
}

// status is the CA's view of the order.
func (w *walk) status() acme.Status {
	if w.orderStatus != "pending" {
		return w.orderStatus
	}
	if w.now.After(w.expires) {
		return "invalid"
	}
	for _, a := range w.authorizations {
		switch a.Status {
		case "pending":
			return "pending"
		case "valid":
		default:
			return "invalid"
		}
	}
	return "ready"
}

func (w *walk) stepChallenge(name string) bool {
	c := w.challenges[name]
	s := flows.NewChallengeState()
	s.Challenge, s.Memory, s.Issuer.Solvers, s.Replaced = c, w.memories[name], w.solvers(), w.successor(c) != nil
	s.Untrusted = acmeflow.Untrusted(w.order, s.Issuer, c)
	a := s.Decide(w.now)
	flows.CheckChallenge(w.t, s, a, w.now, w.told)
	status := a.Status
	// The scheduler: it starts what may start, and parks at random what yields. What the CA validates it lets be: others
	// would end that (TestRule3_ANameIsHeldWhileTheCAValidates).
	if status == nil && a.Step == challenge.Wait && !a.NotBefore.After(w.now) && !c.Status.State.IsFinal() && c.DeletionTimestamp == nil {
		mayStart := !c.Status.Processing && (!c.Status.Presented || a.Ready) && !w.busy(c)
		if mayStart {
			started := challenge.Start(c.Status)
			status = &started
		}
	}
	if status == nil && a.Yield && a.HoldsUntil.IsZero() && a.Step == challenge.Wait && w.r.Intn(4) == 0 {
		parked := challenge.Park(c.Status, time.Time{})
		status = &parked
	}
	if !a.NotBefore.IsZero() && a.NotBefore.After(w.now) {
		w.wake(a.NotBefore)
	}
	w.wake(a.Wake)
	if status != nil {
		w.challenges[name] = c.DeepCopy()
		w.challenges[name].Status = *status
		w.writes = append(w.writes, fmt.Sprintf("challenge %s processing=%t presented=%t", status.State, status.Processing, status.Presented))
	}
	if status != nil || a.Step != challenge.Wait && a.Step != challenge.Done {
		w.history = append(w.history, fmt.Sprintf("%s %s: %s", w.now.Format(time.TimeOnly), name, flows.Text(a, w.now)))
	}
	return w.doChallenge(name, a) || status != nil
}

// solvers are the issuer's.
func (w *walk) solvers() []acmev1.ACMEChallengeSolver {
	if w.now.Before(w.corrected) {
		return []acmev1.ACMEChallengeSolver{w.wrong}
	}
	return []acmev1.ACMEChallengeSolver{w.solver}
}

// successor is another Challenge that answers for the authorization of one that is being deleted; nil if there is none.
func (w *walk) successor(c *acmev1.Challenge) *acmev1.Challenge {
	for _, other := range w.challenges {
		if c.DeletionTimestamp != nil && other.Spec.AuthorizationURL == c.Spec.AuthorizationURL && other.DeletionTimestamp == nil && !other.Status.State.IsFinal() {
			return other
		}
	}
	return nil
}

// busy reports whether another Challenge for the same name is processing (mission rule 3).
func (w *walk) busy(c *acmev1.Challenge) bool {
	for _, other := range w.challenges {
		if other.Name != c.Name && other.Spec.DNSName == c.Spec.DNSName && other.Status.Processing {
			return true
		}
	}
	return false
}

func (w *walk) doChallenge(name string, a challenge.Action) bool {
	c := w.challenges[name]
	switch a.Step {
	case challenge.Wait:
		return false
	case challenge.Done:
		if c.DeletionTimestamp == nil {
			return false
		}
		delete(w.challenges, name)
		delete(w.memories, name)
		return true
	case challenge.AddFinalizer:
		w.challenges[name] = c.DeepCopy()
		w.challenges[name].Finalizers = []string{acmev1.ChallengeFinalizer}
		return true
	case challenge.RemoveFinalizer:
		w.challenges[name] = c.DeepCopy()
		w.challenges[name].Finalizers = nil
		return true
	default:
		o := w.callForChallenge(c, a.Step)
		o.Step, o.At, o.Jitter = a.Step, w.now, w.r.Float64()
		w.memories[name] = w.memories[name].Started(a.Step, w.now).After(o)
		return true
	}
}

func (w *walk) callForChallenge(c *acmev1.Challenge, step challenge.Step) challenge.Outcome {
	authz := w.authorizations[c.Spec.AuthorizationURL]
	classes := []fault.Class{fault.ClassUnavailable, fault.ClassRateLimited, fault.ClassNotProcessed}
	if step == challenge.Present || step == challenge.CleanUp || step == challenge.Check {
		classes = []fault.Class{fault.ClassSolver}
	}
	f, acted := w.fault(classes...)
	if w.broken != nil && acmeflow.SameSolver(c.Spec.Solver, w.wrong) {
		fails, acts := w.broken(step, w.now.Sub(w.corrected))
		if acted = acts; fails {
			f = acmeflow.NewFault(fault.ClassSolver, "the server of the wrong solver does not answer")
		}
	}
	if step == challenge.CleanUp && w.successor(c) != nil && w.presented[c.Spec.AuthorizationURL] {
		w.t.Fatalf("%s takes away what %s shows\n%s", c.Name, w.successor(c).Name, w.told())
	}
	if acted || (f != nil && w.broken == nil && w.r.Intn(3) == 0) {
		switch step {
		case challenge.Present:
			w.shown = w.now
			if !w.presented[c.Spec.AuthorizationURL] {
				w.visibleAt[c.Spec.AuthorizationURL] = w.now.Add(time.Duration(w.r.Intn(20_000)) * time.Millisecond)
			}
			w.presented[c.Spec.AuthorizationURL] = true
		case challenge.CleanUp:
			delete(w.presented, c.Spec.AuthorizationURL)
		case challenge.Accept:
			if authz != nil && authz.Status == "pending" {
				authz.Challenges[0].Status = "processing"
			}
		case challenge.Check:
			visible := !w.blind && w.presented[c.Spec.AuthorizationURL] && !w.now.Before(w.visibleAt[c.Spec.AuthorizationURL])
			if f == nil && !visible {
				f = acmeflow.NewFault(fault.ClassSelfCheck, "not yet")
			}
		default: // reading is answered below
		}
	}
	if f != nil || step != challenge.Fetch {
		return challenge.Outcome{Failure: f, SettleTime: w.settle}
	}
	if authz == nil {
		return challenge.Outcome{Failure: acmeflow.NewFault(fault.ClassNotFound, "no such authorization")}
	}
	if authz.Status == "pending" && w.now.After(w.expires) {
		authz.Status = "expired"
	}
	if authz.Challenges[0].Status == "processing" && w.r.Intn(2) == 0 {
		authz.Status, authz.Challenges[0].Status = w.verdict, w.verdict
	}
	seen := *authz
	seen.Challenges = slices.Clone(authz.Challenges)
	return challenge.Outcome{Authorization: &seen}
}

func TestBudgetOfOneNameByDNS01(t *testing.T) {
	w := newWalk(t, 1, "a.example.com")
	w.visibleAt["ca/1/a.example.com"] = start
	w.run()
	orders, challenges := 0, 0
	for _, write := range w.writes {
		if strings.HasPrefix(write, "order") {
			orders++
		} else {
			challenges++
		}
	}
	// A record that takes more than two checks to be seen costs one more write of each, to say so.
	waited := strings.Count(strings.Join(w.history, "\n"), `reason="Waiting for DNS-01 challenge propagation`)
	equal(t, orders, 2+min(waited, 1))
	equal(t, challenges-waited, 3)
	equal(t, w.order.Status.State, acmev1.Valid)
}

// TestEveryWalkEnds lets the CA, the solvers and the process misbehave at random
// for six hours: every issuance succeeds all the same, and leaves nothing behind.
func TestEveryWalkEnds(t *testing.T) {
	for seed := range flows.Seeds(slow.Runs(slow.Faults), 150) {
		w := newWalk(t, seed, "a.example.com", "*.a.example.com", "b.example.com")
		w.trouble, w.death, w.calm = 0.4, 0.02, start.Add(6*time.Hour)
		w.run()
		if w.order.Status.State != acmev1.Valid || len(w.order.Status.Certificate) == 0 {
			t.Fatalf("seed %d: the order is %q: %s\n%s", seed, w.order.Status.State, w.order.Status.Reason, strings.Join(w.history, "\n"))
		}
		if len(w.challenges) > 0 || len(w.presented) > 0 {
			t.Fatalf("seed %d: left behind: %v %v\n%s", seed, flows.SortedKeys(w.challenges), w.presented, strings.Join(w.history, "\n"))
		}
	}
}

// TestWalksWithPatience: nothing that waits for other viewpoints, or not for its own, keeps a
// walk from its end. A self check that never passes ends as the solver says.
func TestWalksWithPatience(t *testing.T) {
	for seed := range int64(30) {
		w := newWalk(t, seed, "a.example.com", "b.example.com")
		w.trouble, w.death, w.calm = 0.4, 0.02, start.Add(6*time.Hour)
		w.settle = time.Duration(3*seed) * time.Second
		w.solver.SettleTime = &metav1.Duration{Duration: time.Duration(seed%4) * 20 * time.Second}
		then := []acmev1.SelfCheckDeadlineAction{acmev1.SelfCheckDeadlineAccept, acmev1.SelfCheckDeadlineFail}[seed%2]
		w.solver.SelfCheckDeadline = &acmev1.SelfCheckDeadline{After: metav1.Duration{Duration: 90 * time.Minute}, Then: then}
		blind := seed%3 == 0
		w.blind = blind
		w.run()
		said := strings.Contains(w.told(), "The self check has failed for 1h30m0s")
		switch end := w.order.Status; {
		case blind && then == acmev1.SelfCheckDeadlineFail:
			if end.State != acmev1.Errored || order.Class(end) != fault.ClassValidation || !strings.Contains(end.Reason, "The self check has failed for 1h30m0s: ") {
				t.Fatalf("seed %d: it ends as %+v (%s)\n%s", seed, end, order.Class(end), w.told())
			}
		case end.State != acmev1.Valid || blind && !said:
			t.Fatalf("seed %d: it ends as %+v, blind %t\n%s", seed, end, blind, w.told())
		}
		if len(w.presented) > 0 {
			t.Fatalf("seed %d: left behind: %v\n%s", seed, w.presented, w.told())
		}
	}
}

// TestEveryFailureEnds is the same with a CA that finds the names invalid.
func TestEveryFailureEnds(t *testing.T) {
	for seed := range flows.Seeds(slow.Runs(slow.Faults), 75) {
		w := newWalk(t, seed, "a.example.com", "b.example.com")
		w.trouble, w.death, w.calm, w.verdict = 0.4, 0.02, start.Add(6*time.Hour), "invalid"
		w.run()
		if !w.order.Status.State.IsFailure() || w.order.Status.Reason == "" || w.order.Status.FailureTime == nil {
			t.Fatalf("seed %d: the order is %q: %q", seed, w.order.Status.State, w.order.Status.Reason)
		}
		if len(w.presented) > 0 {
			t.Fatalf("seed %d: left behind: %v\n%s", seed, w.presented, strings.Join(w.history, "\n"))
		}
		for name, c := range w.challenges {
			if c.Status.Processing || len(c.Finalizers) > 0 || !c.Status.State.IsFinal() {
				t.Fatalf("seed %d: %s is stuck: %+v\n%s", seed, name, c.Status, strings.Join(w.history, "\n"))
			}
		}
	}
}
