package order

import (
	"fmt"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/acmeflow"
)

// The address of an order at the CA is known to this process alone until it is written. Who loses it has to order
// anew, and CAs limit how many orders an account may make. So:
//
//   - An order of one authorization is written with the authorization, in the one write that its Challenge needs. An
//     order of several, which take longer to read, is written before anything else is done; so is any order that needs
//     no authorization, or that another process has made.
//   - A write that the API server does not take is followed by one with the address alone: if the server refuses
//     something else in the status, the address is stored all the same.
//   - An Order that another process has made may have an order at the CA whose address is lost. Before this process
//     orders, it has to see that its writes are taken. Else each restart would make one more order, for as long as
//     the API server takes no writes.

// ProcessAnnotation is on Orders, and names the process that has made the Order. It is set as the Order is made, and
// costs no write. A copied or restored Order names a process that has ended, or one that has not ordered for it:
// neither loses more than one order at the CA.
const ProcessAnnotation = "chancery.dev/made-by-process"

// orderAnew is how soon an Order tries again to write that it is about to be ordered.
const orderAnew = time.Second

// addressAlone is the action of writing the address of the order and nothing else; false if the address is stored, or
// the last write was taken.
func (d *decision) addressAlone() (Action, bool) {
	if !d.Memory.Unwritten || d.next.URL == "" || d.Order.Status.URL != "" {
		return Action{}, false
	}
	alone := d.Order.Status.DeepCopy()
	alone.URL = d.next.URL
	return Action{Status: alone}, true
}

// withAddress is an action that stores the address of the order before anything else, unless the address is stored, or
// the next write needs the one authorization of the order, which has not been read.
func (d *decision) withAddress(a Action) Action {
	unread := d.Made && d.state == acmev1.Pending && len(d.next.Authorizations) == 1 && len(d.unreadAuthorizations()) == 1
	if a.Status == nil && d.next.URL != "" && d.Order.Status.URL == "" && !unread {
		a.Status = d.status(acmeflow.FailureOf(""), "")
	}
	return a
}

// create orders, once it is known that the address of the order can be stored.
func (d *decision) create() Action {
	if d.Made || !d.Memory.WroteAt.IsZero() {
		return Action{Step: Create, NewOrder: d.newOrder()}
	}
	// The words differ each time: a status that did not change would not be written, and show nothing.
	d.next.State = acmev1.Pending
	const words = "Ordering at %s: the address of an earlier order at the ACME server, if there is one, was not stored"
	return d.wait(acmeflow.FailureOf(""), fmt.Sprintf(words, acmeflow.Instant(d.now)), d.now.Add(orderAnew))
}

// changed is the status to write with the class and the reason that it has, or nil if it is stored already. A class
// or a problem type alone is not worth a write: it comes with the next words.
func (d *decision) changed() *acmev1.OrderStatus {
	stored := d.Order.Status
	stored.FailureClass, stored.ProblemType, stored.ReasonEnd, stored.Cause = d.next.FailureClass, d.next.ProblemType, d.next.ReasonEnd, d.next.Cause
	if cmmeta.Equal(d.next, stored) {
		return nil
	}
	return d.next.DeepCopy()
}

// Seen returns the memory once this process has seen the Order.
func (m Memory) Seen(now time.Time) Memory {
	if m.Began.IsZero() {
		m.Began = now
	}
	return m
}

// Writing returns the memory right before the status of an action is written.
func (m Memory) Writing() Memory {
	m.Unwritten = true
	return m
}

// Wrote returns the memory once the status of an action is written.
func (m Memory) Wrote(a Action, now time.Time) Memory {
	m.WroteAt, m.Cause, m.Unwritten = now, a.Cause, false
	return m
}
