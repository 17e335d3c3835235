package order_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/account"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/rig/flows"
)

func TestRule1_AnOrderManagesOneChallengePerName(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending")
	second := order.StoredAuthorization(flows.RemoteAuthorization("pending"))
	second.URL, second.Identifier = "ca/authz/2", "b.example.com"
	reused := order.StoredAuthorization(flows.RemoteAuthorization("valid"))
	reused.URL, reused.Identifier = "ca/authz/3", "c.example.com"
	s.Order.Status.Authorizations = append(s.Order.Status.Authorizations, second, reused)
	a := s.Decide(start)
	equal(t, a.Step, order.CreateChallenges)
	equal(t, a.Status.Authorizations[0].Solver, a.Challenges[0].Annotations[order.SolverChoiceAnnotation]) // the Order says why
	equal(t, len(a.Challenges), 2)
	for i, name := range []string{"a.example.com", "b.example.com"} {
		c := a.Challenges[i]
		equal(t, c.Spec.DNSName, name)
		equal(t, c.Namespace, "shop")
		equal(t, c.Finalizers, []string{acmev1.ChallengeFinalizer})
		equal(t, metav1.IsControlledBy(c, s.Order), true)
	}
}

func TestATerminalChallengeSettlesItsOrder(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending")
	other := order.StoredAuthorization(flows.RemoteAuthorization("pending"))
	other.URL, other.Identifier = "ca/authz/2", "b.example.com"
	s.Order.Status.Authorizations = append(s.Order.Status.Authorizations, other)
	s = s.Owning(acmev1.Invalid)
	a := s.Decide(start)
	equal(t, a.Status.State, acmev1.Invalid)
	equal(t, a.Status.FailureTime.Time, start)
	equal(t, a.Step, order.Deactivate)
	equal(t, a.URLs, []string{"ca/authz/2"})
	if !strings.Contains(a.Status.Reason, `"a.example.com"`) || !strings.Contains(a.Status.Reason, "because") {
		t.Errorf("the reason does not say why: %s", a.Status.Reason)
	}
}

func TestNoSolverIsSaidOnceAndClearsWhenTheIssuerChanges(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending")
	s.Issuer.Solvers = nil
	a := s.Decide(start)
	equal(t, a.Event.Reason, acmev1.OrderReasonSolver)
	s.Order.Status = *a.Status
	again := s.Decide(start)
	equal(t, again.Status == nil, true)
	equal(t, again.Event == nil, true)
	s.Issuer = flows.ReadyIssuer()
	a = s.Decide(start)
	equal(t, a.Step, order.CreateChallenges)
	equal(t, a.Status.Reason, "")
}

// TestNoSolversAreEnoughOnceTheCAAsksForNoProof: no watch tells that the CA asks for no proof any more. The Order finds
// out by itself, long before the CA gives the order up.
func TestNoSolversAreEnoughOnceTheCAAsksForNoProof(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Saw(acme.StatusPending)
	s.Issuer.Solvers, s.Settings.OrderRefresh = nil, time.Hour
	s.Memory.Remote.Expires = start.Add(7 * 24 * time.Hour)
	equal(t, s.Decide(start).Wake, s.Memory.RemoteAt.Add(time.Hour))
	a := s.Decide(s.Memory.RemoteAt.Add(time.Hour))
	equal(t, a.Step, order.Fetch)
	s = s.Saw(acme.StatusReady)
	equal(t, s.Decide(start.Add(time.Hour)).Step, order.Finalize)
}

// TestReplacesIsDroppedWhenTheCARefusesIt: CAs do not agree about the problem that says
// so, so the first refusal of any kind is taken for one, and the second ends the order.
func TestReplacesIsDroppedWhenTheCARefusesIt(t *testing.T) {
	for _, class := range []fault.Class{fault.ClassRefused, fault.ClassPermanent, fault.ClassNotFound} {
		s := flows.NewOrderState()
		s.Order.Spec.Replaces = "aki.serial"
		equal(t, s.Decide(start).NewOrder.Replaces, "aki.serial")
		refused := order.Outcome{Step: order.Create, At: start, Failure: acmeflow.NewFault(class, "no")}
		s.Memory = s.Memory.After(refused)
		a := s.Decide(start)
		equal(t, a.Step, order.Create)
		equal(t, a.NewOrder.Replaces, "")
		unavailable := order.Outcome{Step: order.Create, At: start, Failure: acmeflow.NewFault(fault.ClassUnavailable, "")}
		s.Memory = s.Memory.After(unavailable)
		equal(t, s.Decide(start).Step, order.Wait)
		s.Memory = s.Memory.After(refused)
		a = s.Decide(start)
		equal(t, a.Status.State, acmev1.Errored)
		equal(t, a.Status.Reason, "Failed to create Order: no")
	}
}

// TestReplacesIsDoubtedWhenTheCAStumbles: Pebble answers with a fault of its own where it does not
// know the certificate. That does not hold an Order up for ever, nor cost it the field for good.
func TestReplacesIsDoubtedWhenTheCAStumbles(t *testing.T) {
	s := flows.NewOrderState()
	s.Order.Spec.Replaces = "aki.serial"
	now := start
	for i, want := range []string{"aki.serial", "aki.serial", "", "aki.serial", "aki.serial", ""} {
		a := s.Decide(now)
		equal(t, a.Step, order.Create)
		if a.NewOrder.Replaces != want {
			t.Errorf("attempt %d replaces %q, want %q", i+1, a.NewOrder.Replaces, want)
		}
		s.Memory = s.Memory.After(order.Outcome{Step: order.Create, At: now, Failure: acmeflow.NewFault(fault.ClassUnavailable, "oops")})
		a = s.Decide(now)
		equal(t, a.Step, order.Wait)
		now = a.Wake
	}
}

// TestWhatAFailedOrderLeavesPendingIsDeactivated although the process died with the
// failure written, and only once.
func TestWhatAFailedOrderLeavesPendingIsDeactivated(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Owning(acmev1.Errored)
	s.Memory = s.Memory.Started(order.Fetch, start)
	a := s.Decide(start)
	equal(t, a.Step, order.Wait) // a call is under way
	s.Order.Status = *a.Status
	s.Memory = order.Memory{}
	for _, s.Issuer.Readiness = range []acmeflow.Readiness{acmeflow.IssuerStarting, acmeflow.IssuerNotReady} {
		s.Account.URL = "" // there is no account at hand; no event tells a failed Order of one
		waiting := s.Decide(start)
		equal(t, []any{waiting.Step, waiting.Wake}, []any{order.Wait, start.Add(order.StartingPause)})
	}
	s.Issuer, s.Account.URL = flows.ReadyIssuer(), "ca/acct/1"
	for try := range 4 {
		now := start.Add(time.Duration(try) * time.Minute)
		a = s.Decide(now)
		equal(t, a.URLs, []string{"ca/authz/1"})
		o := order.Outcome{Step: a.Step, At: now, Failure: acmeflow.NewFault(fault.ClassUnavailable, "")}
		if s.Memory = s.Memory.After(o); s.Memory.Deactivated {
			equal(t, try, order.MaxDeactivations-1)
			break
		}
	}
	equal(t, s.Decide(start.Add(5*time.Minute)).Step, order.Wait)
	equal(t, s.Decide(start.Add(order.DeactivationWindow)).Step, order.Done)
	s.Memory = order.Memory{}
	equal(t, s.Decide(start.Add(order.DeactivationWindow)).Step, order.Done)
}

// TestAFinalizeWithoutEffectIsNotRepeatedAtOnce: a CA that says yes and goes on showing the
// order as ready is asked a few times, with pauses, and then given up.
func TestAFinalizeWithoutEffectIsNotRepeatedAtOnce(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Owning(acmev1.Valid)
	now, finalized := start, 0
	var a order.Action
	for a = s.Decide(now); a.Status == nil; a = s.Decide(now) {
		switch a.Step {
		case order.Wait:
			now = a.Wake
		case order.Finalize:
			finalized++
			fallthrough
		default:
			s.Memory = s.Memory.After(order.Outcome{Step: a.Step, At: now, Order: flows.RemoteOrder("ready")})
		}
	}
	equal(t, finalized, order.MaxRefused)
	equal(t, now.Sub(start), 15*time.Second) // 1, 2, 4 and 8 s between them
	equal(t, a.Status.State, acmev1.Errored)
	equal(t, order.Class(*a.Status), fault.ClassRefused)
}

func TestAnOrderIsNotProcessedForEver(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Saw("processing")
	s.Memory.RemoteAt = s.Memory.Remote.Expires.Add(acmeflow.ExpiryGrace + time.Second)
	a := s.Decide(s.Memory.RemoteAt)
	equal(t, a.Status.State, acmev1.Errored)
	equal(t, order.Class(*a.Status), fault.ClassUnavailable)
}

func TestALostFinalizeIsResolvedByLooking(t *testing.T) {
	for _, class := range []fault.Class{fault.ClassNotReady, fault.ClassUnavailable} {
		s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Owning(acmev1.Valid)
		s.Memory = s.Memory.After(order.Outcome{Step: order.Finalize, At: start, Failure: acmeflow.NewFault(class, "lost")})
		now := start.Add(time.Minute)
		equal(t, s.Decide(now).Step, order.Fetch)
		s.Memory = s.Memory.After(order.Outcome{Step: order.Fetch, At: now, Order: flows.RemoteOrder("valid")})
		a := s.Decide(now)
		equal(t, a.Step, order.Download)
		s.Memory = s.Memory.After(order.Outcome{Step: order.Download, At: now, Chain: []byte("chain")})
		a = s.Decide(now)
		equal(t, string(a.Status.Certificate), "chain")
		equal(t, a.Event.Message, "Order completed successfully")
	}
}

// TestAnIncompleteAnswerIsNotAskedForAtOnce: a CA that leaves out what RFC 8555 §7.1.3 and
// §7.1.4 ask for is given time, and people are told.
func TestAnIncompleteAnswerIsNotAskedForAtOnce(t *testing.T) {
	const patience = 100
	bare := func(step order.Step) (asked int, said string) {
		s, now := flows.NewOrderState(), start
		for range patience {
			a := s.Decide(now)
			if a.Status != nil {
				s.Order = s.Order.DeepCopy()
				s.Order.Status, said = *a.Status, a.Status.Reason
			}
			if a.Step == order.Wait {
				now = a.Wake
				continue
			}
			o := order.Outcome{Step: a.Step, At: now, Order: flows.RemoteOrder("pending")}
			if a.Step == step {
				asked++
			}
			if step == order.Fetch {
				o.Order.Finalize = ""
			}
			o.Authorizations = []acme.Authorization{{URL: "ca/authz/1", Status: "pending"}}
			s.Memory = s.Memory.After(o)
		}
		return asked, said
	}
	for _, step := range []order.Step{order.Fetch, order.FetchAuthorizations} {
		asked, said := bare(step)
		equal(t, asked <= patience/2+1, true)
		equal(t, strings.Contains(said, "sent an"), true)
	}
}

// TestManyAuthorizationsAreReadInParts: one call has to be over before its time runs out,
// however slow the CA is.
func TestManyAuthorizationsAreReadInParts(t *testing.T) {
	s := flows.NewOrderState()
	remote := flows.RemoteOrder("pending")
	remote.Authorizations = nil
	s.Order = s.Order.DeepCopy()
	for i := range 100 {
		s.Order.Spec.DNSNames = append(s.Order.Spec.DNSNames, fmt.Sprintf("%d.example.com", i))
		remote.Authorizations = append(remote.Authorizations, fmt.Sprint("ca/authz/", i))
	}
	s.Memory = s.Memory.After(order.Outcome{Step: order.Create, At: start, Order: remote})
	for range 100/order.AuthorizationsAtOnce + 1 {
		a := s.Decide(start)
		if a.Step != order.FetchAuthorizations {
			break
		}
		equal(t, len(a.URLs) <= order.AuthorizationsAtOnce, true)
		o := order.Outcome{Step: a.Step, At: start}
		for _, url := range a.URLs {
			authz := flows.RemoteAuthorization("pending")
			authz.URL = url
			o.Authorizations = append(o.Authorizations, authz)
		}
		s.Memory = s.Memory.After(o)
	}
	equal(t, s.Decide(start).Step, order.CreateChallenges)
}

// TestAnOrderEndsWhoseAuthorizationsNoOrderHolds: a hostile CA lists more authorizations than an order of one
// name can have, or longer ones than a status can hold. The Order ends and says why, and nothing of them is
// kept.
func TestAnOrderEndsWhoseAuthorizationsNoOrderHolds(t *testing.T) {
	many := flows.RemoteOrder("pending")
	many.Authorizations = make([]string, 20)
	long := flows.RemoteAuthorization("pending")
	for range 20 {
		long.Challenges = append(long.Challenges, acme.Challenge{Type: "x", Token: strings.Repeat("x", 64<<10)})
	}
	for name, outcomes := range map[string][]order.Outcome{
		"more than": {{Step: order.Create, At: start, Order: many}},
		"too long": {
			{Step: order.Create, At: start, Order: flows.RemoteOrder("pending")},
			{Step: order.FetchAuthorizations, At: start, Authorizations: []acme.Authorization{long}},
		},
	} {
		s := flows.NewOrderState()
		for _, o := range outcomes {
			s.Memory = s.Memory.After(o)
		}
		a := s.Decide(start)
		if a.Status == nil || a.Status.State != acmev1.Errored || !strings.Contains(a.Status.Reason, name) ||
			order.SizeOf(s.Memory.Authorizations) != 0 || len(a.URLs) > 1 {
			t.Fatalf("%s: %+v", name, a)
		}
	}
}

// TestUnsentIsNoAttempt: an order that was not sent, because its answer is known, waits for as long as that says, and
// the first that the CA refuses by itself is the first.
func TestUnsentIsNoAttempt(t *testing.T) {
	t.Parallel()
	m := order.Memory{}
	for range 5 {
		m = m.After(order.Outcome{Step: order.Create, At: start, Failure: unsent(time.Hour)})
		if wait := acmeflow.Backoff(m.Failure, m.Failures, m.Jitter); wait != time.Hour {
			t.Errorf("it waits %s", wait)
		}
	}
	if said := acmeflow.Retrying(m.Failure, start); said != "retrying at "+acmeflow.Instant(start) {
		t.Errorf("it says %q", said)
	}
	if one, other := acmeflow.Retrying(unsent(time.Minute), start), acmeflow.Retrying(unsent(time.Minute), start.Add(time.Minute)); one != other {
		t.Errorf("it says %q, and then %q: a write each time", one, other)
	}
	m = m.After(order.Outcome{Step: order.Create, At: start, Failure: acmeflow.NewFault(fault.ClassRateLimited, "too many")})
	if wait := acmeflow.Backoff(m.Failure, m.Failures, m.Jitter); m.Failures != 1 || wait > time.Minute {
		t.Errorf("after %d failures it waits %s", m.Failures, wait)
	}
}

// TestAnEmptyChainIsAFailure: a download without a certificate is tried again, with a back-off.
func TestAnEmptyChainIsAFailure(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Valid, "valid").Saw("valid")
	s.Memory = s.Memory.After(order.Outcome{Step: order.Download, At: start})
	a := s.Decide(start)
	equal(t, a.Step, order.Wait)
	equal(t, a.Status.Reason, "Failed to download certificate: the ACME server sent an empty chain; retrying with back-off")
	equal(t, a.Wake.After(start), true)
}

// unsent is that of an order which was not sent.
func unsent(wait time.Duration) *fault.Fault {
	f := flows.After(wait, fault.ClassRateLimited)
	f.Unsent = true
	return f
}

// TestNewOrderSaysWhoAsks: the share of a namespace holds for its Orders, and certificates that were issued before have
// one of their own.
func TestNewOrderSaysWhoAsks(t *testing.T) {
	t.Parallel()
	for revision, reissue := range map[string]bool{"": false, "1": false, "2": true, "17": true} {
		o := &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
		if revision != "" {
			o.Annotations = map[string]string{certmanagerv1.CertificateRevisionAnnotation: revision}
		}
		share := account.Share{Orders: 50, Window: 3 * time.Hour}
		n := order.Decide(order.State{Order: o, Made: true, Issuer: acmeflow.Issuer{Share: share}}, start).NewOrder
		if n.Namespace != "shop" || n.Share != share || n.Reissue != reissue {
			t.Errorf("revision %q: %+v", revision, n)
		}
	}
}

func TestNamesOfSteps(t *testing.T) {
	for s := order.Wait; s <= order.Done; s++ {
		if name := s.String(); name == "" || name[len(name)-1] == ')' {
			t.Errorf("step %d is called %q", int(s), name)
		}
	}
}
