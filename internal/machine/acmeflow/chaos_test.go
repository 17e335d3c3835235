package acmeflow

import (
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// chaos is a world without sense: until it is calm, every call is answered with anything at
// all, from any state. Then it keeps to one verdict for good. Walks that follow a CA's
// rules are in walk_test.go.
type chaos struct {
	r       *rand.Rand
	now     time.Time
	calm    time.Time
	verdict string
	history []string
}

func newChaos(seed int64, verdicts ...string) *chaos {
	r := rand.New(rand.NewSource(seed))
	return &chaos{
		r: r, now: start, calm: start.Add(time.Duration(r.Intn(48)) * time.Hour), verdict: verdicts[r.Intn(len(verdicts))],
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.Intn(len(from))] }

func (c *chaos) wild() bool { return c.now.Before(c.calm) }

// failure is any; nil in a third of the cases.
func (c *chaos) failure() *fault.Fault {
	if c.r.Intn(3) == 0 {
		return nil
	}
	f := pick(c.r, failures()...)
	f.Err = fmt.Errorf("%w of %s", f.Err, f.Class) // a class that changes alone is not written
	if c.r.Intn(4) == 0 {
		f.Reason = fault.ReasonNoZone
	}
	f.Delay = pick(c.r, 0, 0, time.Second, time.Minute, 30*time.Hour)
	return f
}

// sleep moves the clock to the next thing that is due, or to the calm, in which the last
// events happen. It reports whether there was any.
func (c *chaos) sleep(wake time.Time) bool {
	next := wake
	if c.wild() && (next.IsZero() || c.calm.Before(next)) {
		next = c.calm
	}
	if !next.After(c.now) {
		return false
	}
	c.now = next
	return true
}

func (c *chaos) say(text string) {
	c.history = append(c.history, c.now.Format(time.DateTime)+" "+text)
}

func (c *chaos) told() string {
	return c.verdict + ":\n" + strings.Join(c.history[max(0, len(c.history)-40):], "\n")
}

func (c *chaos) readiness() Readiness {
	if !c.wild() {
		return IssuerReady
	}
	return pick(c.r, IssuerReady, IssuerReady, IssuerReady, IssuerStarting, IssuerNotReady, IssuerMissing)
}

func (c *chaos) parkedUntil() time.Time {
	if c.wild() && c.r.Intn(8) == 0 {
		return c.now.Add(time.Hour)
	}
	return time.Time{}
}

// order answers an external step of an Order.
func (c *chaos) order(a OrderAction, finalized bool) OrderOutcome {
	o := OrderOutcome{Step: a.Step, At: c.now, Jitter: c.r.Float64()}
	status := acme.StatusPending
	switch {
	case c.wild():
		if o.Failure = c.failure(); o.Failure != nil {
			return o
		}
		status = pick[acme.Status](c.r, "", "pending", "ready", "processing", "valid", "invalid", "nonsense")
	case c.verdict == "forget" && a.Step != OrderCreate:
		o.Failure = failure(fault.ClassNotFound, "forgotten")
		return o
	case c.verdict == "refuse" && (a.Step == OrderCreate || a.Step == OrderFinalize):
		o.Failure = refusal(fault.ClassPermanent, acme.CodeRejectedIdentifier)
		return o
	case c.verdict == "lag" && a.Step == OrderFinalize:
		o.Failure = failure(fault.ClassNotReady, "lagging")
		return o
	case c.verdict == "stuck":
		status = "processing"
	case c.verdict == "issue" && (finalized || a.Step == OrderFinalize):
		status = "valid"
	case c.verdict == "issue":
		status = "ready"
	}
	switch a.Step {
	case OrderFetchAuthorizations:
		initial := acme.StatusPending
		if c.wild() {
			initial = pick[acme.Status](c.r, "pending", "pending", "valid", "invalid", "deactivated", "expired", "nonsense")
		}
		for _, url := range a.URLs {
			authz := remoteAuthorization(initial)
			authz.URL = url
			o.Authorizations = append(o.Authorizations, authz)
		}
	case OrderDownload:
		o.Chain = []byte("chain")
	case OrderDeactivate:
	default:
		o.Order = remoteOrder(status)
	}
	return o
}

// settle ends what is still open of an Order's Challenges.
func (c *chaos) settle(s *OrderState) bool {
	for i, owned := range s.Challenges {
		if owned.Status.State.IsFinal() {
			continue
		}
		s.Challenges[i] = owned.DeepCopy()
		s.Challenges[i].Status.State = acmev1.Valid
		if c.verdict == "fail" {
			s.Challenges[i].Status.State = pick(c.r, acmev1.Invalid, acmev1.Errored, acmev1.Expired)
		}
		return true
	}
	return false
}

// follow does what was decided about an Order, and reports whether it is done.
func (c *chaos) follow(s *OrderState, a OrderAction) (done bool) {
	if a.Status != nil {
		s.Order = s.Order.DeepCopy()
		s.Order.Status = *a.Status
		s.Memory = s.Memory.Wrote(a, c.now)
	}
	switch {
	case a.Step == OrderDone:
		return true
	case a.Step.External():
		s.Memory = s.Memory.Started(a.Step, c.now).After(c.order(a, !s.Memory.Finalized.IsZero()))
	case a.Step == OrderCreateChallenges:
		s.Challenges = append(s.Challenges, a.Challenges...)
	case a.Step == OrderDeleteChallenges:
		var kept []*acmev1.Challenge
		for _, owned := range s.Challenges {
			if !strings.Contains(" "+strings.Join(a.Delete, " ")+" ", " "+owned.Name+" ") {
				kept = append(kept, owned)
			}
		}
		s.Challenges = kept
	}
	return false
}

// TestEveryOrderEnds starts in every state there is.
func TestEveryOrderEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]int{}
	for seed := range seeds(600) {
		situations := orderSituations()
		situation := situations[int(seed)%len(situations)]
		c, s := newChaos(seed, "issue", "refuse", "forget", "stuck", "lag", "fail"), situation.state
		s.Memory.Running = OrderWait
		for step := 0; ; step++ {
			s.Issuer, s.Account.ParkedUntil = readyIssuer(), c.parkedUntil()
			s.Issuer.Readiness = c.readiness()
			if s.Account.URL = "ca/acct/1"; s.Issuer.Readiness != IssuerReady && c.r.Intn(2) == 0 || s.Issuer.Readiness == IssuerStarting {
				s.Account.URL = ""
			}
			if c.wild() && c.r.Intn(50) == 0 {
				s.Memory = OrderMemory{}
			}
			s.Memory = s.Memory.Seen(c.now)
			a := DecideOrder(s, c.now)
			checkOrderInvariants(t, s, a, c.now, c.told)
			c.say(a.text(c.now))
			if c.follow(&s, a) {
				break
			}
			if a.Step == OrderWait && a.Status == nil && !c.sleep(a.Wake) && !c.settle(&s) || step > 50_000 {
				t.Fatalf("seed %d, from %q: nothing gets it out of here\n%s", seed, situation.name, c.told())
			}
		}
		end := s.Order.Status
		if !end.State.IsFinal() || (end.State == acmev1.Valid) != (len(end.Certificate) > 0) || end.State.IsFailure() && end.Reason == "" && end.FailureTime != nil {
			t.Fatalf("seed %d, from %q: it ends as %+v\n%s", seed, situation.name, end, c.told())
		}
		ends[fmt.Sprint(end.State, " ", OrderClass(end))]++
	}
	for _, end := range []string{"valid ", "errored " + string(fault.ClassPermanent), "errored " + string(fault.ClassRefused), "expired " + string(fault.ClassValidation)} {
		if ends[end] == 0 {
			t.Errorf("no walk ended as %s: %v", end, ends)
		}
	}
}

// challenge answers an external step of a Challenge.
func (c *chaos) challenge(step ChallengeStep, accepted bool) ChallengeOutcome {
	o := ChallengeOutcome{Step: step, At: c.now, Jitter: c.r.Float64(), SettleTime: pick(c.r, 0, 5*time.Second, 2*time.Minute)}
	authz := remoteAuthorization("pending")
	o.Authorization = &authz
	switch {
	case c.wild():
		o.Failure = c.failure()
		authz.Status = pick[acme.Status](c.r, "pending", "pending", "pending", "valid", "invalid", "deactivated", "expired", "revoked", "nonsense")
		authz.Challenges[0].Status = pick[acme.Status](c.r, "pending", "processing", "valid", "invalid", "nonsense")
		authz.Challenges[0].Error = problem(pick(c.r, "", "dns: not found yet"))
		authz.RetryAfter = pick(c.r, 0, time.Second, 30*time.Hour)
	case c.verdict == "unsolvable" && (step == ChallengePresent || step == ChallengeCleanUp):
		o.Failure = failure(fault.ClassSolver, "no")
	case c.verdict == "unseen" && step == ChallengeCheck:
		o.Failure = failure(fault.ClassSelfCheck, "not yet")
	case c.verdict == "refuse" && step == ChallengeAccept:
		o.Failure = failure(fault.ClassRefused, "no")
	case c.verdict == "forget" && step == ChallengeFetch:
		o.Failure = failure(fault.ClassNotFound, "forgotten")
	case c.verdict == "stuck":
		authz.Challenges[0].Status = "processing"
	case c.verdict == "valid" && accepted:
		authz.Status = "valid"
	}
	return o
}

// obey does what was decided about a Challenge, and what the scheduler does; it reports
// whether all is done.
func (c *chaos) obey(s *ChallengeState, a ChallengeAction) (done bool) {
	if a.Status != nil {
		*s = s.with(func(ch *acmev1.Challenge) { ch.Status = *a.Status })
	}
	final := s.Challenge.Status.State.IsFinal() || s.Challenge.DeletionTimestamp != nil
	switch {
	case a.Step == ChallengeDone:
		return true
	case a.Step.External():
		s.Memory = s.Memory.Started(a.Step, c.now).After(c.challenge(a.Step, !s.Memory.Accepted.IsZero()))
	case a.Step == ChallengeAddFinalizer:
		*s = s.with(func(ch *acmev1.Challenge) { ch.Finalizers = []string{acmev1.ChallengeFinalizer} })
	case a.Step == ChallengeRemoveFinalizer:
		*s = s.with(func(ch *acmev1.Challenge) { ch.Finalizers = nil })
	case final || a.NotBefore.After(c.now):
	case !s.Challenge.Status.Processing && (!s.Challenge.Status.Presented || a.Ready):
		*s = s.with(func(ch *acmev1.Challenge) { ch.Status = StartChallenge(ch.Status) })
	case a.Yield && c.wild() && c.r.Intn(4) == 0:
		*s = s.with(func(ch *acmev1.Challenge) { ch.Status = ParkChallenge(ch.Status, a.HoldsUntil) })
	}
	return false
}

// TestEveryChallengeEnds starts in every state there is.
func TestEveryChallengeEnds(t *testing.T) {
	t.Parallel()
	for seed := range seeds(600) {
		situations := challengeSituations()
		situation := situations[int(seed)%len(situations)]
		c := newChaos(seed, "valid", "refuse", "forget", "stuck", "unseen", "unsolvable")
		s := situation.state
		for step := 0; ; step++ {
			s.Issuer.Readiness, s.Account.ParkedUntil = c.readiness(), c.parkedUntil()
			if c.wild() && c.r.Intn(50) == 0 {
				s.Memory = ChallengeMemory{}
			}
			before := s.Challenge.Status
			a := DecideChallenge(s, c.now)
			checkChallengeInvariants(t, s, a, c.now, c.told)
			c.say(a.text(c.now))
			if c.obey(&s, a) {
				break
			}
			moved := a.Step != ChallengeWait || !reflect.DeepEqual(s.Challenge.Status, before)
			wake := a.Wake
			if wake.IsZero() || a.NotBefore.After(c.now) && a.NotBefore.Before(wake) {
				wake = a.NotBefore
			}
			if !moved && !c.sleep(wake) || step > 100_000 {
				t.Fatalf("seed %d, from %q: nothing gets it out of here\n%s", seed, situation.name, c.told())
			}
		}
		if end := s.Challenge; end.Status.Processing || len(end.Finalizers) > 0 || !end.Status.State.IsFinal() && end.DeletionTimestamp == nil {
			t.Fatalf("seed %d, from %q: it ends as %+v\n%s", seed, situation.name, end.Status, c.told())
		}
	}
}
