package schedule

import (
	"strings"
	"time"
)

// place is where an item waits.
type place int

const (
	// nowhere: it does not wait: it is processing, parked or ended.
	nowhere place = iota
	// inDelayed: it waits for its time.
	inDelayed
	// inGroup: it waits for its name, or behind another for the same name.
	inGroup
	// inLane: it is the candidate of its name.
	inLane
	// inYielding: it is processing, and others may have its slot.
	inYielding
)

// pending is a decision that has not been observed yet.
type pending int

const (
	pendingNone pending = iota
	pendingStart
	pendingPark
)

// item is one challenge. It is in at most one heap: where says in which, index at
// which position.
type item struct {
	c       Challenge
	group   *group
	home    *lane
	where   place
	index   int
	pending pending
	// applied is set once the pending decision is known to be written, settleBy when
	// observations count again.
	applied  bool
	settleBy time.Time
	retryAt  time.Time
	// turn orders the waiters of a group, started the items that are processing.
	turn    uint64
	turned  bool
	started uint64
}

// occupies reports whether the item holds a slot, as far as is known.
func (it *item) occupies() bool {
	switch it.pending {
	case pendingStart:
		return true
	case pendingPark:
		return !it.applied
	default:
		return it.c.Processing
	}
}

// isParked reports whether the item was presented and has given up its slot.
func (it *item) isParked() bool {
	return !it.occupies() && !it.c.Final && it.c.Presented && !it.c.Ready
}

// sameAs reports whether c is another state of the same challenge.
func (it *item) sameAs(c Challenge) bool {
	return keyOfGroup(it.c) == keyOfGroup(c) && it.c.Issuer == c.Issuer && it.c.Created.Equal(c.Created)
}

// due is the earliest time at which the item may start.
func (it *item) due() time.Time {
	if it.retryAt.After(it.c.NotBefore) {
		return it.retryAt
	}
	return it.c.NotBefore
}

// groupKey is what no two processing challenges share (mission rule 3).
type groupKey struct{ name, kind string }

func keyOfGroup(c Challenge) groupKey {
	return groupKey{name: strings.ToLower(strings.TrimSuffix(c.DNSName, ".")), kind: c.Type}
}

// group is all challenges for one name and type. Only its candidate can start.
type group struct {
	busy, parking, members int
	candidate              *item
	waiters                heap[*item]
	// turns deals out the order of the waiters: in turns between namespaces.
	turns map[string]uint64
	turn  uint64
}

// nextTurn is the place in line for a challenge of a namespace.
func (g *group) nextTurn(namespace string) uint64 {
	if g.turns == nil {
		if g.members == 1 {
			return g.turn
		}
		g.turns = map[string]uint64{}
	}
	t := max(g.turn, g.turns[namespace])
	g.turns[namespace] = t + 1
	return t
}

// issuer counts what its challenges hold and want.
type issuer struct {
	name                                string
	inFlight, parking, waiting, members int
	// hidden are lanes taken out of the line while the issuer is full.
	hidden []*lane
}

// tenant is a namespace, or the one of all challenges that are Ready.
type tenant struct {
	name     string
	first    bool
	inFlight int
	members  int
	served   uint64
	index    int
	lanes    map[string]*lane
	line     heap[*lane]
}

// lane is the candidates of one issuer in one tenant.
type lane struct {
	tenant   *tenant
	issuer   *issuer
	inFlight int
	members  int
	served   uint64
	index    int
	hidden   bool
	items    heap[*item]
}

func tenantBefore(a, b *tenant) bool {
	if a.first != b.first {
		return a.first
	}
	if a.inFlight != b.inFlight {
		return a.inFlight < b.inFlight
	}
	if a.served != b.served {
		return a.served < b.served
	}
	return a.name < b.name
}

func laneBefore(a, b *lane) bool {
	if a.inFlight != b.inFlight {
		return a.inFlight < b.inFlight
	}
	if a.served != b.served {
		return a.served < b.served
	}
	return a.issuer.name < b.issuer.name
}

func olderBefore(a, b *item) bool {
	if c := a.c.Created.Compare(b.c.Created); c != 0 {
		return c < 0
	}
	if a.c.Namespace != b.c.Namespace {
		return a.c.Namespace < b.c.Namespace
	}
	return a.c.Name < b.c.Name
}

func waiterBefore(a, b *item) bool {
	if a.c.Ready != b.c.Ready {
		return a.c.Ready
	}
	if a.turn != b.turn {
		return a.turn < b.turn
	}
	return olderBefore(a, b)
}

func dueBefore(a, b *item) bool {
	if c := a.due().Compare(b.due()); c != 0 {
		return c < 0
	}
	return olderBefore(a, b)
}

func startedBefore(a, b *item) bool {
	if a.started != b.started {
		return a.started < b.started
	}
	return olderBefore(a, b)
}

func placeItem(it *item, i int) { it.index = i }
