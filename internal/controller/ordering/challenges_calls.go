package ordering

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/solver"
)

// checkShards is how many lanes the self checks of a namespace have: names that
// never answer hold up few others, and nobody in another namespace.
const checkShards = 16

// call makes the call of an external step, off the worker.
func (r *challenges) call(c *acmev1.Challenge, issuer acmeIssuer, m *acmeflow.ChallengeMemory, step acmeflow.ChallengeStep) {
	*m = m.Started(step, r.Now())
	name := client.ObjectKeyFromObject(c)
	flights, lane := r.lane(c, issuer, step)
	run := func(ctx context.Context) acmeflow.ChallengeOutcome { return r.solve1(ctx, c, step) }
	if ofCA(step) {
		run = func(ctx context.Context) acmeflow.ChallengeOutcome { return askCA(ctx, c, issuer, step) }
	}
	flights.Ask(flight.Call{
		Key:    flight.Key{Object: c.UID, Call: step.String()},
		Lane:   lane,
		Run:    func(ctx context.Context) (any, error) { return run(ctx), nil },
		Landed: func() { r.Ring(name) },
	})
}

// land takes in what a call has come back with.
func (r *challenges) land(c *acmev1.Challenge, m *acmeflow.ChallengeMemory) {
	step := m.Flying
	if step == acmeflow.ChallengeWait {
		return
	}
	landed, ok := r.flightsFor(step).Ask(flight.Call{
		Key:    flight.Key{Object: c.UID, Call: step.String()},
		Run:    func(context.Context) (any, error) { return nil, errLostCall },
		Landed: func() { r.Ring(client.ObjectKeyFromObject(c)) },
	})
	if !ok {
		return
	}
	outcome, ok := landed.Value.(acmeflow.ChallengeOutcome)
	if !ok {
		outcome.Failure = lostCall(landed.Err)
	}
	outcome.Step, outcome.At, outcome.Jitter = step, r.Now(), r.acmeDeps.chance()
	if step == acmeflow.ChallengeCheck {
		outcome.Settle = r.settled.Delay(viewed(c, m), r.Now())
	}
	*m = m.After(outcome)
}

func ofCA(step acmeflow.ChallengeStep) bool {
	return step == acmeflow.ChallengeFetch || step == acmeflow.ChallengeAccept
}

func (r *challenges) flightsFor(step acmeflow.ChallengeStep) *flight.Flights {
	switch {
	case ofCA(step):
		return r.acme
	case step == acmeflow.ChallengeCheck:
		return r.check
	default:
		return r.solve
	}
}

// lane says what a call is bounded by: the account, the shard of the name, or the
// solver's configuration, which names its server and credentials.
func (r *challenges) lane(c *acmev1.Challenge, issuer acmeIssuer, step acmeflow.ChallengeStep) (*flight.Flights, string) {
	flights := r.flightsFor(step)
	switch {
	case ofCA(step) && issuer.remote != nil:
		return flights, issuer.remote.Lane()
	case ofCA(step):
		return flights, ""
	case step == acmeflow.ChallengeCheck:
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(strings.ToLower(c.Spec.DNSName)))
		return flights, fmt.Sprintf("%s/%d", c.Namespace, sum.Sum32()%checkShards)
	case c.Spec.Solver.DNS01 == nil:
		return flights, c.Namespace
	}
	config, err := json.Marshal(c.Spec.Solver.DNS01)
	if err != nil {
		return flights, c.Namespace
	}
	return flights, r.solverNamespace(c) + "/" + string(config)
}

// askCA makes a call to the CA.
func askCA(ctx context.Context, c *acmev1.Challenge, issuer acmeIssuer, step acmeflow.ChallengeStep) acmeflow.ChallengeOutcome {
	if issuer.remote == nil {
		return acmeflow.ChallengeOutcome{Failure: lostCall(errLostCall)}
	}
	return issuer.remote.Challenge(ctx, step, c.Spec)
}

// solve1 makes one call to the solver.
func (r *challenges) solve1(ctx context.Context, c *acmev1.Challenge, step acmeflow.ChallengeStep) acmeflow.ChallengeOutcome {
	s := r.acmeDeps.Solvers[c.Spec.Type]
	if s == nil {
		return acmeflow.ChallengeOutcome{Failure: &acmeflow.Failure{
			Class: acmeflow.ErrorSolver, Detail: fmt.Sprintf("this controller solves no %s challenges", c.Spec.Type),
		}}
	}
	var outcome acmeflow.ChallengeOutcome
	task := solver.Task{
		Challenge: c, ResourceNamespace: r.solverNamespace(c),
		Warn: func(message string) { outcome.Warning = message }, InZone: func(zone string) { outcome.Zone = zone },
	}
	class, call := acmeflow.ErrorSolver, s.Present
	switch step {
	case acmeflow.ChallengeCheck:
		class, call = acmeflow.ErrorNotYet, s.Check
	case acmeflow.ChallengeCleanUp:
		call = s.CleanUp
	default: // Present
	}
	err := call(ctx, task)
	if err == nil {
		return outcome
	}
	failure := &acmeflow.Failure{Class: class, Detail: err.Error()}
	if f := fault.Of(err); f != nil {
		failure.RetryAfter = f.Delay
		failure.Nowhere = f.Reason == solver.ReasonNoZone
	}
	outcome.Failure = failure
	return outcome
}

// viewed names what others may be slow to see an answer of: the zone that a solver has told of,
// else the name. It is an issuer's: other CAs look from elsewhere, and nobody learns from
// what the CA of another tenant says.
func viewed(c *acmev1.Challenge, m *acmeflow.ChallengeMemory) string {
	place := m.Zone
	if place == "" {
		place = strings.ToLower(c.Spec.DNSName)
	}
	return controller.IssuerKeyOf(c.Spec.IssuerRef, c.Namespace) + " " + string(c.Spec.Type) + " " + place
}

// learn notes what the end of a Challenge, once it is written, says about the next ones there.
func (r *challenges) learn(c *acmev1.Challenge, m *acmeflow.ChallengeMemory) {
	switch {
	case m.Belied(c.Status):
		waited := m.Settle
		if own := c.Spec.Solver.SettleTime; own != nil {
			waited = max(waited, own.Duration)
		}
		r.settled.Failed(viewed(c, m), waited, r.Now())
	case c.Status.State == acmev1.Valid && !m.Passed.IsZero():
		r.settled.Succeeded(viewed(c, m), r.Now())
	}
}
