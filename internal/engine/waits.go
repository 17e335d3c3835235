package engine

import (
	"cmp"
	"slices"
	"time"
)

// What is the sort of thing that an object waits for.
type What string

// What objects wait for.
const (
	// WaitNothing: the object is in order.
	WaitNothing What = ""
	// WaitEvent: another object has to appear or to change.
	WaitEvent What = "Event"
	// WaitTime: a time has to come: a renewal, the end of a back-off.
	WaitTime What = "Time"
	// WaitCall: a call that leaves the process is under way.
	WaitCall What = "Call"
	// WaitLane: a call has not had its turn in its lane.
	WaitLane What = "Lane"
	// WaitSlot: a bounded number may be in flight, and it is not the object's turn.
	WaitSlot What = "Slot"
	// WaitPark: the CA has asked to leave the account of an issuer alone until then.
	WaitPark What = "Park"
	// WaitBackOff: the last pass has failed, and is repeated.
	WaitBackOff What = "BackOff"
)

// For is what an object waits for.
type For struct {
	What What `json:"for"`
	// Detail says it for people.
	Detail string `json:"detail,omitempty"`
}

// Wait is one line of the list of waits. The JSON form is what the controller serves.
type Wait struct {
	// Kind, Namespace and Name are those of the object that waits.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`

	For

	// Lane is where a call waits or goes to; else empty.
	Lane string `json:"lane,omitempty"`
	// Since is when the wait began, zero if that is not known; Until is when it ends without an event, zero if it does
	// not.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// waiter lists the waits of one kind.
type waiter interface{ waits() []Wait }

// listed is a list of waits that no Runner knows of.
type listed func() []Wait

func (l listed) waits() []Wait { return l() }

// List makes Waits list further waits, which no Runner knows of.
func (e *Engine) List(waits func() []Wait) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kinds = append(e.kinds, listed(waits))
}

// Waits returns who waits, for what, until when, by kind, namespace and name. Objects that are in order are not in
// the list.
func (e *Engine) Waits() []Wait {
	e.mu.Lock()
	kinds := slices.Clone(e.kinds)
	e.mu.Unlock()
	var out []Wait
	for _, k := range kinds {
		out = append(out, k.waits()...)
	}
	for _, c := range e.calls.all() {
		w := Wait{Kind: c.owner.kind, Namespace: c.owner.name.Namespace, Name: c.owner.name.Name, Lane: c.Lane.Name,
			For: For{What: WaitLane, Detail: c.Name}, Since: c.since}
		if c.started {
			w.What = WaitCall
			if c.Lane.Timeout > 0 {
				w.Until = c.since.Add(c.Lane.Timeout)
			}
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.What, b.What), cmp.Compare(a.Detail, b.Detail))
	})
	return out
}

func (r *Runner[O, M, S, A]) waits() []Wait {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Wait
	for _, known := range r.objects {
		if known.wait.What != WaitNothing {
			out = append(out, known.wait)
		}
	}
	return out
}
