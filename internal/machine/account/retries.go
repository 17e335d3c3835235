package account

import (
	"maps"
	"time"
)

const (
	// retriesPart bounds the retries of what has failed for good by a part of an account's orders: one in so many.
	retriesPart = 10
	// retryAfter is how long after such a failure the next try comes at the earliest, unless somebody forces it, and
	// failureKept how long after it the last try may come (machine/certificate: a day or a week, and a fifth).
	retryAfter  = 19 * time.Hour
	failureKept = 10 * 24 * time.Hour
	// retriesWindow is how long orders are counted together: about a day, and no longer than it is between two tries
	// for one certificate, so that one alone never waits.
	retriesWindow = retryAfter
)

// retries bounds the orders for what the CA has refused such that it refuses the same again. Each is tried again every
// day, then every week, because something may have changed that nothing tells of. Of many, only some are tried: in a
// day no more than a tenth of the orders that the CA has taken on this day and the day before, and one in any case.
//
// The zero value is ready.
type retries struct {
	// failed says when the names of a namespace have failed.
	failed map[string]time.Time
	// until is when the day ends; orders is how many orders the CA has taken in it, and before how many on the day
	// before; again is how many retries were sent in it.
	until                 time.Time
	orders, again, before int
}

// refused notes that an order has failed for good.
func (r *retries) refused(o Order, at time.Time) {
	if r.failed == nil {
		r.failed = map[string]time.Time{}
	}
	if key := keyOf(o); at.After(r.failed[key]) {
		r.failed[key] = at
	}
}

// isRetry reports whether an order is for what has failed, and is not forced soon after the failure.
func (r *retries) isRetry(o Order, now time.Time) bool {
	at, ok := r.failed[keyOf(o)]
	return ok && now.Sub(at) >= retryAfter && now.Sub(at) < failureKept
}

// held returns until when an order is not to be sent, and why; zero if it may be.
func (r *retries) held(o Order, now time.Time) Park {
	r.turn(now)
	if !r.isRetry(o, now) || r.again < max((r.before+r.orders)/retriesPart, 1) {
		return Park{}
	}
	return Park{Until: r.until, Reason: "not sent, because the ACME server has refused the same order before, and such orders are at most a tenth " +
		"of the account's, until " + r.until.UTC().Format(time.RFC3339)}
}

// sent counts a retry, whatever the CA will say to it.
func (r *retries) sent(o Order, now time.Time) {
	if r.turn(now); r.isRetry(o, now) {
		r.again++
	}
}

// taken counts an order that the CA has taken.
func (r *retries) taken(now time.Time) {
	r.turn(now)
	r.orders++
}

// turn begins another day where the last one is over.
func (r *retries) turn(now time.Time) {
	if now.Before(r.until) {
		return
	}
	if now.Sub(r.until) >= retriesWindow {
		r.orders = 0 // the day before was another one
	}
	r.before, r.orders, r.again, r.until = r.orders, 0, 0, now.Add(retriesWindow)
	maps.DeleteFunc(r.failed, func(_ string, at time.Time) bool { return now.Sub(at) >= failureKept })
}

func keyOf(o Order) string { return o.Namespace + setOf(o.Identifiers) }
