// Package schedule decides which queued challenges start, and which running challenges give their slot to others. The
// rules are mission rules 2, 3 and 6 (docs/mission.md):
//
//   - at most Options.Cap challenges are processing. At most Options.IssuerCap of them are of one issuer. At most
//     Options.ClassCap of them have routes that one ingress class or Gateway serves;
//   - no two challenges for the same (DNS name, type) are processing, whatever their namespace, issuer or wildcard
//     (spec §5.6);
//   - namespaces take fair turns: the namespace with the fewest challenges processing is next. If several have the
//     fewest, the one that was served longest ago is next. The issuers of a namespace take turns in the same way. After
//     that, the oldest challenge is first;
//   - a challenge whose self check keeps failing, or whose CA is silent, may be parked (Challenge.Yields). It keeps its
//     slot until another challenge needs the slot to start, or until another challenge waits for the same DNS name and
//     type. A parked challenge is not processing any more. When its self check passes, it is Ready: it is the first to
//     start;
//   - if the CA may still validate a parked challenge, the challenge holds its DNS name and type until
//     Challenge.HoldsUntil: no other challenge for this name and type starts before;
//   - a namespace has at most 2 × Options.Cap challenges that are processing, or are parked and still hold their name.
//
// Each call of Next makes one pass (pass.go), which is a pure function. The pass works on what is known of each
// challenge, on past turns and starts, on the writes without an answer yet, and on the time. Scheduler keeps all of
// this between passes. The package has no loop and no clock, writes nothing and calls nothing. After a restart, what is
// known of the challenges comes from the resources. A restart loses the turns, and the values of Ready, Yields and
// NotBefore: the caller finds these values out again.
package schedule

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/pki"
)

// DefaultCap is how many challenges are processing at most unless configured otherwise (spec §5.6).
const DefaultCap = 60

// retryDelay holds back a challenge whose write has failed, and a write whose answer was lost.
const retryDelay = time.Second

// manyVacant is how many vacant places of groups do no harm.
const manyVacant = 1000

// restPerFact is more than ten times what a pass takes for one challenge.
const restPerFact = 5 * time.Microsecond

// Key names a Challenge.
type Key = types.NamespacedName

// Challenge is what is known of one Challenge.
type Challenge struct {
	Key
	// UID tells apart Challenges that have the same Key one after the other.
	UID types.UID
	// DNSName is spec.dnsName; upper and lower case are the same name.
	DNSName string
	// Type is spec.type, for example HTTP-01.
	Type string
	// Issuer names the issuer, kind and namespace included.
	Issuer string
	// Class names the ingress class or the Gateway that serves its route; empty if there is no route.
	Class string
	// Created is metadata.creationTimestamp.
	Created time.Time

	// Processing is status.processing: the challenge holds a slot.
	Processing bool
	// Presented is status.presented.
	Presented bool
	// Final is set once status.state is final or the Challenge is being deleted: it is never started again.
	Final bool

	// Yields says that others may have the slot.
	Yields bool
	// Ready says that a parked challenge has what it waited for, and is first in line.
	Ready bool
	// NotBefore is the earliest time at which a start makes sense; zero for any time.
	NotBefore time.Time
	// HoldsUntil is until when no other challenge for the name and type may start, although this one is parked: its CA
	// may be validating. It is zero while the CA has not been told to.
	HoldsUntil time.Time
}

// waits reports whether the challenge wants a slot, now or later.
func (c *Challenge) waits() bool { return !c.Processing && !c.Final && (!c.Presented || c.Ready) }

// Outcome says how far a challenge has come. The order is that of progress.
type Outcome int

const (
	// Unknown: no pass has looked at the challenge.
	Unknown Outcome = iota
	// Ended: it never starts again.
	Ended
	// Parked: presented, its slot is free, its self check goes on.
	Parked
	// Delayed: it waits for its NotBefore, or for a write to be tried again.
	Delayed
	// NameBusy: another challenge for the same name and type is processing, holds the name or is ahead in line.
	NameBusy
	// IssuerFull: its issuer has Options.IssuerCap challenges processing.
	IssuerFull
	// ClassFull: of its class, Options.ClassCap challenges are processing.
	ClassFull
	// NamespaceFull: of its namespace, twice Options.Cap are processing or hold their name.
	NamespaceFull
	// Full: Options.Cap challenges are processing.
	Full
	// Starting: decided; status.processing=true is to be written.
	Starting
	// Parking: decided; status.processing=false is to be written.
	Parking
	// Processing: it holds a slot.
	Processing
)

// String returns the name of the outcome.
func (o Outcome) String() string {
	return [...]string{
		"Unknown", "Ended", "Parked", "Delayed", "NameBusy", "IssuerFull", "ClassFull", "NamespaceFull", "Full", "Starting", "Parking",
		"Processing",
	}[o]
}

// Decision is one status to write.
type Decision struct {
	Key
	// Outcome is Starting or Parking.
	Outcome Outcome
	// Again says that the answer to the same write was lost before: the caller has to find out whether it was done.
	Again bool
}

// Pass is the result of Next.
type Pass struct {
	// Decisions are to be written. The caller MUST report the answer to each, with Answered or Lost.
	Decisions []Decision
	// Wake is when Next has to be called again if nothing changes before; zero for never.
	Wake time.Time
}

// Options are the limits.
type Options struct {
	// Cap is how many challenges are processing at most; 0 blocks everything.
	Cap int
	// IssuerCap is how many of one issuer are processing at most; 0 for no limit.
	IssuerCap int
	// ClassCap is how many of one class are processing at most; 0 for no limit.
	ClassCap int
}

// Scheduler keeps what passes look at. It is not safe for concurrent use.
type Scheduler struct {
	state

	byKey  map[Key]*fact
	places map[groupKey]int
	vacant []int
}

// state is all that a pass looks at.
type state struct {
	options Options
	// facts are sorted by age, oldest first.
	facts []*fact
	// groups are what facts have in common; places that Scheduler has as vacant hold none.
	groups []group
	// writes are those of decisions that are not answered yet.
	writes map[Key]write
	// starts is how many starts there have been.
	starts uint64
	// now is the time of the last pass.
	now time.Time
}

// fact is what is known of one challenge.
type fact struct {
	Challenge

	// groups are the places of the groups that the challenge is in, by kind.
	groups [kinds]int
	// arrived is how many starts there had been when the challenge became known: it stands behind all who were served
	// before that, and before all who are served later.
	arrived uint64
	// started is which start was its own; 0 if an earlier process started it.
	started uint64
	// retryAt is when to decide again after a write that was refused.
	retryAt time.Time
	// outcome is that of the last pass.
	outcome Outcome
}

// due is the earliest time at which the challenge may start.
func (f *fact) due() time.Time {
	if f.retryAt.After(f.NotBefore) {
		return f.retryAt
	}
	return f.NotBefore
}

// write is a decision whose answer has not come yet; again is when to write once more because the answer was lost.
type write struct {
	outcome Outcome
	again   time.Time
}

// kind is what the challenges of a group have in common.
type kind int

const (
	// Each challenge is in one group of each kind. The first five kinds have a limit: so many may be processing.
	everything kind = iota
	ofIssuer
	ofClass
	ofName      // and type: one may be processing
	ofNamespace // one may have all slots
	// Groups of the last three kinds take turns: namespaces, the lanes (an issuer and class each) of a namespace, the
	// claims (a namespace each) to a name.
	ofLane
	ofClaim
	kinds
)

// groupKey names a group.
type groupKey struct {
	kind    kind
	a, b, c string
}

// group is challenges that have something in common.
type group struct {
	key            groupKey
	limit, members int
	// served is which start was the last one in the group.
	served uint64
}

// New returns a scheduler that knows of no challenge.
func New(o Options) *Scheduler {
	return &Scheduler{
		state: state{options: o, writes: map[Key]write{}}, byKey: map[Key]*fact{}, places: map[groupKey]int{},
	}
}

// Challenge returns what is known of a challenge.
func (s *Scheduler) Challenge(k Key) (c Challenge, known bool) {
	f := s.byKey[k]
	if f == nil {
		return Challenge{}, false
	}
	return f.Challenge, true
}

// Set notes the present state of a challenge, own writes included, and reports whether a pass would see a difference.
// The identity of a challenge (its UID, name and so on) never changes.
func (s *Scheduler) Set(c Challenge) (changed bool) {
	f := s.byKey[c.Key]
	if f != nil && (f.UID != c.UID || !f.Created.Equal(c.Created)) {
		s.Remove(c.Key)
		f = nil
	}
	if f == nil {
		f = &fact{Challenge: c, arrived: s.starts}
		s.byKey[c.Key] = f
		i, _ := slices.BinarySearchFunc(s.facts, f, byAge)
		s.facts = slices.Insert(s.facts, i, f)
		s.join(f)
		return true
	}
	old := f.Challenge
	f.Challenge = c
	if !c.waits() { // when it may start says nothing about one that does not wait for that
		old.NotBefore, c.NotBefore = time.Time{}, time.Time{}
	}
	return old != c
}

// Remove forgets a challenge that no longer exists, and reports whether it was known.
func (s *Scheduler) Remove(k Key) (changed bool) {
	f := s.byKey[k]
	if f == nil {
		return false
	}
	delete(s.byKey, k)
	i, _ := slices.BinarySearchFunc(s.facts, f, byAge)
	s.facts = slices.Delete(s.facts, i, i+1)
	for _, place := range f.groups {
		g := &s.groups[place]
		if g.members--; g.members == 0 { // a group that comes back stands behind all that have waited: no turn is lost or won
			delete(s.places, g.key)
			s.vacant = append(s.vacant, place)
		}
	}
	if len(s.vacant) > len(s.places)+manyVacant {
		s.compact()
	}
	return true
}

// compact gives the groups new places, with none vacant: each place costs every pass a little.
func (s *Scheduler) compact() {
	old, moved := s.groups, make([]int, len(s.groups))
	s.groups, s.vacant = nil, nil
	for key, place := range s.places {
		moved[place], s.places[key] = len(s.groups), len(s.groups)
		s.groups = append(s.groups, old[place])
	}
	for _, f := range s.facts {
		for i, place := range f.groups {
			f.groups[i] = moved[place]
		}
	}
}

// byAge sorts facts, oldest first.
func byAge(a, b *fact) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// join puts a challenge into its groups.
func (s *Scheduler) join(f *fact) {
	class, name := f.Class, pki.DNSNameKey(f.DNSName)
	limits := [kinds]int{s.options.Cap, s.options.IssuerCap, s.options.ClassCap, 1, s.options.Cap}
	if class == "" || s.options.ClassCap <= 0 {
		class, limits[ofClass] = "", 0
	}
	for i, key := range [kinds]groupKey{
		{kind: everything}, {ofIssuer, f.Issuer, "", ""}, {ofClass, class, "", ""}, {ofName, name, f.Type, ""},
		{ofNamespace, f.Namespace, "", ""}, {ofLane, f.Namespace, f.Issuer, class}, {ofClaim, f.Namespace, name, f.Type},
	} {
		place, found := s.places[key]
		if !found {
			place = s.found(group{key: key, limit: limits[i]})
		}
		s.groups[place].members++
		f.groups[i] = place
	}
}

// found gives a new group a place.
func (s *Scheduler) found(g group) (place int) {
	if g.limit <= 0 && g.key.kind != everything {
		g.limit = math.MaxInt
	}
	if last := len(s.vacant) - 1; last >= 0 {
		place, s.vacant = s.vacant[last], s.vacant[:last]
		s.groups[place] = g
	} else {
		place, s.groups = len(s.groups), append(s.groups, g)
	}
	s.places[g.key] = place
	return place
}

// Answered notes that the API server has answered the write of a decision. If the write was done, the caller MUST have
// told Set before. If it was refused, the challenge is held back a little. So is a challenge that was parked with
// nothing presented: as the oldest, it might take back the slot that it has just given up for others.
func (s *Scheduler) Answered(k Key, written bool) {
	parked := s.writes[k].outcome == Parking
	delete(s.writes, k)
	if f := s.byKey[k]; f != nil && (!written || parked && !f.Presented) {
		f.retryAt = s.now.Add(retryDelay)
	}
}

// Lost notes that nobody knows whether a decision was written. The decision stands, and is repeated.
func (s *Scheduler) Lost(k Key) {
	if w, ok := s.writes[k]; ok {
		w.again = s.now.Add(retryDelay)
		s.writes[k] = w
	}
}

// Next decides what to start and what to park now. It is to be called when something has changed, and at Pass.Wake.
func (s *Scheduler) Next(now time.Time) Pass {
	s.now = now
	plan := decide(s.state)
	for i, f := range s.facts {
		f.outcome = plan.outcomes[i]
	}
	for _, i := range plan.starting {
		f := s.facts[i]
		s.starts++
		f.started = s.starts
		for _, g := range f.groups[ofNamespace:] {
			s.groups[g].served = s.starts
		}
	}
	for _, d := range plan.Decisions {
		s.writes[d.Key] = write{outcome: d.Outcome}
	}
	return plan.Pass
}

// Rest is how long to rest between two passes: ten times what one takes or more, so that passes take a small part of a
// core however often something changes.
func (s *Scheduler) Rest() time.Duration { return time.Duration(len(s.facts)) * restPerFact }

// Waiting tells, oldest first, who waited for a slot in the last pass, for what, and until when if that is known.
func (s *Scheduler) Waiting(tell func(c Challenge, why Outcome, until time.Time)) {
	for _, f := range s.facts {
		if f.outcome >= Delayed && f.outcome < Starting {
			tell(f.Challenge, f.outcome, f.due())
		}
	}
}
