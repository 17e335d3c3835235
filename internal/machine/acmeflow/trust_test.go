package acmeflow

import (
	"strings"
	"testing"

	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// TestGHSA_8rvj_mm4h_c258: a Challenge that somebody else than the controller has made is not solved, whichever of its
// fields is not what the Order and the issuer have.
func TestGHSA_8rvj_mm4h_c258(t *testing.T) {
	t.Parallel()
	genuine := newOrderState().stored(acmev1.Pending, "pending").owning("")
	wildcard := true
	for name, c := range map[string]struct {
		forge func(*OrderState, *acmev1.Challenge)
		want  string
	}{
		"genuine": {func(*OrderState, *acmev1.Challenge) {}, ""},
		"genuine, fields filled in": {func(_ *OrderState, c *acmev1.Challenge) {
			c.Spec.IssuerRef.Kind, c.Spec.IssuerRef.Group = "Issuer", "cert-manager.io"
		}, ""},
		"genuine, issuer missing": {func(s *OrderState, _ *acmev1.Challenge) { s.Issuer = Issuer{Readiness: IssuerMissing} }, ""},
		"no Order":                {func(s *OrderState, _ *acmev1.Challenge) { s.Order = nil }, "No Order controls"},
		"nothing listed":          {func(s *OrderState, _ *acmev1.Challenge) { s.Order.Status.Authorizations = nil }, "does not list"},
		"another authorization":   {func(_ *OrderState, c *acmev1.Challenge) { c.Spec.AuthorizationURL = "ca/authz/2" }, "does not list"},
		"another address":         {func(_ *OrderState, c *acmev1.Challenge) { c.Spec.URL = "https://elsewhere.example.net" }, "does not list"},
		"another token":           {func(_ *OrderState, c *acmev1.Challenge) { c.Spec.Token = "other" }, "does not list"},
		"another type":            {func(_ *OrderState, c *acmev1.Challenge) { c.Spec.Type = acmev1.ChallengeTypeHTTP01 }, "does not list"},
		"another name":            {func(_ *OrderState, c *acmev1.Challenge) { c.Spec.DNSName = "bank.example.com" }, "does not list"},
		"a wildcard":              {func(_ *OrderState, c *acmev1.Challenge) { c.Spec.Wildcard = true }, "does not list"},
		"no wildcard":             {func(s *OrderState, _ *acmev1.Challenge) { s.Order.Status.Authorizations[0].Wildcard = &wildcard }, "does not list"},
		"another issuer":          {func(_ *OrderState, c *acmev1.Challenge) { c.Spec.IssuerRef.Kind = "ClusterIssuer" }, "for another issuer"},
		"a server of their own":   {func(_ *OrderState, c *acmev1.Challenge) { c.Spec.Solver.DNS01.AcmeDNS.Host = "elsewhere.example.net" }, "does not give this solver"},
		"the solver was changed":  {func(s *OrderState, _ *acmev1.Challenge) { s.Issuer.Solvers[0].DNS01.AcmeDNS.Host = "new.example.net" }, "does not give this solver"},
		"the solver is gone":      {func(s *OrderState, _ *acmev1.Challenge) { s.Issuer.Solvers = nil }, "does not give this solver"},
		"another kind goes first": {func(s *OrderState, _ *acmev1.Challenge) {
			s.Issuer.Solvers = append([]acmev1.ACMEChallengeSolver{http01()}, s.Issuer.Solvers...)
		}, "does not give this solver"},
		"a check that is left out": {func(_ *OrderState, c *acmev1.Challenge) {
			c.Spec.Solver.SelfCheckDeadline = &acmev1.SelfCheckDeadline{Then: acmev1.SelfCheckDeadlineAccept}
		}, "does not give this solver"},
		"changed, issuer is missing": {func(s *OrderState, c *acmev1.Challenge) {
			s.Issuer, c.Spec.Token = Issuer{Readiness: IssuerMissing}, "other"
		}, "does not list"},
	} {
		s := genuine
		s.Order, s.Issuer.Solvers = s.Order.DeepCopy(), []acmev1.ACMEChallengeSolver{dns01()}
		challenge := s.Challenges[0].DeepCopy()
		c.forge(&s, challenge)
		if got := Untrusted(s.Order, s.Issuer, challenge); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestVouchesForOverrides: a Challenge is compared with what the Order's annotations make of the solver, as the API
// server stores it.
func TestVouchesForOverrides(t *testing.T) {
	t.Parallel()
	group, kind := gwapiv1.Group(gwapiv1.GroupName), gwapiv1.Kind("Gateway")
	for name, c := range map[string]struct {
		solver      acmev1.ACMEChallengeSolver
		annotations map[string]string
		stored      func(*acmev1.HTTP01Solver)
	}{
		"class": {http01(), map[string]string{acmev1.OverrideIngressClassNameAnnotation: "inner"}, func(*acmev1.HTTP01Solver) {}},
		"parent": {
			acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{}}},
			map[string]string{acmev1.ParentRefNameAnnotation: "public", acmev1.ParentRefKindAnnotation: "Gateway"},
			func(s *acmev1.HTTP01Solver) {
				s.GatewayHTTPRoute.ParentRefs[0].Group, s.GatewayHTTPRoute.ParentRefs[0].Kind = &group, &kind
			},
		},
	} {
		s := newOrderState().stored(acmev1.Pending, "pending")
		s.Order.Annotations, s.Issuer.Solvers = c.annotations, []acmev1.ACMEChallengeSolver{c.solver}
		made := s.owning("").Challenges[0]
		c.stored(made.Spec.Solver.HTTP01)
		if why := Untrusted(s.Order, s.Issuer, made); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		s.Order.Annotations = nil
		if Untrusted(s.Order, s.Issuer, made) == "" {
			t.Errorf("%s: it is vouched for without the annotations too", name)
		}
	}
}

// TestDisowned: a Challenge that nobody vouches for ends as errored; what it may have presented is cleaned up, and
// nothing is called for one that was never started.
func TestDisowned(t *testing.T) {
	t.Parallel()
	ends := func(s ChallengeState, then ChallengeStep) {
		t.Helper()
		s.Untrusted = "No Order controls it"
		a := DecideChallenge(s, start)
		if a.Status == nil || a.Status.State != acmev1.Errored || a.Status.Processing || a.Step != ChallengeWait || a.Status.Reason != s.Untrusted {
			t.Fatalf("it does not end: %s", a.text(start))
		}
		s = s.with(func(c *acmev1.Challenge) { c.Status = *a.Status })
		equal(t, DecideChallenge(s, start).Step, then)
		equal(t, DecideChallenge(s.deleted(), start).Step, then)
	}
	queued := newChallengeState()
	ends(queued, ChallengeRemoveFinalizer)
	ends(queued.processing(), ChallengeCleanUp)
	ends(queued.processing().read("pending", "pending").presented(), ChallengeCleanUp)
	ends(queued.presented(), ChallengeCleanUp)
	ends(queued.bare(), ChallengeDone)
	presenting := queued.processing().read(acme.StatusPending, acme.StatusPending)
	presenting.Memory = presenting.Memory.Started(ChallengePresent, start)
	ends(presenting, ChallengeWait) // for what is under way
}

// TestErroredIsCleanedUp: what a process may have presented before it died is cleaned up, too, where a verdict of the
// CA ends the Challenge, its Order goes, and the next process dies.
func TestErroredIsCleanedUp(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]ChallengeState{
		"no longer offered": newChallengeState().processing().read(acme.StatusPending, "").with(func(c *acmev1.Challenge) { c.Spec.URL += "/another" }),
		"deactivated":       newChallengeState().processing().read(acme.StatusDeactivated, acme.StatusPending),
		"expired":           newChallengeState().processing().read(acme.StatusExpired, acme.StatusPending),
	} {
		a := DecideChallenge(s, start)
		if a.Status == nil || !a.Status.State.IsFailure() {
			t.Fatalf("%s: %s", name, a.text(start))
		}
		s = s.with(func(c *acmev1.Challenge) { c.Status = *a.Status })
		s.Memory, s.Untrusted = ChallengeMemory{}, "No Order controls it"
		equal(t, DecideChallenge(s, start).Step, ChallengeCleanUp)
		equal(t, DecideChallenge(s.deleted(), start).Step, ChallengeCleanUp)
	}
}

// TestNeverStartedIsNotCleanedUp: the solver of a Challenge that ended before it was started is not called, also if
// somebody puts the finalizer back, which takes no right to write its status.
func TestNeverStartedIsNotCleanedUp(t *testing.T) {
	t.Parallel()
	s := newChallengeState()
	s.Untrusted = "No Order controls it"
	s = s.with(func(c *acmev1.Challenge) { c.Status = *DecideChallenge(s, start).Status }).bare()
	s = s.with(func(c *acmev1.Challenge) { c.Finalizers = []string{acmev1.ChallengeFinalizer} })
	for _, untrusted := range []string{s.Untrusted, ""} {
		s.Untrusted = untrusted
		equal(t, DecideChallenge(s, start).Step, ChallengeRemoveFinalizer)
		equal(t, DecideChallenge(s.deleted(), start).Step, ChallengeRemoveFinalizer)
	}
}

// TestGuessOfPresented: where a Challenge that ends as errored may have been presented, a clean-up is sent. It is the
// last if it finds no zone, no Present of this process has changed anything, and nothing is known to be presented. A
// record that is known to have been presented is looked for as long as that of any other Challenge.
func TestGuessOfPresented(t *testing.T) {
	t.Parallel()
	noZone := failure(fault.ClassConfiguration, "no zone")
	noZone.Reason = fault.ReasonNoZone
	unavailable := failure(fault.ClassUnavailable, "no answer")
	after := func(s ChallengeState, f *fault.Fault) ChallengeState {
		s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengePresent, At: start, Failure: f})
		return s
	}
	started := newChallengeState().processing()
	tried := after(started.read(acme.StatusPending, acme.StatusPending), noZone)
	presenting := tried
	presenting.Memory = presenting.Memory.Started(ChallengePresent, start)
	takenOver := tried.with(func(c *acmev1.Challenge) { c.Status.Presented = true }) // cert-manager writes no presentedAt
	for name, c := range map[string]struct {
		s    ChallengeState
		then func(ChallengeState) ChallengeState // once errored is written; nil: nothing happens
		last bool
	}{
		"no zone was found":                       {s: tried, last: true},
		"no zone was found, and the process dies": {s: tried, then: dies, last: true},
		"a Present is under way, and dies":        {s: presenting, then: dies, last: true},
		"a Present finds no zone":                 {s: presenting, then: func(s ChallengeState) ChallengeState { return after(s, noZone) }, last: true},
		"a Present comes back":                    {s: presenting, then: func(s ChallengeState) ChallengeState { return after(s, nil) }},
		"a Present may have changed something":    {s: after(presenting, unavailable)},
		"it was presented":                        {s: tried.presented()},
		"it was presented, and the process dies":  {s: tried.presented(), then: dies},
		"cert-manager has presented it":           {s: takenOver},
		"another process died while it presented": {s: started, last: true},
	} {
		for _, untrusted := range []string{"No Order controls it", ""} {
			s := c.s
			if s.Untrusted = untrusted; untrusted == "" {
				s.Memory.Authorization = &acme.Authorization{Status: acme.StatusDeactivated}
			}
			s = s.with(func(ch *acmev1.Challenge) { ch.Status = *DecideChallenge(s, start).Status })
			if c.then != nil {
				s = c.then(s)
			}
			s = s.deleted()
			if a := DecideChallenge(s, start); a.Step != ChallengeCleanUp {
				t.Errorf("%s: no clean-up is sent: %s", name, a.text(start))
			}
			s.Memory = s.Memory.Started(ChallengeCleanUp, start).After(ChallengeOutcome{Step: ChallengeCleanUp, At: start, Failure: noZone})
			if a := DecideChallenge(s, start); (a.Step == ChallengeRemoveFinalizer) != c.last || c.last && a.Event == nil || !c.last && a.Wake.IsZero() {
				t.Errorf("%s: after a clean-up that found no zone: %s", name, a.text(start))
			}
		}
	}
}

// dies is a Challenge at the next process.
func dies(s ChallengeState) ChallengeState {
	s.Memory = ChallengeMemory{}
	return s
}
