// Package certificate decides what a Certificate needs now: a key, a request, a write of its Secret, a renewal, a
// revocation, or only a wait.
//
// The package is pure: State holds what can be observed, and Decide returns an Action. internal/controller/certificates
// carries out the Action, observes again, and calls Decide again, until Decide returns an Action that only waits. The
// package reads no clock, makes no key and writes no object.
package certificate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/revocation"
)

// State is what can be observed of a Certificate. Nothing in it is changed.
type State struct {
	// Certificate itself.
	Certificate *certmanagerv1.Certificate
	// Secret is what spec.secretName holds; nil if there is none.
	Secret *facts.Secret
	// Keys are the next-private-key Secrets that the Certificate owns.
	Keys []facts.Key
	// Held is the private key that this process has made a request with, in the short way; nil for none.
	Held *facts.HeldKey
	// Requests are the CertificateRequests that the Certificate owns.
	Requests []facts.Request
	// SecretOwner names the Certificate that may use the Secret, of all in the namespace with this secretName (see the
	// function SecretOwner).
	SecretOwner string
	// Backoff bounds the wait after a failed issuance.
	Backoff Backoff
	// OwnerReference says that the Secret is to be owned by the Certificate.
	OwnerReference bool
	// OlderRoots says what becomes of the older roots in the Secret, if the Certificate is a CA.
	OlderRoots facts.OlderRoots
	// Issuer is what is known of the issuer; nil if nothing is.
	Issuer *IssuerFacts
	// Answer is what the issuer said last about when to renew; nil if it was not asked, or if that is long known.
	Answer *RenewalAnswer
	// Passwords are those of the keystores that the Certificate wants.
	Passwords facts.Passwords
	// Repaired is the Version that the last repair of the Secret for the present Certificate has led to, or has failed
	// for; empty if it was not tried.
	Repaired string
	// RepairError says why it has failed; empty if it has not. RepairCause says it as a cause, where that is known.
	RepairError string
	RepairCause *cmmeta.Cause
	// Pin is the certificate that was pinned to be replaced and revoked; nil if there is none.
	Pin *revocation.Pin
	// CannotRevoke says why the issuer of the pinned certificate cannot revoke, or without Pin, why nothing can be
	// pinned; empty if it can.
	CannotRevoke string
	// Revocation is what the CA said when it was last asked to revoke the pinned certificate; nil if it was not, or is
	// being asked.
	Revocation *revocation.Answer
	// Told is when the status was last written with another cause, or another next try; zero if it was not.
	Told time.Time
	// Refusal says why the step that was decided on just now could not be taken; nil if there was no such step.
	Refusal *Refusal
	// Postponed are the steps that could not be taken a while ago, and that nothing else waits for.
	Postponed []Postponed
	// RepairedAt is when the Secret was last repaired for what the Certificate wants now; zero if it was not.
	RepairedAt time.Time
}

// Refusal says why a step could not be taken.
type Refusal struct {
	Step Step
	// Message says it to people.
	Message string
	// Cause becomes status.cause, and says when the step is tried again, if that is known.
	Cause *cmmeta.Cause
	// Err becomes Action.Failure.
	Err error
}

// Postponed is a step that could not be taken, of a revocation or StepDropSurplus: the Certificate takes its course
// without it.
type Postponed struct {
	Step Step
	// Until is when the step is tried again.
	Until time.Time
	// News says why to people; empty if that was said.
	News string
}

// Step is the one thing to do next. Later steps need earlier ones.
type Step int

// The steps, in the order in which an issuance takes them.
const (
	// StepRest asks for nothing but what Status, Event and Wake say.
	StepRest Step = iota + 1
	// StepDeleteKeys deletes the next-private-key Secrets named in Names.
	StepDeleteKeys
	// StepCreateKey makes a next-private-key Secret called Name: a new key, with ReuseKey
	// that of the target Secret, or with Held the one in memory.
	StepCreateKey
	// StepDeleteRequests deletes the CertificateRequests named in Names, which are in the way of the issuance.
	StepDeleteRequests
	// StepCreateRequest makes the CertificateRequest called Name for Revision, with the private key in the Secret Key.
	// Without Key it uses the key in memory, with Held; else it first keeps a key in memory: a new one, or with
	// ReuseKey that of the target Secret.
	StepCreateRequest
	// StepStoreTemporary writes a temporary certificate for Request and the next private
	// key into the target Secret.
	StepStoreTemporary
	// StepStore writes the certificate of Request and the next private key, of the Secret
	// Key or with Held the one in memory, into the target Secret, as Revision.
	StepStore
	// StepRepair writes the target Secret anew, from the certificate and the key that it holds.
	StepRepair
	// StepAskRenewalInfo asks the issuer when it wants the certificate to be renewed.
	// It is a rest: the answer is an event.
	StepAskRenewalInfo
	// StepPin keeps the certificate and the key of the target Secret, to be revoked once they are replaced.
	StepPin
	// StepRecord replaces the annotation that asks for a revocation by Record.
	StepRecord
	// StepUnpin deletes what StepPin has kept.
	StepUnpin
	// StepDropSurplus deletes the CertificateRequests named in Names, which are above the limit of the history.
	StepDropSurplus
)

// String names the step.
func (s Step) String() string {
	names := [...]string{
		"rest", "delete keys", "create key", "delete requests", "create request", "store temporary", "store", "repair", "ask when to renew",
		"pin", "record the revocation", "unpin", "delete old requests",
	}
	if s < StepRest || int(s) > len(names) {
		return fmt.Sprintf("step(%d)", int(s))
	}
	return names[s-1]
}

// Event is an event to emit on the Certificate, once the Action is carried out.
type Event struct {
	// Warning tells Warning from Normal.
	Warning bool
	// Reason and Message as in spec appendix B.
	Reason, Message string
}

// Action is what to do: first take the Step; then write Status, if it is not nil; then, after StepStore, delete the
// Secrets named in Names; then emit Events. It is idempotent: what was cut short is decided again.
type Action struct {
	Step Step
	// Name of the object to make.
	Name string
	// Names of the objects to delete.
	Names []string
	// ReuseKey copies the key of the target Secret (rotationPolicy Never).
	ReuseKey bool
	// Held uses the private key in memory.
	Held bool
	// Keep says that the private key in memory is needed after the Action. Otherwise it is forgotten then.
	Keep bool
	// Unsaid is the condition Issuing that the Certificate does not show yet: what to say if the Action cannot be
	// carried out. Nil if the Certificate shows one, or is not being issued.
	Unsaid *certmanagerv1.CertificateCondition
	// Revision that a request is made for, or that is stored.
	Revision int
	// Key is the next-private-key Secret to make a request for, or to store; empty for the key in memory.
	Key string
	// Request is the issued request to store.
	Request *certmanagerv1.CertificateRequest
	// Chain is the part of Request to store, in PEM: the certificates that were checked, and nothing else.
	Chain []byte
	// Status is the status to write; nil if it does not change.
	Status *certmanagerv1.CertificateStatus
	// Budget is until when the budget is used once the request to make is issued.
	Budget time.Time
	// IssuerVersion is the version of the issuer that a request is made for; empty if
	// that is not known.
	IssuerVersion string
	// Certificate is the certificate that StepAskRenewalInfo asks about.
	Certificate facts.Digest
	// Revoke asks the CA to revoke the pinned certificate, beside the Step: again and again, until the State has a
	// Revocation without an error.
	Revoke bool
	// Record says how a revocation has ended.
	Record revocation.Record
	// Events to emit.
	Events []Event
	// Wake is when to decide again without any event; zero for never.
	Wake time.Time
	// Failure is why a step that is due is not taken now, and says when to decide again; nil for no such step.
	Failure error
}

// warn adds a warning to the events of an Action.
func (a *Action) warn(reason, message string) {
	a.Events = append(a.Events, Event{Warning: true, Reason: reason, Message: message})
}

// Rests reports whether nothing is left to do but what Status, Events and Wake say.
func (a *Action) Rests() bool { return a.Step == StepRest || a.Step == StepAskRenewalInfo }

// current returns the request that the stored certificate came from.
func (s *State) current() (facts.Request, bool) {
	if s.Certificate.Status.Revision == nil {
		return facts.Request{}, false
	}
	return s.ofRevision(*s.Certificate.Status.Revision)
}

// nextRevision is the revision an issuance works towards.
func (s *State) nextRevision() int {
	if s.Certificate.Status.Revision == nil {
		return 1
	}
	return *s.Certificate.Status.Revision + 1
}

// ofRevision returns the request made for a revision: the first, if somebody has
// made more.
func (s *State) ofRevision(n int) (facts.Request, bool) {
	var found []facts.Request
	for _, r := range s.Requests {
		if got, ok := r.Revision(); ok && got == n {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return facts.Request{}, false
	}
	return slices.MinFunc(found, byAge), true
}

// byAge orders requests by the time they were made.
func byAge(a, b facts.Request) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// RequestName returns the name of the CertificateRequest for a revision of a
// Certificate. Names that would grow too long are cut and told apart by a hash
// (spec §2.3).
func RequestName(certificate string, revision int) string {
	const longest, cut = 233, 168
	if len(certificate) > longest {
		sum := sha256.Sum256([]byte(certificate))
		certificate = shorten(certificate, cut) + "-" + hex.EncodeToString(sum[:])
	}
	return fmt.Sprintf("%s-%d", certificate, revision)
}

// keyName returns the name for the next-private-key Secret of a revision. It is
// the same whenever it is asked for, so that a key is found again, and not made
// twice, by whoever is cut short between making it and saying so.
func keyName(crt *certmanagerv1.Certificate, revision int) string {
	const longest, digits = 240, 5
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", crt.UID, revision))
	return shorten(crt.Name, longest) + "-" + hex.EncodeToString(sum[:])[:digits]
}

// shorten cuts a name to at most length bytes, such that "-" may follow.
func shorten(name string, length int) string {
	if len(name) <= length {
		return name
	}
	return strings.TrimRight(name[:length], "-.")
}

// SecretOwner returns which of the Certificates that name the same Secret may use
// it: the one that the Secret's certificate-name annotation names, else the
// oldest, else the first by name (spec §2.1, 2).
func SecretOwner(claims []*certmanagerv1.Certificate, secret *facts.Secret) string {
	if secret != nil && secret.Named {
		for _, c := range claims {
			if c.Name == secret.CertificateName {
				return c.Name
			}
		}
	}
	var oldest *certmanagerv1.Certificate
	for _, c := range claims {
		switch {
		case oldest == nil || c.CreationTimestamp.Before(&oldest.CreationTimestamp):
			oldest = c
		case c.CreationTimestamp.Equal(&oldest.CreationTimestamp) && c.Name < oldest.Name:
			oldest = c
		}
	}
	if oldest == nil {
		return ""
	}
	return oldest.Name
}
