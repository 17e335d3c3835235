// Package account decides what may be sent to a CA for one ACME account. It decides until when all calls have to wait,
// and when the key of the account may be replaced. It also decides which new orders have to wait because of a limit (of
// the CA or of Chancery). An account is one key at one ACME server. Several issuers may share an account.
//
// The package is pure: Machine takes the outcomes of calls, and returns what may be sent now. Machine makes no call and
// reads no clock. internal/acme/accounts makes the calls.
package account

import (
	"time"

	"chancery.dev/internal/fault"
)

// Machine is what is known of an account. The zero value knows nothing. It is not safe for concurrent use.
type Machine struct {
	limits  limits
	shares  shares
	retries retries

	// since and until are when the account was last parked, and until when.
	since, until time.Time
	reason       string
	// refusals is how many answers in a row have asked for the account to be left alone.
	refusals int

	key replacement
}

// Park is until when the CA is to be left alone, and why. The zero value says that it need not be.
type Park struct {
	Until  time.Time
	Reason string
	// Paused says that a person has to lift a pause first.
	Paused bool
}

// Parked returns until when nothing is to be sent to the CA. While it is not known which key the CA accepts, nothing is
// sent either.
func (m *Machine) Parked(now time.Time) Park {
	if unsure := m.key.unsure; unsure.After(m.until) {
		if at := now.Add(fault.Unsure.With("").First); at.Before(unsure) {
			unsure = at
		}
		if unsure.After(m.until) {
			return Park{Until: unsure, Reason: "the account's key is being replaced, and the ACME server has not said yet whether it was"}
		}
	}
	return Park{Until: m.until, Reason: m.reason}
}

// Park returns a Machine that knows until when nothing is to be sent, and nothing else: it takes next to no memory.
func (m *Machine) Park() Machine {
	return Machine{
		since: m.since, until: m.until, reason: m.reason, refusals: m.refusals,
		key: replacement{since: m.key.since, unsure: m.key.unsure, denied: m.key.denied},
	}
}

// Served notes that the CA has answered a call as it was asked to.
func (m *Machine) Served() { m.refusals = 0 }

// ExtendPark parks the account, or extends its park: the answer to a call, sent at that time, has asked for a wait that
// may be meant for all calls. ExtendPark never shortens a park, and ignores the answer to a call that was sent before
// the park began. It reports whether it has extended the park.
func (m *Machine) ExtendPark(wait time.Duration, sent time.Time, reason string, now time.Time) bool {
	if sent.Before(m.since) {
		return false
	}
	m.refusals++
	until := now.Add(min(wait, fault.Parks.With("").Step(m.refusals)))
	if !until.After(m.until) {
		return false
	}
	m.since, m.until, m.reason = now, until, reason
	return true
}

// OrderTaken notes that the CA has taken an order. A renewal says nothing about the limits of others.
func (m *Machine) OrderTaken(o Order, now time.Time) {
	m.retries.taken(now)
	if !o.Renewal {
		m.limits.taken(o.Identifiers)
	}
}

// OrderRefused notes that the CA has refused an order because of a limit.
func (m *Machine) OrderRefused(r Refusal, now time.Time) { m.limits.refused(r, now) }

// Send returns until when an order is not to be sent, and why. Zero says that the order is sent now.
func (m *Machine) Send(o Order, now time.Time) Park {
	for _, held := range []func(Order, time.Time) Park{m.limits.held, m.shares.held, m.retries.held} {
		if park := held(o, now); !park.Until.IsZero() {
			return park
		}
	}
	m.shares.count(o, 1, now)
	m.retries.sent(o, now)
	return Park{}
}

// RefusedForGood notes that an Order has failed at that time, and that the same Order would fail again.
func (m *Machine) RefusedForGood(o Order, at time.Time) { m.retries.refused(o, at) }

// OrderFailed notes that the CA has not taken an order that was sent.
func (m *Machine) OrderFailed(o Order, now time.Time) { m.shares.count(o, -1, now) }
