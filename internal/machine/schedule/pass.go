package schedule

import (
	"cmp"
	"slices"
	"time"
)

// plan is the result of a pass.
type plan struct {
	Pass

	// starting are those that get a slot, in the order in which they get it.
	starting []int
	// outcomes say where each of the facts stands.
	outcomes []Outcome
}

// pass is the work of one pass. A challenge is its place among the facts: the lower, the older.
type pass struct {
	state
	plan

	// tallies are by the place of the group.
	tallies []tally
	// keeps says which challenges hold their name without a slot.
	keeps []bool
	// queue are those that wait for a slot, yielding those that have one which others may have.
	queue, yielding []int
	// lanes are those with a challenge in line.
	lanes []*lane
}

// tally is what a pass counts of a group.
type tally struct {
	// processing is how many hold a slot.
	processing int
	// holding is how many hold their name without a slot; of names and of namespaces.
	holding int
	// turn is the last start; of two groups, that of the lower turn is next.
	turn uint64
	// first is the place of the first in line plus one; zero if there is none.
	first int
	// lane is that of a group of its kind.
	lane *lane
}

// lane is the challenges of one namespace, issuer and class that are in line: the ready ones, then the others, each
// oldest first.
type lane struct {
	own, namespace *tally
	queue          []int
	ready          int
}

// decide looks at the facts, and says what to start and what to park.
func decide(s state) plan {
	p := &pass{
		state: s, plan: plan{outcomes: make([]Outcome, len(s.facts))}, tallies: make([]tally, len(s.groups)), keeps: make([]bool, len(s.facts)),
	}
	for i, f := range s.facts {
		switch p.outcomes[i] = p.look(f); p.outcomes[i] {
		case Starting, Parking:
			p.count(i, +1)
		case Processing:
			p.count(i, +1)
			p.wakeAt(f.retryAt)
			if f.Yields && !f.Final && !f.retryAt.After(s.now) {
				p.yielding = append(p.yielding, i)
			}
		case Delayed:
			p.wakeAt(f.due())
		case NameBusy:
			p.queue = append(p.queue, i)
		default: // it neither has a slot nor wants one
		}
		p.reserve(i)
	}
	for place := range p.tallies { // where a limit was lowered, a slot that is given up is one that can be given away
		p.tallies[place].processing = min(p.tallies[place].processing, p.groups[place].limit)
	}
	for _, i := range p.queue {
		p.wait(i)
	}
	for _, i := range p.queue {
		if p.tally(i, ofName).first == i+1 && !p.nameTaken(i) {
			p.enter(i)
		}
	}
	p.starting = p.fill()
	p.decided(p.starting, Starting)
	for _, i := range p.queue {
		if p.outcomes[i] != Starting {
			p.outcomes[i] = p.whyWaiting(i)
		}
	}
	p.decided(p.chooseParked(), Parking)
	p.writeAgain()
	return p.plan
}

// look says where a challenge stands before anything is decided: NameBusy if it is in line.
func (p *pass) look(f *fact) Outcome {
	w, deciding := p.writes[f.Key]
	switch {
	case deciding:
		return w.outcome
	case f.Processing:
		return Processing
	case f.Final:
		return Ended
	case !f.waits():
		return Parked
	case f.due().After(p.now):
		return Delayed
	default:
		return NameBusy
	}
}

// occupies reports whether a challenge has a slot, or will have one unless its write is refused.
func (o Outcome) occupies() bool { return o >= Starting }

// holds reports whether a challenge holds its name once it has no slot.
func (p *pass) holds(i int) bool {
	f := p.facts[i]
	return !f.Final && f.HoldsUntil.After(p.now)
}

// reserve counts a challenge that holds its name without a slot.
func (p *pass) reserve(i int) {
	if p.keeps[i] = !p.outcomes[i].occupies() && p.holds(i); p.keeps[i] {
		p.hold(i, +1)
		p.wakeAt(p.facts[i].HoldsUntil)
	}
}

// hold notes that a challenge begins to hold its name without a slot, or ends it.
func (p *pass) hold(i, by int) {
	p.tally(i, ofName).holding += by
	p.tally(i, ofNamespace).holding += by
}

// nameTaken reports whether another challenge has a slot for the name, or holds it without.
func (p *pass) nameTaken(i int) bool { return p.others(i, ofName) > 0 }

// namespaceFull reports whether the other challenges of a namespace that have a slot, or hold their name without one,
// are twice as many as there are slots. Each that yields may be parked, also if it holds its name: so no namespace
// keeps slots from others. The names that it holds have this bound.
func (p *pass) namespaceFull(i int) bool {
	return p.options.Cap > 0 && p.others(i, ofNamespace) >= 2*p.options.Cap
}

// others is how many other challenges of its name, or of its namespace, have a slot or hold their name without one.
func (p *pass) others(i int, of kind) int {
	t := p.tally(i, of)
	if p.keeps[i] {
		return t.processing + t.holding - 1
	}
	return t.processing + t.holding
}

// wakeAt wants the next pass at a time that is still to come, unless it is earlier already.
func (p *pass) wakeAt(at time.Time) {
	if at.After(p.now) && (p.Wake.IsZero() || at.Before(p.Wake)) {
		p.Wake = at
	}
}

// decided notes decisions.
func (p *pass) decided(challenges []int, outcome Outcome) {
	for _, i := range challenges {
		p.outcomes[i] = outcome
		p.Decisions = append(p.Decisions, Decision{Key: p.facts[i].Key, Outcome: outcome})
	}
}

// writeAgain repeats the decisions whose writes have no known outcome.
func (p *pass) writeAgain() {
	for key, w := range p.writes {
		if p.wakeAt(w.again); !w.again.IsZero() && !w.again.After(p.now) {
			p.Decisions = append(p.Decisions, Decision{Key: key, Outcome: w.outcome, Again: true})
		}
	}
}

func (p *pass) tally(i int, of kind) *tally { return &p.tallies[p.facts[i].groups[of]] }

// count notes that a challenge takes a slot, or gives it up.
func (p *pass) count(i, by int) {
	for _, g := range p.facts[i].groups {
		p.tallies[g].processing += by
	}
}

// wait makes a challenge wait for its name: one that holds it goes first, then Ready ones, then namespaces take turns,
// then the oldest. One whose namespace is full stands in nobody's way.
func (p *pass) wait(i int) {
	name := p.tally(i, ofName)
	switch {
	case p.namespaceFull(i):
		return
	case name.first == 0:
		name.first = i + 1
		return
	}
	if holds, before := p.holds(i), p.holds(name.first-1); holds != before {
		if holds {
			name.first = i + 1
		}
		return
	}
	f, first := p.facts[i], p.facts[name.first-1]
	turn := func(f *fact) uint64 { return max(p.groups[f.groups[ofClaim]].served, f.arrived) }
	if f.Ready && !first.Ready || f.Ready == first.Ready && f.Namespace != first.Namespace && turn(f) < turn(first) {
		name.first = i + 1
	}
}

// enter puts the first in line for a name that is free into its lane.
func (p *pass) enter(i int) {
	f := p.facts[i]
	for _, of := range [...]kind{ofNamespace, ofLane} {
		if t := p.tally(i, of); t.first == 0 {
			t.first, t.turn = i+1, max(p.groups[f.groups[of]].served, f.arrived)
		}
	}
	own := p.tally(i, ofLane)
	l := own.lane
	if l == nil {
		l = &lane{own: own, namespace: p.tally(i, ofNamespace)}
		own.lane, p.lanes = l, append(p.lanes, l)
	}
	if f.Ready {
		l.queue = slices.Insert(l.queue, l.ready, i)
		l.ready++
	} else {
		l.queue = append(l.queue, i)
	}
}

// fits reports whether no limit is in the way of a challenge.
func (p *pass) fits(i int) bool {
	for _, g := range p.facts[i].groups[:ofName] {
		if p.tallies[g].processing >= p.groups[g].limit {
			return false
		}
	}
	return !p.nameTaken(i) && !p.namespaceFull(i)
}

// next is the challenge whose turn it is, -1 if none can start.
func (p *pass) next() int {
	next, of := -1, (*lane)(nil)
	for _, l := range p.lanes {
		if len(l.queue) > 0 && (of == nil || l.before(of)) && p.fits(l.queue[0]) {
			next, of = l.queue[0], l
		}
	}
	return next
}

// before reports whether a challenge of this lane starts before one of the other.
func (l *lane) before(o *lane) bool {
	switch {
	case (l.ready > 0) != (o.ready > 0):
		return l.ready > 0
	case l.namespace != o.namespace:
		return l.namespace.before(o.namespace)
	default:
		return l.own.before(o.own)
	}
}

// before reports whether it is this group's turn, rather than the other's.
func (t *tally) before(o *tally) bool {
	switch {
	case t.processing != o.processing:
		return t.processing < o.processing
	case t.turn != o.turn:
		return t.turn < o.turn
	default:
		return t.first < o.first
	}
}

// fill starts who can start.
func (p *pass) fill() (starting []int) {
	for i := p.next(); i >= 0; i = p.next() {
		p.start(i)
		starting = append(starting, i)
	}
	return starting
}

// start gives a slot to the first in line for a name.
func (p *pass) start(i int) {
	if l := p.tally(i, ofLane).lane; l != nil && len(l.queue) > 0 && l.queue[0] == i {
		l.queue, l.ready = l.queue[1:], max(l.ready-1, 0)
	}
	p.starts++
	p.tally(i, ofLane).turn, p.tally(i, ofNamespace).turn = p.starts, p.starts
	p.count(i, +1)
	if p.keeps[i] {
		p.keeps[i] = false
		p.hold(i, -1)
	}
}

// whyWaiting is what keeps a challenge in line from starting.
func (p *pass) whyWaiting(i int) Outcome {
	full := func(of kind) bool { return p.tally(i, of).processing >= p.groups[p.facts[i].groups[of]].limit }
	switch {
	case p.nameTaken(i):
		return NameBusy
	case p.namespaceFull(i):
		return NamespaceFull
	case p.tally(i, ofName).first != i+1:
		return NameBusy
	case full(ofIssuer):
		return IssuerFull
	case full(ofClass):
		return ClassFull
	default:
		return Full
	}
}

// chooseParked chooses the challenges to park. Of those that yield, the longest started come first; a challenge is
// parked if its slot lets another one start that could not start otherwise, or if another one waits for the name that
// it holds from then on: HoldsUntil ends that. To find out, it gives slots away that are not free yet.
func (p *pass) chooseParked() (chosen []int) {
	if len(p.yielding) == 0 || p.options.Cap <= 0 || len(p.queue) == len(p.starting) {
		return nil
	}
	for i, outcome := range p.outcomes {
		if outcome == Parking { // another challenge waits for this slot already
			p.release(i)
		}
	}
	p.fill()
	slices.SortStableFunc(p.yielding, func(a, b int) int { return cmp.Compare(p.facts[a].started, p.facts[b].started) })
	for _, i := range p.yielding {
		p.release(i)
		wanted := p.tally(i, ofName).first - 1
		next := wanted
		if next < 0 || !p.fits(next) {
			next = p.next()
		}
		switch {
		case next >= 0:
			p.start(next)
		case wanted < 0 || !p.holds(i):
			p.retake(i)
			continue
		}
		chosen = append(chosen, i)
	}
	return chosen
}

// release makes a challenge give up its slot, which leaves it the name that it holds; retake takes that back.
func (p *pass) release(i int) { p.swap(i, -1) }
func (p *pass) retake(i int)  { p.swap(i, +1) }

func (p *pass) swap(i, slots int) {
	p.count(i, slots)
	if p.holds(i) {
		p.hold(i, -slots)
	}
}
