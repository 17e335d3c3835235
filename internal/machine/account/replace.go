package account

import (
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"chancery.dev/internal/fault"
)

// The key of an account is replaced (RFC 8555 §7.3.5) such that nothing fails for it: a validation that the CA was
// told to make ends before, because the answer that it looks for contains the thumbprint of the key (RFC 8555 §8.1).

const (
	// validationLimit is how long a CA is given for a validation that it was told to make: what takes longer does
	// not keep the key from being replaced.
	validationLimit = 10 * time.Minute
	// lookedFor is how long after its begin a validation is watched by the one that has begun it.
	lookedFor = 5 * time.Second
	// strangersLimit is the same for those that an earlier process may have begun.
	strangersLimit = time.Minute
	// holdLimit is how long no validation is begun after a try to replace the key: tries follow each other sooner
	// than that, and who makes them may be gone.
	holdLimit = 15 * time.Second
	// HoldPoll is how soon to look again whether the validations under way are over.
	HoldPoll = time.Second
	// lateLimit is how long after it was sent a request may still reach the CA.
	lateLimit = 10 * time.Second
)

// Fingerprint is that of a public key.
type Fingerprint = [sha256.Size]byte

// replacement is what is known of the replacement of an account's key.
type replacement struct {
	// since is when this process has taken over an account that others have used.
	since time.Time
	// validating are the authorizations that the CA was told to validate, and when.
	validating map[string]time.Time
	// held is until when none is added; unsure until when nothing is signed, because the CA may go by either key.
	held, unsure time.Time
	// denied is the key that the CA has said not to know.
	denied Fingerprint
}

// Changing reports whether the key is about to be replaced: until it is, the CA is told to validate nothing.
func (m *Machine) Changing(now time.Time) bool { return now.Before(m.key.held) }

// TakenOver notes that others have used the account before this process.
func (m *Machine) TakenOver(now time.Time) { m.key.since = now }

// Validate notes that the CA is about to be told to validate an authorization. It reports false, and notes nothing,
// while the key is about to be replaced.
func (m *Machine) Validate(authorization string, now time.Time) bool {
	if m.Changing(now) {
		return false
	}
	if m.key.validating == nil {
		m.key.validating = map[string]time.Time{}
	}
	m.key.validating[authorization] = now
	return true
}

// Validated notes that the CA has ended the validation of an authorization.
func (m *Machine) Validated(authorization string) { delete(m.key.validating, authorization) }

// Unwatched returns authorizations, at most that many, whose validation began a while ago and has no known end: the
// Challenge that began it may be gone.
func (m *Machine) Unwatched(most int, now time.Time) []string {
	var out []string
	for _, url := range slices.Sorted(maps.Keys(m.key.validating)) {
		if now.Sub(m.key.validating[url]) >= lookedFor && len(out) < most {
			out = append(out, url)
		}
	}
	return out
}

// Delay is why the key cannot be replaced now, and how long to wait at least. Nothing has failed.
type Delay struct {
	Wait time.Duration
	Why  string
}

// ParkedFor returns for how long the CA has asked to be left alone, as a Delay; nil if it has not.
func (m *Machine) ParkedFor(now time.Time) *Delay {
	if wait := m.until.Sub(now); wait > 0 {
		return &Delay{wait, "the ACME server has asked to be left alone"}
	}
	return nil
}

// HoldValidations returns why the key cannot be replaced yet; nil if it can be. It stops new validations, unless those
// of an earlier process may still be under way.
func (m *Machine) HoldValidations(now time.Time) *Delay {
	if wait := m.key.since.Add(strangersLimit).Sub(now); wait > 0 {
		return &Delay{wait, "it waits until validations are finished that may have been under way when this controller started"}
	}
	m.key.held = now.Add(holdLimit)
	maps.DeleteFunc(m.key.validating, func(_ string, began time.Time) bool { return now.Sub(began) >= validationLimit })
	if n := len(m.key.validating); n > 0 {
		return &Delay{HoldPoll, "it waits for the ACME server to finish what it is validating"}
	}
	return nil
}

// Resume lets validations begin again.
func (m *Machine) Resume() { m.key.held = time.Time{} }

// SetUnsure stops all signing for a while, because the CA may accept either key. Unanswered says that the CA has not
// been reached since it was told to replace the key; else the request may only be late.
func (m *Machine) SetUnsure(unanswered bool, now time.Time) {
	m.key.unsure = now.Add(lateLimit)
	if unanswered {
		m.key.unsure = now.Add(fault.Unsure.With("").Most)
	}
}

// NoteUnknownKey notes that the CA has said that no account has the key.
func (m *Machine) NoteUnknownKey(key Fingerprint) { m.key.denied, m.key.unsure = key, time.Time{} }

// IsUnknownKey reports whether the CA has said that no account has the key.
func (m *Machine) IsUnknownKey(key Fingerprint) bool {
	return key != Fingerprint{} && m.key.denied == key
}

// Replaced notes that the CA accepts the next key.
func (m *Machine) Replaced() { m.key.unsure, m.key.held = time.Time{}, time.Time{} }
