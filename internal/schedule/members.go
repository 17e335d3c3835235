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
	return keyOfGroup(it.c) == keyOfGroup(c) && it.c.Issuer == c.Issuer && it.c.Class == c.Class && it.c.Created.Equal(c.Created)
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

// pool is the challenges of one issuer, or of one class of routes: it counts what they hold
// and want.
type pool struct {
	name string
	// cap is how many may be processing; 0 for no limit.
	cap                                 int
	inFlight, parking, waiting, members int
	// hidden are lanes taken out of the line while the pool is full.
	hidden []*lane
	// ready are its lanes in the tenant of all that are Ready.
	ready map[laneKey]struct{}
}

// full reports whether no more may start.
func (p *pool) full() bool { return p.cap > 0 && p.inFlight >= p.cap }

// pools are all issuers, or all classes.
type pools struct {
	cap int
	all map[string]*pool
	// waiting are those that have candidates.
	waiting map[*pool]struct{}
}

func newPools(limit int) pools {
	return pools{cap: limit, all: map[string]*pool{}, waiting: map[*pool]struct{}{}}
}

// of finds or makes a pool. One without a name has no limit.
func (ps *pools) of(name string) *pool {
	p := ps.all[name]
	if p == nil {
		p = &pool{name: name, cap: ps.cap, ready: map[laneKey]struct{}{}}
		if name == "" {
			p.cap = 0
		}
		ps.all[name] = p
	}
	return p
}

// want notes that a pool has a candidate more or less.
func (ps *pools) want(p *pool, n int) {
	p.waiting += n
	if p.waiting == 0 {
		delete(ps.waiting, p)
		return
	}
	ps.waiting[p] = struct{}{}
}

// startable counts, up to a limit, the candidates that these pools have room for.
func (ps *pools) startable(limit int) int {
	n := 0
	for p := range ps.waiting {
		room := p.waiting
		if p.cap > 0 {
			room = max(0, min(room, p.cap-p.inFlight+p.parking))
		}
		if n += room; n >= limit {
			return limit
		}
	}
	return n
}

// tenant is a namespace, or the one of all challenges that are Ready.
type tenant struct {
	name     string
	first    bool
	inFlight int
	members  int
	served   uint64
	index    int
	lanes    map[laneKey]*lane
	line     heap[*lane]
}

// laneKey names a lane in its tenant.
type laneKey struct{ issuer, class string }

// lane is the candidates of one issuer and class in one tenant.
type lane struct {
	tenant        *tenant
	issuer, class *pool
	inFlight      int
	members       int
	served        uint64
	index         int
	hidden        bool
	items         heap[*item]
}

func (l *lane) key() laneKey { return laneKey{l.issuer.name, l.class.name} }

func (l *lane) pools() [2]*pool { return [2]*pool{l.issuer, l.class} }

// full returns a pool of the lane that is full; nil if there is none.
func (l *lane) full() *pool {
	for _, p := range l.pools() {
		if p.full() {
			return p
		}
	}
	return nil
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
	if a.issuer != b.issuer {
		return a.issuer.name < b.issuer.name
	}
	return a.class.name < b.class.name
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
