package schedule

import (
	"slices"
	"time"
)

func (s *Scheduler) newTenant(name string, first bool) *tenant {
	s.seq++
	return &tenant{
		name: name, first: first, served: s.seq, index: -1, lanes: map[laneKey]*lane{},
		line: heap[*lane]{less: laneBefore, place: func(l *lane, i int) { l.index = i }},
	}
}

// laneOf finds or makes the lane of an issuer and class in a tenant.
func (s *Scheduler) laneOf(t *tenant, issuer, class *pool) *lane {
	key := laneKey{issuer.name, class.name}
	l := t.lanes[key]
	if l == nil {
		s.seq++
		l = &lane{
			tenant: t, issuer: issuer, class: class, served: s.seq, index: -1,
			items: heap[*item]{less: olderBefore, place: placeItem},
		}
		t.lanes[key] = l
		if t == s.ready {
			for _, p := range l.pools() {
				p.ready[key] = struct{}{}
			}
		}
	}
	return l
}

// admit adds an item that nothing is known of yet.
func (s *Scheduler) admit(c Challenge) *item {
	g := s.groups[keyOfGroup(c)]
	if g == nil {
		g = &group{waiters: heap[*item]{less: waiterBefore, place: placeItem}}
		s.groups[keyOfGroup(c)] = g
	}
	t := s.tenants[c.Namespace]
	if t == nil {
		t = s.newTenant(c.Namespace, false)
		s.tenants[c.Namespace] = t
	}
	class := c.Class
	if s.options.ClassCap <= 0 {
		class = "" // one lane for an issuer, as many classes as there are
	}
	l := s.laneOf(t, s.issuers.of(c.Issuer), s.classes.of(class))
	for _, p := range l.pools() {
		p.members++
	}
	g.members++
	t.members++
	l.members++
	it := &item{c: c, group: g, home: l, index: -1}
	it.c.Processing, it.c.Final = false, true // until the caller's change says otherwise
	s.items[c.Key] = it
	return it
}

// dismiss takes an item out for good, with all that only it needed.
func (s *Scheduler) dismiss(it *item) {
	l := it.home
	t, g := l.tenant, it.group
	g.members--
	t.members--
	l.members--
	delete(s.items, it.c.Key)
	if g.members == 0 {
		delete(s.groups, keyOfGroup(it.c))
	}
	if l.members == 0 {
		delete(t.lanes, l.key())
	}
	if t.members == 0 {
		delete(s.tenants, t.name)
	}
	for _, p := range l.pools() {
		p.members--
	}
	s.dissolve(s.issuers, l.issuer)
	s.dissolve(s.classes, l.class)
}

// dissolve forgets a pool without members.
func (s *Scheduler) dissolve(of pools, p *pool) {
	if p.members > 0 {
		return
	}
	delete(of.all, p.name)
	delete(s.capped, p)
	for key := range p.ready {
		for _, other := range s.ready.lanes[key].pools() {
			if other != p {
				delete(other.ready, key)
			}
		}
		delete(s.ready.lanes, key)
	}
}

// change lets f change an item, and moves it to where it then belongs.
func (s *Scheduler) change(it *item, f func()) {
	occupied, parked := it.occupies(), it.isParked()
	s.takeOut(it)
	f()
	if now := it.occupies(); now != occupied {
		s.count(it, now)
	}
	if now := it.isParked(); now != parked {
		s.parked += difference(now)
	}
	s.putIn(it)
	s.offer(it.group)
}

func difference(more bool) int {
	if more {
		return 1
	}
	return -1
}

// count notes that an item takes or frees a slot.
func (s *Scheduler) count(it *item, taken bool) {
	n := difference(taken)
	s.inFlight += n
	it.group.busy += n
	it.home.inFlight += n
	it.home.tenant.inFlight += n
	for _, p := range it.home.pools() {
		p.inFlight += n
	}
	if taken {
		s.seq++
		it.started = s.seq
		it.turned = false
	}
	s.reorder(it.home)
}

// countParking notes that an item is about to free its slot, or that this is over.
func (s *Scheduler) countParking(it *item, n int) {
	s.parking += n
	it.group.parking += n
	for _, p := range it.home.pools() {
		p.parking += n
	}
}

// settle drops a pending decision: from here on what was observed counts.
func (s *Scheduler) settle(it *item) {
	if it.pending == pendingPark && !it.applied {
		s.countParking(it, -1)
	}
	it.pending, it.applied, it.settleBy = pendingNone, false, time.Time{}
}

// putIn places an item that waits nowhere.
func (s *Scheduler) putIn(it *item) {
	switch {
	case it.occupies():
		if it.c.Yields && !it.c.Final && it.pending == pendingNone {
			it.where = inYielding
			s.yielding.push(it)
		}
	case it.c.Final, it.isParked():
	case !it.due().IsZero() && it.due().After(s.now):
		it.where = inDelayed
		s.delayed.push(it)
	default:
		if !it.turned {
			it.turn, it.turned = it.group.nextTurn(it.c.Namespace), true
		}
		s.queue(it)
	}
}

// queue has an item wait for its name.
func (s *Scheduler) queue(it *item) {
	it.where = inGroup
	it.group.waiters.push(it)
	s.queued++
}

// unqueue undoes queue.
func (s *Scheduler) unqueue(it *item) {
	it.group.waiters.remove(it.index)
	s.queued--
}

// takeOut takes an item out of where it waits.
func (s *Scheduler) takeOut(it *item) {
	switch it.where {
	case inDelayed:
		s.delayed.remove(it.index)
	case inYielding:
		s.yielding.remove(it.index)
	case inGroup:
		s.unqueue(it)
	case inLane:
		s.unexpose(it)
		it.group.candidate = nil
	case nowhere:
	}
	it.where = nowhere
}

// offer makes the first waiter of a name its candidate, unless the name is busy.
func (s *Scheduler) offer(g *group) {
	if c := g.candidate; c != nil {
		if g.busy == 0 && (g.waiters.len() == 0 || !waiterBefore(g.waiters.top(), c)) {
			return
		}
		s.takeOut(c)
		s.queue(c)
	}
	if g.busy > 0 || g.waiters.len() == 0 {
		return
	}
	it := g.waiters.top()
	s.unqueue(it)
	g.candidate, it.where = it, inLane
	s.expose(it)
}

// laneFor is where an item waits as a candidate: Ready ones wait ahead of all
// namespaces.
func (s *Scheduler) laneFor(it *item) *lane {
	if it.c.Ready {
		return s.laneOf(s.ready, it.home.issuer, it.home.class)
	}
	return it.home
}

func (s *Scheduler) expose(it *item) {
	l := s.laneFor(it)
	l.items.push(it)
	s.candidates++
	s.issuers.want(l.issuer, +1)
	s.classes.want(l.class, +1)
	if !l.hidden && l.index < 0 {
		s.show(l)
	}
}

func (s *Scheduler) unexpose(it *item) {
	l := s.laneFor(it)
	l.items.remove(it.index)
	s.candidates--
	s.issuers.want(l.issuer, -1)
	s.classes.want(l.class, -1)
	if l.items.len() == 0 && l.index >= 0 {
		s.withdraw(l)
	}
}

// show puts a lane into its tenant's line, and the tenant into the scheduler's.
func (s *Scheduler) show(l *lane) {
	t := l.tenant
	t.line.push(l)
	if t.index < 0 {
		s.line.push(t)
	}
}

// withdraw undoes show.
func (s *Scheduler) withdraw(l *lane) {
	t := l.tenant
	t.line.remove(l.index)
	if t.line.len() == 0 {
		s.line.remove(t.index)
	}
}

// reorder restores the lines after counts of a lane and its tenant have changed.
func (s *Scheduler) reorder(l *lane) {
	if l.index >= 0 {
		l.tenant.line.fix(l.index)
	}
	if l.tenant.index >= 0 {
		s.line.fix(l.tenant.index)
	}
}

// choose finds the candidate whose turn it is, also behind lanes that were hidden.
func (s *Scheduler) choose() *item {
	for {
		if it := s.pick(); it != nil || !s.unhide() {
			return it
		}
	}
}

// pick finds the candidate whose turn it is among the lanes that are shown. Those of full
// pools are hidden on the way: each is met once for each time that it was shown.
func (s *Scheduler) pick() *item {
	for s.line.len() > 0 {
		l := s.line.top().line.top()
		full := l.full()
		if full == nil {
			return l.items.top()
		}
		s.withdraw(l)
		s.hide(l, full)
	}
	return nil
}

// hide keeps a lane that is not in the line out of it until a pool has room.
func (s *Scheduler) hide(l *lane, full *pool) {
	l.hidden = true
	full.hidden = append(full.hidden, l)
	s.capped[full] = struct{}{}
}

// unhide shows as many lanes of each pool as it has room for, and reports whether it has
// shown any. A lane whose other pool is full waits there.
func (s *Scheduler) unhide() (shown bool) {
	for p := range s.capped {
		for room := p.cap - p.inFlight; room > 0 && len(p.hidden) > 0; {
			l := p.hidden[0]
			p.hidden = p.hidden[1:]
			l.hidden = false
			switch full := l.full(); {
			case l.items.len() == 0:
			case full != nil:
				s.hide(l, full)
			default:
				s.show(l)
				shown = true
				room--
			}
		}
		if len(p.hidden) == 0 {
			delete(s.capped, p)
		}
	}
	return shown
}

// start gives an item a slot.
func (s *Scheduler) start(it *item) {
	l, g := s.laneFor(it), it.group
	s.seq++
	for _, served := range []*lane{l, it.home} {
		served.served, served.tenant.served = s.seq, s.seq
		s.reorder(served)
	}
	g.turn = max(g.turn, it.turn)
	s.change(it, func() { it.pending, it.applied = pendingStart, false })
}

// victims chooses whom to park: processing challenges that yield, longest
// processing first, each only if it stands in somebody's way. When nobody waits, as
// in most passes, it looks at nobody.
func (s *Scheduler) victims(now time.Time) []*item {
	if s.yielding.len() == 0 || s.candidates+s.queued == 0 || s.options.Cap <= 0 {
		return nil
	}
	candidates := slices.Clone(s.yielding.items)
	slices.SortFunc(candidates, func(a, b *item) int {
		if startedBefore(a, b) {
			return -1
		}
		return 1
	})
	wanted := s.startable(s.parking + len(candidates))
	parking, chosenOf := s.parking, map[*pool]int{}
	var chosen []*item
	for _, it := range candidates {
		l, g := it.home, it.group
		global := s.inFlight >= s.options.Cap && wanted > parking
		name := g.busy == 1 && g.parking == 0 && wouldStart(g, l)
		inTheWay := false
		for _, p := range l.pools() {
			inTheWay = inTheWay || p.full() && p.waiting > p.parking+chosenOf[p]
		}
		if it.retryAt.After(now) || (!name && !inTheWay && !global) {
			continue
		}
		parking++
		for _, p := range l.pools() {
			chosenOf[p]++
		}
		chosen = append(chosen, it)
	}
	return chosen
}

// wouldStart reports whether the first waiter of a name could start if a challenge
// of a lane, which holds the name, gave up its slot.
func wouldStart(g *group, holder *lane) bool {
	if g.waiters.len() == 0 {
		return false
	}
	wants := g.waiters.top().home
	return (wants.issuer == holder.issuer || !wants.issuer.full()) && (wants.class == holder.class || !wants.class.full())
}

// startable counts, up to a limit, the candidates that only lack a slot: at most so many
// where both of a lane's pools have limits.
func (s *Scheduler) startable(limit int) int {
	return min(s.issuers.startable(limit), s.classes.startable(limit))
}

// releaseDue moves challenges whose time has come into the line.
func (s *Scheduler) releaseDue(now time.Time) {
	for s.delayed.len() > 0 && !s.delayed.top().due().After(now) {
		s.change(s.delayed.top(), func() {})
	}
}

// forgetUnobserved drops written decisions that have not been observed for long:
// the object has moved on since.
func (s *Scheduler) forgetUnobserved(now time.Time) {
	kept := s.settling[:0]
	for _, it := range s.settling {
		switch {
		case it.pending == pendingNone || !it.applied || s.items[it.c.Key] != it:
			continue
		case it.settleBy.IsZero():
			it.settleBy = now.Add(settleLimit)
		case !now.Before(it.settleBy):
			s.change(it, func() { s.settle(it) })
			continue
		}
		kept = append(kept, it)
	}
	clear(s.settling[len(kept):])
	s.settling = kept
}

// wake is when the next pass is due though nothing happens.
func (s *Scheduler) wake() time.Time {
	var at time.Time
	if s.delayed.len() > 0 {
		at = s.delayed.top().due()
	}
	for _, it := range s.settling {
		if at.IsZero() || (!it.settleBy.IsZero() && it.settleBy.Before(at)) {
			at = it.settleBy
		}
	}
	return at
}
