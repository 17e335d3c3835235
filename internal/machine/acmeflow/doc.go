// Package acmeflow has what decides about Orders and about Challenges alike, and the contract of the executor of both.
//
// internal/machine/order decides the next step of an Order, and internal/machine/challenge that of a Challenge. The
// three packages are pure: they call nobody, write nothing, and read no clock. They follow RFC 8555 and spec §5.3 to
// §5.7, and keep mission rules 1 to 6, except for the scheduling of rule 3: internal/machine/schedule does that.
// internal/acme/client speaks with the CA, internal/solver solves challenges, and internal/controller takes the decided
// steps.
//
// # The executor's contract
//
// The executor keeps a Memory for each Order and each Challenge, by UID. A new process starts with the zero value:
// nothing that matters is only in memory. On every event, and at Action.Wake, the executor observes a State, calls
// Decide, and MUST do in this order:
//
//  1. Write Action.Status to the status subresource if it is not nil. It is the
//     complete status. If the write fails, stop here and reconcile again. For an
//     Order, call Memory.Writing before the write, and Memory.Wrote once it is done.
//  2. Do Action.Step. A step that leaves the cluster runs outside of the worker: invoke
//     Memory.Started(step, now), start the step, and return. When the step has ended,
//     invoke Memory.After(outcome) and reconcile again. Every such step MUST end with
//     an outcome (a timeout is a fault.ClassUnavailable). A step that only writes to the
//     API server is done by the worker itself; when the write has succeeded, reconcile on
//     its watch event. A failed write is an error of the reconcile, not an outcome.
//  3. Emit Action.Event if it is not nil, once the write of 1 and a step that only writes
//     have succeeded.
//  4. Reconcile at Action.Wake if it is not zero. With a zero Wake only an event
//     helps: an outcome, or a change of the object, its Challenges, its issuer, its
//     namespace, or the park of its account (see below).
//
// A state MUST include the executor's own writes. If the cache is older than the last write, the executor decides on
// the written object, or waits until the cache is current. Decide is idempotent: the same state gives the same
// decision.
//
// An outcome carries Step (the step that has come back), At, Jitter in [0,1) (drawn once for that outcome), and either
// Failure or the fields that the comment of the step names. acme.ClassOf finds the class of an ACME problem.
//
// The executor of ACME calls also parks the account: during the park, the executor sends no calls for this account, and
// a call that was to be sent comes back as fault.ClassNotProcessed. A park begins on fault.ClassUnavailable with a
// RetryAfter, and on fault.ClassRateLimited unless the limit is a limit of orders. The park lasts until At+RetryAfter,
// but no longer than fault.Parks allows. When the park begins, the executor wakes the objects of the account. When the
// park ends, each object's own Wake wakes the object.
//
// # Failures
//
// A failure that may pass is retried in the Order and its Challenges, with a back-off by class (Backoff), as long as
// the CA keeps the order. status.failureClass has the class of the failure that makes the Challenge or Order wait, or
// that has ended the Challenge or Order. status.reason says the same in words.
package acmeflow

import (
	"cmp"
	"fmt"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/machine/account"
)

// Readiness is whether an issuer can be used. The order is that of trouble.
type Readiness int

const (
	// IssuerReady: the issuer is ready and its ACME client is at hand.
	IssuerReady Readiness = iota
	// IssuerStarting: the issuer is ready, but this process has no client for it yet. An
	// event follows soon; nothing is written.
	IssuerStarting
	// IssuerNotReady: its Ready condition is not True.
	IssuerNotReady
	// IssuerMissing: it does not exist, or is not an ACME issuer.
	IssuerMissing
)

// Issuer is what is observed of the issuer that an object names.
type Issuer struct {
	// Readiness says whether the issuer can be used.
	Readiness Readiness
	// Message says why it is not ready; shown to people.
	Message string
	// Solvers are spec.acme.solvers.
	Solvers []acmev1.ACMEChallengeSolver
	// PreferredChain is spec.acme.preferredChain.
	PreferredChain string
	// Share is how many orders each namespace may make.
	Share account.Share
}

// Blocks says why the issuer cannot be used; the reason is empty if nothing is to be written.
func (i Issuer) Blocks(name string) (string, bool) {
	switch i.Readiness {
	case IssuerReady:
		return "", false
	case IssuerStarting:
		return "", true
	case IssuerNotReady:
		return fmt.Sprintf("Waiting for issuer %q to become ready: %s", name, cmp.Or(i.Message, "its Ready condition is not True")), true
	default:
		return fmt.Sprintf("Waiting for issuer %q to exist: %s", name, cmp.Or(i.Message, "no ACME issuer of that name was found")), true
	}
}

// AccountState is what is known of the issuer's ACME account.
type AccountState struct {
	// Thumbprint is that of the account key (RFC 8555 §8.1), base64url.
	Thumbprint string
	// URL is the account's (RFC 8555 §7.3); empty until it is registered and this process knows the URL. Without the
	// URL no call to the CA can be made. With IssuerReady it is never empty.
	URL string
	// ParkedUntil is when the CA wants to hear from the account again; zero or past for now.
	ParkedUntil time.Time
	// ParkedReason is what the CA said; shown to people.
	ParkedReason string
	// Changing says that the account's key is about to be replaced: until it is, the CA is not
	// told to validate what answers with the old one.
	Changing bool
}

// WhyParked is the reason of an object that waits until the CA wants to hear from the account again.
func (a AccountState) WhyParked() string {
	return fmt.Sprintf("The ACME server asked to be left alone until %s: %s",
		a.ParkedUntil.UTC().Format(time.RFC3339), cmp.Or(a.ParkedReason, "rate limited"))
}

// Settings are the configurable times.
type Settings struct {
	// CheckPeriod is how long a self check that keeps failing waits between tries (--dns01-check-retry-period).
	CheckPeriod time.Duration
	// CleanUpLimit is how long clean-up is tried before the finalizer is dropped.
	CleanUpLimit time.Duration
	// ReplaceAfter is how long the Challenge of another solver waits for the clean-up of the one that it replaces.
	ReplaceAfter time.Duration
	// YieldAfter is how long a challenge may wait for one thing before others may have its slot.
	YieldAfter time.Duration
	// RepresentAfter is how long a self check fails before the answer is presented
	// again, in case somebody took it away.
	RepresentAfter time.Duration
	// OrderRefresh is how long an Order waits until the next look at the CA, if the CA has named no expiry.
	OrderRefresh time.Duration
	// Hosts are those that Challenges of namespaced Issuers may be for, by type of challenge. A type that is
	// missing is not limited.
	Hosts map[acmev1.ACMEChallengeType][]HostRule
}

// DefaultSettings are those of the spec where it has them (spec §5.6, §5.7), and ours.
func DefaultSettings() Settings {
	return Settings{
		CheckPeriod:    10 * time.Second,
		CleanUpLimit:   10 * time.Minute,
		ReplaceAfter:   10 * time.Second,
		YieldAfter:     2 * time.Second,
		RepresentAfter: 5 * time.Minute,
		OrderRefresh:   time.Hour,
	}
}

const (
	// ExpiryGrace is how long after its expiry a CA may still show an order as pending before the order is given up:
	// the clock of the CA may be late.
	ExpiryGrace = time.Hour
	// expiryPoll is the time between looks at an order that has expired by our clock.
	expiryPoll = time.Minute
)

// LookAgain is when to look again at an order or authorization of the CA that was last seen at a time: when it should
// have expired. The expiry is zero if the CA does not say it.
func (s Settings) LookAgain(seen, expires time.Time) time.Time {
	switch {
	case expires.IsZero():
		return seen.Add(s.OrderRefresh)
	case seen.Before(expires):
		return expires
	default:
		return seen.Add(expiryPoll)
	}
}

// Event is a Kubernetes event to emit about the object.
type Event struct {
	// Warning makes the event a Warning; else it is Normal.
	Warning bool
	// Reason is CamelCase (spec appendix B).
	Reason string
	// Message is for people.
	Message string
}
