package orders

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/fnv"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/solver"
)

// checkShards is how many lanes the self checks of a namespace have: names that
// never answer hold up few others, and nobody in another namespace.
const checkShards = 16

// call is the call of an external step. missed says that self checks have not found the answer.
func (r *challenges) call(c *acmev1.Challenge, account *accounts.Account, step challenge.Step, missed bool) engine.Call {
	call := engine.Call{Name: step.String(), Urgency: begun}
	if ofCA(step) {
		call.Run = func(ctx context.Context) (any, error) { return account.Challenge(ctx, step, c.Spec) }
		return callBy(account, call)
	}
	call.Lane = r.laneOfSolver(c, step)
	call.Run = func(ctx context.Context) (any, error) {
		if step == challenge.CleanUp && r.replaced(ctx, c) { // meanwhile, while the call waited for its turn
			return challenge.Outcome{}, fault.ClassSolver.After(0, "", "another Challenge shows the same value")
		}
		return r.callSolver(ctx, c, step, missed)
	}
	return call
}

// takeOutcome takes in what a call has come back with.
func (r *challenges) takeOutcome(ctx context.Context, p *challengePass) {
	m := p.Memory
	takeOutcome(p.TakeOutcome, m.Running, m.Finished, func(o challenge.Outcome, failure *fault.Fault) {
		o.Step, o.At, o.Jitter, o.Failure = m.Running, r.Now(), p.Chance(), failure
		if o.Step == challenge.Check {
			r.scheduler.locked(ctx, func() { o.SettleTime = r.scheduler.settleTimes.Delay(propagationKey(p.Object, m), r.Now()) })
		}
		*m = m.After(o)
	})
}

func ofCA(step challenge.Step) bool {
	return step == challenge.Fetch || step == challenge.Accept
}

// laneOfSolver bounds self checks by the shard of the name, and other calls by the solver's configuration, which names
// its server and credentials.
func (r *challenges) laneOfSolver(c *acmev1.Challenge, step challenge.Step) engine.Lane {
	lane := engine.Lane{Name: "solver of " + c.Namespace, Limit: solverCalls, Timeout: solverTimeout}
	if step == challenge.Check {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(pki.DNSNameKey(c.Spec.DNSName)))
		lane.Name = fmt.Sprintf("self check of %s/%d", c.Namespace, sum.Sum32()%checkShards)
		return lane
	}
	if config, err := json.Marshal(c.Spec.Solver.DNS01); err == nil && c.Spec.Solver.DNS01 != nil {
		// A digest, since the engine keeps the name as long as it has calls of the lane, and a configuration may be
		// large.
		lane.Name = fmt.Sprintf("solver of %s, %x", r.solverNamespace(c), sha256.Sum256(config))
	}
	return lane
}

// callSolver makes one call to the solver. Its error is a fault.
func (r *challenges) callSolver(ctx context.Context, c *acmev1.Challenge, step challenge.Step, missed bool) (outcome challenge.Outcome, err error) {
	s := r.Solvers[c.Spec.Type]
	if s == nil {
		return outcome, fault.ClassSolver.After(0, "", "this controller solves no %s challenges", c.Spec.Type)
	}
	task := solver.Task{
		// A copy: the cache keeps equal solvers once, and a solver makes routes of the Challenge's parts.
		Challenge: c.DeepCopy(), ResourceNamespace: r.solverNamespace(c), Missed: missed,
		Warn: func(message string) { outcome.Warning = message }, InZone: func(zone string) { outcome.Zone = zone },
	}
	class, call := fault.ClassSolver, s.Present
	switch step {
	case challenge.Check:
		class, call = fault.ClassSelfCheck, s.Check
	case challenge.CleanUp:
		call = s.CleanUp
	default: // Present
	}
	if err = call(ctx, task); err == nil {
		return outcome, nil
	}
	// What is written in the DNS is written in a zone: without one, nothing was.
	outcome.Untouched = step == challenge.Present && acmeflow.WritesRecord(c.Spec.Type) && outcome.Zone == ""
	failure := fault.Fault{Class: class, Exact: true}
	if f := fault.Of(err); f != nil {
		failure = *f
		if f.Class == "" || step == challenge.Check {
			failure.Class = class
		}
	}
	// Whatever the solver says, it is called again: only a change of what it works with is no event.
	failure.Kind, failure.Err = fault.KindAfter, err
	return outcome, &failure
}

// propagationKey names the place whose answers others may see late: the zone that a solver has named, else the name.
// The issuer is a part of the key: other CAs look from elsewhere, and nobody learns from what the CA of another tenant
// says.
func propagationKey(c *acmev1.Challenge, m *challenge.Memory) string {
	place := m.Zone
	if place == "" {
		place = pki.DNSNameKey(c.Spec.DNSName)
	}
	return controller.IssuerKeyOf(c.Spec.IssuerRef, c.Namespace) + " " + string(c.Spec.Type) + " " + place
}

// learn notes what the end of a Challenge, once it is written, says about the next ones there.
func (r *challenges) learn(ctx context.Context, c *acmev1.Challenge, m *challenge.Memory) {
	switch times := &r.scheduler.settleTimes; {
	case m.ContradictsSelfCheck(c):
		waited := m.SettleTime
		if own := c.Spec.Solver.SettleTime; own != nil {
			waited = max(waited, own.Duration)
		}
		r.scheduler.locked(ctx, func() { times.Failed(propagationKey(c, m), waited, r.Now()) })
	case c.Status.State == acmev1.Valid && !m.Passed.IsZero():
		r.scheduler.locked(ctx, func() { times.Succeeded(propagationKey(c, m), r.Now()) })
	}
}
