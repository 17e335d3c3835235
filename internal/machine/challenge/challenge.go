package challenge

import (
	"slices"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
)

// Step is the one thing that a Challenge needs now. The order is that of a validation.
type Step int

const (
	// Wait: nothing to do before Action.Wake or an event.
	Wait Step = iota
	// AddFinalizer: add the finalizer acmev1.ChallengeFinalizer and remove the legacy one. Local.
	AddFinalizer
	// Fetch: POST-as-GET of spec.authorizationURL. External. Outcome: Authorization.
	Fetch
	// Present: Solver.Present. External. Outcome: nothing but a Failure, if any: of the class
	// that the solver says, or fault.ClassSolver.
	Present
	// Check: Solver.Check. External. Outcome: nothing but a Failure, if any:
	// fault.ClassSelfCheck; a timeout is one too.
	Check
	// Accept: POST {} to spec.url. External. Outcome: nothing but a Failure, if any.
	Accept
	// CleanUp: Solver.CleanUp. External. Outcome: nothing but a Failure, if any, as of Present.
	CleanUp
	// RemoveFinalizer: remove our finalizers, both names. Local.
	RemoveFinalizer
	// Done: nothing will ever be needed again; Memory may be dropped.
	Done
)

// String returns the name of the step.
func (s Step) String() string {
	return [...]string{
		"Wait", "AddFinalizer", "Fetch", "Present", "Check", "Accept", "CleanUp", "RemoveFinalizer", "Done",
	}[s]
}

// External reports whether the step leaves the cluster and has an outcome.
func (s Step) External() bool {
	return slices.Contains([]Step{Fetch, Present, Check, Accept, CleanUp}, s)
}

// State is all that decides about a Challenge.
type State struct {
	// Challenge is the object, own writes included. It is not changed.
	Challenge *acmev1.Challenge
	// Issuer is the one that the Challenge names.
	Issuer acmeflow.Issuer
	// Account is the issuer's.
	Account acmeflow.AccountState
	// Untrusted says why the Challenge must not be solved (acmeflow.Untrusted); empty if it may be.
	Untrusted string
	// Replaced is set while another Challenge answers for the same authorization: it shows the same value, and clean-up
	// would take that away.
	Replaced bool
	// NamespaceTerminating is set while the Challenge's namespace is being deleted.
	NamespaceTerminating bool
	// Memory is what this process has learned from outcomes.
	Memory Memory
	// Settings are the configurable times.
	Settings acmeflow.Settings
}

// Action is what to do for a Challenge.
type Action struct {
	// Status is to be written first, as a whole; nil if it has not changed.
	Status *acmev1.ChallengeStatus
	// Step is to be done then.
	Step Step
	// Event is to be emitted; may be nil.
	Event *acmeflow.Event
	// Wake is when to decide again at the latest; zero if only an event helps.
	Wake time.Time

	// Yield, Ready, NotBefore and HoldsUntil go to the scheduler after every decision (schedule.Challenge): whether
	// others may have the slot; whether a parked challenge is first in line; when a start makes sense at the earliest;
	// until when no other challenge may start for the name, because the CA may be validating.
	Yield, Ready bool
	NotBefore    time.Time
	HoldsUntil   time.Time
}

// Outcome is what an external step came back with.
type Outcome struct {
	// Step is the one that came back, and At is when.
	Step Step
	At   time.Time
	// Jitter in [0,1) spreads retries.
	Jitter float64
	// Failure is nil if the step succeeded.
	Failure *fault.Fault
	// Authorization is the answer to Fetch.
	Authorization *acme.Authorization
	// Warning is of trouble to come, for people, from a Check that passed; mostly empty.
	Warning string
	// Zone is where a Present has put the answer; empty if the solver does not say.
	Zone string
	// Untouched says that a Present has failed before it could change anything.
	Untouched bool
	// SettleTime is how long to wait after a Check that passed, because others have seen
	// answers of the zone later than the self check (internal/machine/propagation); mostly 0.
	SettleTime time.Duration
}

// Memory is what a process has learned from outcomes. The zero value knows nothing.
type Memory struct {
	// Self checks are not counted here, but by Checks.
	acmeflow.Attempts[Step]

	// Authorization is what the CA last showed at FetchedAt; nil if never.
	Authorization *acme.Authorization
	FetchedAt     time.Time
	// Presented is when Present last succeeded, and PresentTried when it last ended; zero if never.
	Presented, PresentTried time.Time
	// Touched is set once a Present has come back that may have changed something.
	Touched bool
	// Checks counts failed self checks in a row, CheckedAt is when the last came back, and NotYet is what it said.
	Checks    int
	CheckedAt time.Time
	NotYet    string
	// Passed is when the self check passed; zero if it has not.
	Passed time.Time
	// Warning is what that self check warned of; mostly empty. SettleTime is that of its outcome.
	Warning    string
	SettleTime time.Duration
	// Zone is what the last Present said; empty if none did.
	Zone string
	// Told is when a call that tells the CA to validate was first sent, whatever came back, or when the CA was first
	// seen validating; zero if the CA cannot be validating.
	Told time.Time
	// Accepted is when the CA was told to validate; zero if it was not.
	Accepted time.Time
	// Unaccepted counts accepts in a row whose answer was lost.
	Unaccepted int
	// Polls counts looks at the authorization since Accepted.
	Polls int
	// Refusal is a permanent refusal of Accept; what it means is seen in the authorization.
	Refusal *fault.Fault
	// CleanedUp is set once CleanUp has succeeded.
	CleanedUp bool
	// CleanUpSince is when the first CleanUp was started; zero if none was.
	CleanUpSince time.Time
}

// Started returns the memory with step under way.
func (m Memory) Started(step Step, now time.Time) Memory {
	m.Running, m.Since = step, now
	if step == CleanUp && m.CleanUpSince.IsZero() {
		m.CleanUpSince = now
	}
	if step == Accept && m.Told.IsZero() {
		m.Told = now
	}
	return m
}

// After returns the memory with what the outcome tells.
func (m Memory) After(o Outcome) Memory {
	m.Finished()
	switch o.Step {
	case Check:
		return m.checked(o)
	case Present:
		m.PresentTried = o.At
		// Who refuses a credential has changed nothing, so that nothing is to be cleaned up with it.
		nothing := o.Failure != nil && (o.Untouched || o.Failure.Reason == fault.ReasonNoZone || o.Failure.Class == fault.ClassCredential)
		m.Touched = m.Touched || !nothing
		if o.Zone != "" {
			m.Zone = o.Zone
		}
	case Fetch:
		if o.Failure == nil && o.Authorization == nil {
			o.Failure = acmeflow.NewFault(fault.ClassUnavailable, "the ACME server sent no authorization")
		}
	default: // of the other steps, only the failure or the success is remembered, below
	}
	if o.Failure = m.Certain(o.Step, o.Failure); o.Failure != nil {
		return m.afterFailure(o)
	}
	m.Attempts = acmeflow.Attempts[Step]{}
	switch o.Step {
	case Fetch:
		m.Authorization, m.FetchedAt = o.Authorization, o.At
		m.Polls++
		m = m.sawWhetherItValidates()
	case Present:
		m.Presented = o.At
	case Accept:
		m.Accepted, m.Polls, m.Refusal, m.Unaccepted = o.At, 0, nil, 0
		m.Authorization = nil
		if m.Told.IsZero() {
			m.Told = o.At
		}
	case CleanUp:
		m.CleanedUp = true
	default: // a check is counted by checked; local steps have no outcome
	}
	return m
}

// sawWhetherItValidates takes in from the authorization whether the CA validates, where it is not known to have been
// told to.
func (m Memory) sawWhetherItValidates() Memory {
	begun := slices.ContainsFunc(m.Authorization.Challenges, func(c acme.Challenge) bool {
		return c.Status == acme.StatusProcessing || c.Status == acme.StatusValid
	})
	switch {
	case begun && m.Told.IsZero():
		m.Told = m.FetchedAt
	case !begun && m.Accepted.IsZero():
		m.Told = time.Time{}
	}
	return m
}

// CredentialChanged returns the memory after a change of what the solver works with, such as the Secret of its
// credential: a failed call need not wait any longer.
func (m Memory) CredentialChanged() Memory {
	if m.Failed == Present || m.Failed == CleanUp {
		m.FailedAt, m.Failures = time.Time{}, 0
	}
	return m
}

func (m Memory) checked(o Outcome) Memory {
	m.CheckedAt = o.At
	if o.Failure == nil {
		m.Passed, m.Checks, m.NotYet, m.Warning, m.SettleTime = o.At, 0, "", o.Warning, o.SettleTime
		return m
	}
	m.Checks++
	m.NotYet = o.Failure.Error()
	return m
}

func (m Memory) afterFailure(o Outcome) Memory {
	if o.Step == Accept && !o.Failure.MayPass() {
		// The CA refuses what it has already begun, too: the authorization tells.
		m.Refusal, m.Authorization = o.Failure, nil
		return m
	}
	if o.Step == Accept {
		// The CA may have acted although its answer was lost.
		m.Authorization = nil
		if c := o.Failure.Class; m.Accepted.IsZero() && m.Unaccepted == 0 && (c == fault.ClassRateLimited || c == fault.ClassNotProcessed) {
			m.Told = time.Time{} // it has answered that it has not
		}
		m.Unaccepted++
	}
	m.Fail(o.Step, o.Failure, o.At, o.Jitter)
	return m
}
