package schedule

import (
	"slices"
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

func (s *Scheduler) newTenant(name string, first bool) *tenant {
	s.seq++
	return &tenant{
		name: name, first: first, served: s.seq, index: -1, lanes: map[string]*lane{},
		line: heap[*lane]{less: laneBefore, place: func(l *lane, i int) { l.index = i }},
	}
}

// laneOf finds or makes the lane of an issuer in a tenant.
func (s *Scheduler) laneOf(t *tenant, i *issuer) *lane {
	l := t.lanes[i.name]
	if l == nil {
		s.seq++
		l = &lane{
			tenant: t, issuer: i, served: s.seq, index: -1,
			items: heap[*item]{less: olderBefore, place: placeItem},
		}
		t.lanes[i.name] = l
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
	i := s.issuers[c.Issuer]
	if i == nil {
		i = &issuer{name: c.Issuer}
		s.issuers[c.Issuer] = i
	}
	t := s.tenants[c.Namespace]
	if t == nil {
		t = s.newTenant(c.Namespace, false)
		s.tenants[c.Namespace] = t
	}
	l := s.laneOf(t, i)
	g.members++
	i.members++
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
	t, i, g := l.tenant, l.issuer, it.group
	g.members--
	i.members--
	t.members--
	l.members--
	delete(s.items, it.c.Key)
	if g.members == 0 {
		delete(s.groups, keyOfGroup(it.c))
	}
	if l.members == 0 {
		delete(t.lanes, i.name)
	}
	if t.members == 0 {
		delete(s.tenants, t.name)
	}
	if i.members == 0 {
		delete(s.issuers, i.name)
		delete(s.ready.lanes, i.name)
		delete(s.capped, i)
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
	it.home.issuer.inFlight += n
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
	it.home.issuer.parking += n
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
		it.where = inGroup
		it.group.waiters.push(it)
	}
}

// takeOut takes an item out of where it waits.
func (s *Scheduler) takeOut(it *item) {
	switch it.where {
	case inDelayed:
		s.delayed.remove(it.index)
	case inYielding:
		s.yielding.remove(it.index)
	case inGroup:
		it.group.waiters.remove(it.index)
	case inLane:
		s.unexpose(it)
		it.group.candidate = nil
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
		c.where = inGroup
		g.waiters.push(c)
	}
	if g.busy > 0 || g.waiters.len() == 0 {
		return
	}
	it := g.waiters.top()
	g.waiters.remove(0)
	g.candidate, it.where = it, inLane
	s.expose(it)
}

// laneFor is where an item waits as a candidate: Ready ones wait ahead of all
// namespaces.
func (s *Scheduler) laneFor(it *item) *lane {
	if it.c.Ready {
		return s.laneOf(s.ready, it.home.issuer)
	}
	return it.home
}

func (s *Scheduler) expose(it *item) {
	l := s.laneFor(it)
	l.items.push(it)
	s.candidates++
	l.issuer.waiting++
	s.waiting[l.issuer] = struct{}{}
	if !l.hidden && l.index < 0 {
		s.show(l)
	}
}

func (s *Scheduler) unexpose(it *item) {
	l := s.laneFor(it)
	l.items.remove(it.index)
	s.candidates--
	if l.issuer.waiting--; l.issuer.waiting == 0 {
		delete(s.waiting, l.issuer)
	}
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

// full reports whether the issuer may not start any more.
func (s *Scheduler) full(i *issuer) bool {
	return s.options.IssuerCap > 0 && i.inFlight >= s.options.IssuerCap
}

// pick finds the candidate whose turn it is. Lanes of full issuers are hidden on
// the way: each is met once for each time that it was shown.
func (s *Scheduler) pick() *item {
	for s.line.len() > 0 {
		l := s.line.top().line.top()
		if !s.full(l.issuer) {
			return l.items.top()
		}
		s.withdraw(l)
		l.hidden = true
		l.issuer.hidden = append(l.issuer.hidden, l)
		s.capped[l.issuer] = struct{}{}
	}
	return nil
}

// unhide shows as many lanes of each issuer as it has room for.
func (s *Scheduler) unhide() {
	for i := range s.capped {
		for room := s.options.IssuerCap - i.inFlight; room > 0 && len(i.hidden) > 0; {
			l := i.hidden[0]
			i.hidden = i.hidden[1:]
			l.hidden = false
			if l.items.len() > 0 {
				s.show(l)
				room--
			}
		}
		if len(i.hidden) == 0 {
			delete(s.capped, i)
		}
	}
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
// processing first, each only if it stands in somebody's way.
func (s *Scheduler) victims(now time.Time) []*item {
	if s.yielding.len() == 0 || s.options.Cap <= 0 {
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
	parking, byIssuer := s.parking, map[*issuer]int{}
	var chosen []*item
	for _, it := range candidates {
		i, g := it.home.issuer, it.group
		issuerParking := i.parking + byIssuer[i]
		name := g.busy == 1 && g.parking == 0 && s.wouldStart(g, i)
		issuer := s.full(i) && i.waiting > issuerParking
		global := s.inFlight >= s.options.Cap && wanted > parking
		if it.retryAt.After(now) || (!name && !issuer && !global) {
			continue
		}
		parking++
		byIssuer[i]++
		chosen = append(chosen, it)
	}
	return chosen
}

// wouldStart reports whether the first waiter of a name could start if a challenge
// of the issuer that holds the name gave up its slot.
func (s *Scheduler) wouldStart(g *group, holder *issuer) bool {
	if g.waiters.len() == 0 {
		return false
	}
	wants := g.waiters.top().home.issuer
	return wants == holder || !s.full(wants)
}

// startable counts, up to a limit, the candidates that only lack a slot.
func (s *Scheduler) startable(limit int) int {
	if s.options.IssuerCap <= 0 {
		return min(s.candidates, limit)
	}
	n := 0
	for i := range s.waiting {
		n += max(0, min(i.waiting, s.options.IssuerCap-i.inFlight+i.parking))
		if n >= limit {
			return limit
		}
	}
	return n
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
