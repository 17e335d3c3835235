package revocation

import (
	"crypto/sha256"
	"fmt"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// Reasons of the condition Revoking. Those of an end are the outcomes.
const (
	// ReasonInvalid: the annotation's value is no Reason.
	ReasonInvalid = "InvalidReason"
	// ReasonRepeated: the annotation came back soon after it was carried out.
	ReasonRepeated = "Repeated"
	// ReasonNothing: there is no certificate to revoke.
	ReasonNothing = "NothingToRevoke"
	// ReasonReplacing: the replacement is being issued.
	ReasonReplacing = "Replacing"
	// ReasonRetrying: the CA was asked, and is asked again.
	ReasonRetrying = "RevocationFailed"
	// ReasonRefused: the CA says no. It is asked again, but rarely.
	ReasonRefused = "RevocationRefused"
	// ReasonRevoked: the certificate is revoked, and its replacement is not there yet.
	ReasonRevoked = "RevokedBeforeReplaced"
)

const (
	// patience is how long a compromised key may wait for its replacement: after that it is revoked without.
	patience = time.Hour
	// repetition is how soon after its end the same request is taken for one that a tool has made again.
	repetition = 24 * time.Hour
	// pinRetry is how soon a certificate is pinned again for which there was no place: no event tells of that place.
	pinRetry = 30 * time.Second
)

// Held is the certificate that the Secret of a Certificate holds.
type Held struct {
	// ID is the SHA-256 of its DER, and Key its public key.
	ID  [sha256.Size]byte
	Key pki.PublicKeyFacts
	// Proven says that the Secret has the private key, too. Certificates are public: otherwise whoever can write a
	// Secret could get the certificate of anybody revoked.
	Proven bool
	// NotAfter is when it ends.
	NotAfter time.Time
	// Temporary says that it only stands in for a certificate.
	Temporary bool
}

// Answer is what the CA has said of a pinned certificate.
type Answer struct {
	// ID is that of the certificate, and Reason what it was to be revoked for.
	ID     [sha256.Size]byte
	Reason Reason
	// Err says why it is not revoked; nil if it is.
	Err error
	// Refused says that asking again will hardly help.
	Refused bool
}

// about reports whether it is the answer to what is asked of a certificate.
func (a *Answer) about(p *Pin) bool { return a != nil && a.ID == p.ID && a.Reason == p.Reason }

// State is what can be observed of a request to revoke.
type State struct {
	// SecretName is the Certificate's, and Owner the Certificate that may use that Secret, if it is another.
	SecretName, Owner string
	// Asked says that Annotation is there, with the value Wanted. Record is that of RecordAnnotation.
	Asked          bool
	Wanted, Record string
	// Condition is the condition Revoking; nil if there is none.
	Condition *certmanagerv1.CertificateCondition
	// Held is what the Secret holds; nil if that is no certificate.
	Held *Held
	// Pin is the pinned certificate.
	Pin *Pin
	// Cannot says why the issuer of the pinned certificate cannot revoke, or without Pin, why nothing can be pinned; empty
	// if it can.
	Cannot string
	// Answer is what the CA said last; nil if it was not asked.
	Answer *Answer
}

// Step is what to do, once the condition says what it should.
type Step int

// The steps.
const (
	// StepRest waits for an event, or for Wake.
	StepRest Step = iota + 1
	// StepPin keeps the certificate that is held.
	StepPin
	// StepAsk asks the CA to revoke the pinned certificate until it has. The caller decides when to ask again after a
	// failure. Meanwhile the Certificate takes its course, as after StepRest.
	StepAsk
	// StepRecord replaces Annotation by RecordAnnotation with Record.
	StepRecord
	// StepUnpin deletes what is kept of the pinned certificate.
	StepUnpin
)

// Action is what to do next. If Say is set, and the condition does not say so already, write Say. Else, with Clear,
// remove the condition. Else take the Step.
type Action struct {
	Step Step
	Say  *certmanagerv1.CertificateCondition
	// Warn and Tell emit what is said as an event, too: a warning, or a normal one.
	Warn, Tell bool
	// Issue begins an issuance, with the message of Say, as if somebody had asked for it by hand.
	Issue  bool
	Clear  bool
	Record Record
	// Wake is when to decide again; zero for never.
	Wake time.Time
}

// Decide returns what a request to revoke needs now.
func Decide(s State, now time.Time) Action {
	reason, err := ParseReason(s.Wanted)
	switch {
	case s.Pin != nil && (!s.Asked || err != nil):
		return Action{Step: StepUnpin} // done, or called off
	case !s.Asked:
		return s.ended()
	case err != nil:
		return warning(ReasonInvalid, "Nothing is revoked: "+err.Error())
	case s.Pin == nil:
		return s.begin(reason, now)
	default:
		a := s.proceed(now)
		end := s.Pin.NotAfter.Add(time.Second) // what is left to do then needs nobody else
		if rests := a.Step == StepRest || a.Step == StepAsk; rests && (a.Wake.IsZero() || end.Before(a.Wake)) {
			a.Wake = end
		}
		return a
	}
}

func say(status cmmeta.ConditionStatus, reason, message string) Action {
	return Action{Step: StepRest, Say: &certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionRevoking, Status: status, Reason: reason, Message: message,
	}}
}

func warning(reason, message string) Action {
	a := say(cmmeta.ConditionFalse, reason, message)
	a.Warn = true
	return a
}

// ended is a Certificate of which nobody asks anything: the condition says what was last.
func (s *State) ended() Action {
	r, ok := ParseRecord(s.Record)
	switch {
	case s.Condition == nil:
		return Action{Step: StepRest}
	case !ok:
		return Action{Step: StepRest, Clear: true} // called off
	}
	a := say(cmmeta.ConditionFalse, string(r.Outcome), r.says())
	if since := s.Condition.LastTransitionTime; s.Condition.Status == cmmeta.ConditionTrue && (since == nil || !r.Time.Before(since.Time)) {
		a.Warn, a.Tell = r.Outcome != Revoked, r.Outcome == Revoked
	}
	return a
}

// begin looks whether there is a certificate to revoke, and pins it.
func (s *State) begin(reason Reason, now time.Time) Action {
	was := ""
	if s.Condition != nil {
		was = s.Condition.Reason
	}
	record, ok := ParseRecord(s.Record)
	switch {
	case ok && record.Reason == reason && (was == ReasonRepeated || now.Before(record.Time.Add(repetition))):
		return warning(ReasonRepeated, fmt.Sprintf("Nothing is revoked: %s, and the annotation %s is back. If it comes from a manifest, remove it there. "+
			"If the certificate that is there now is to be revoked as well, remove the annotation %s", record.says(), Annotation, RecordAnnotation))
	case s.Owner != "":
		return warning(ReasonNothing, fmt.Sprintf("Nothing is revoked: Secret %q belongs to Certificate %q: annotate that one", s.SecretName, s.Owner))
	case was == ReasonNothing:
		return Action{Step: StepRest} // what comes later is not what was meant
	}
	if why := s.nothing(now); why != "" {
		return warning(ReasonNothing, fmt.Sprintf("Nothing is revoked: %s. Remove the annotation %s, and set it again once there is a certificate to revoke", why, Annotation))
	}
	if s.Cannot != "" {
		a := warning(ReasonRetrying, fmt.Sprintf("The certificate in Secret %q is not revoked yet: %s", s.SecretName, s.Cannot))
		a.Wake = now.Add(pinRetry)
		return a
	}
	message := fmt.Sprintf("The certificate in Secret %q is to be replaced and then revoked (%s)", s.SecretName, reason)
	if reason == KeyCompromise {
		message += ", with a new private key whatever rotationPolicy says"
	}
	a := say(cmmeta.ConditionTrue, ReasonReplacing, message)
	a.Step, a.Issue = StepPin, true
	return a
}

// nothing says why what the Secret holds cannot be revoked; empty if it can.
func (s *State) nothing(now time.Time) string {
	switch {
	case s.Held == nil || s.Held.Temporary:
		return fmt.Sprintf("there is no certificate in Secret %q", s.SecretName)
	case !now.Before(s.Held.NotAfter):
		return fmt.Sprintf("the certificate in Secret %q has expired", s.SecretName)
	case !s.Held.Proven:
		return fmt.Sprintf("Secret %q does not hold the private key of its certificate, so that it may be anybody's", s.SecretName)
	default:
		return ""
	}
}

// replaced reports whether the Secret holds a certificate that may stay.
func (s *State) replaced(now time.Time) bool {
	return s.nothing(now) == "" && !s.Pin.Means(s.Held.ID, s.Held.Key)
}

// proceed takes a pinned certificate one step further.
func (s *State) proceed(now time.Time) Action {
	p, replaced := s.Pin, s.replaced(now)
	revoked := s.Condition != nil && s.Condition.Status == cmmeta.ConditionTrue && s.Condition.Reason == ReasonRevoked
	overdue := p.Since.Add(patience)
	switch {
	case now.After(p.NotAfter):
		return s.record(Expired, now)
	case revoked && replaced:
		return s.record(Revoked, now)
	case replaced && s.Cannot != "":
		return s.record(Unsupported, now)
	case revoked:
		return Action{Step: StepRest}
	case replaced, s.Cannot == "" && p.Reason == KeyCompromise && !now.Before(overdue):
		return s.ask(replaced, now)
	}
	message := p.Why() + ". Its replacement is being issued: see the condition Issuing"
	a := say(cmmeta.ConditionTrue, ReasonReplacing, message)
	switch {
	case s.Cannot != "":
		a.Say.Message += ". It will not be revoked: " + s.Cannot
	case p.Reason == KeyCompromise:
		a.Say.Message += ". It is revoked without one at " + overdue.UTC().Format(time.RFC3339)
		a.Wake = overdue
	}
	return a
}

func (s *State) record(o Outcome, now time.Time) Action {
	return Action{Step: StepRecord, Record: Record{Serial: s.Pin.Serial, Reason: s.Pin.Reason, Time: now.UTC().Truncate(time.Second), Outcome: o}}
}

// ask asks the CA to revoke the pinned certificate, and says what has come of that.
func (s *State) ask(replaced bool, now time.Time) Action {
	switch {
	case !s.Answer.about(s.Pin):
		return Action{Step: StepAsk}
	case s.Answer.Err == nil && replaced:
		return s.record(Revoked, now)
	case s.Answer.Err == nil:
		a := say(cmmeta.ConditionTrue, ReasonRevoked, fmt.Sprintf("The certificate with serial number %s is revoked, although no replacement "+
			"was issued within %s: the condition Issuing says what keeps it", s.Pin.Serial, patience))
		a.Warn = true
		return a
	}
	reason, again := ReasonRetrying, "it is tried again"
	if s.Answer.Refused {
		reason, again = ReasonRefused, "it is tried again every hour until the certificate expires; remove the annotation "+Annotation+" to leave it"
	}
	a := say(cmmeta.ConditionTrue, reason, fmt.Sprintf("The certificate with serial number %s is not revoked yet: %v; %s", s.Pin.Serial, s.Answer.Err, again))
	a.Warn, a.Step = true, StepAsk
	return a
}
