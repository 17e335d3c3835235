// Package schedule decides which queued challenges start, and which running
// ones give their slot to others.
//
// It is a pure index: the caller tells it about every Challenge with Set and
// Remove, and asks Next what to write. The rules are mission rules 2, 3 and 6:
//
//   - never more than Options.Cap challenges processing, nor more than
//     Options.IssuerCap of one issuer, nor more than Options.ClassCap whose routes
//     are served by the same ingress class or Gateway;
//   - never two processing for the same (DNS name, type), whatever their
//     namespace, issuer or wildcard (spec §5.6);
//   - fair between namespaces (the one with the fewest processing goes first,
//     in turns), then between the issuers of a namespace, then oldest first;
//   - a challenge that yields (its self check keeps failing, its CA is silent)
//     is parked while others wait for what it holds, and only then. When its self
//     check passes it is Ready: first in line.
//
// Every event and every decision costs O(log n). There is no loop and no clock
// here, nothing is written and nobody is called; the conversation of one
// challenge with its CA and its solver belongs to internal/acmeflow. After a
// restart the index is rebuilt from the resources by Load: the only things that
// are lost are whose turn it was and what Ready and Yields say, which their
// owner finds out again.
package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// DefaultCap is how many challenges are processing at most unless configured
// otherwise (spec §5.6).
const DefaultCap = 60

const (
	// settleLimit bounds how long a write that was reported as done overrules
	// observations that do not show it.
	settleLimit = 30 * time.Second
	// retryDelay holds back a challenge whose write has failed.
	retryDelay = time.Second
)

// Key names a Challenge.
type Key struct {
	// Namespace is the namespace of the Challenge.
	Namespace string
	// Name is the name of the Challenge.
	Name string
}

// String returns namespace/name.
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Challenge is what the scheduler needs to know of one Challenge.
type Challenge struct {
	Key
	// DNSName is spec.dnsName; upper and lower case are the same name.
	DNSName string
	// Type is spec.type, for example HTTP-01.
	Type string
	// Issuer names the issuer, kind and namespace included; the scheduler only
	// compares it.
	Issuer string
	// Class names what serves its route, an ingress class or a Gateway; empty if it has
	// none. The scheduler only compares it.
	Class string
	// Created is metadata.creationTimestamp.
	Created time.Time

	// Processing is status.processing: the challenge holds a slot.
	Processing bool
	// Presented is status.presented.
	Presented bool
	// Final is set once status.state is final or the Challenge is being deleted:
	// it will never be started.
	Final bool

	// Yields says that others may have the slot (acmeflow.ChallengeAction.Yield).
	Yields bool
	// Ready says that a parked challenge has what it waited for and is first in
	// line (acmeflow.ChallengeAction.Ready).
	Ready bool
	// NotBefore is the earliest time at which a start makes sense; zero for any time
	// (acmeflow.ChallengeAction.NotBefore).
	NotBefore time.Time
}

// Outcome says where a challenge stands. The order is that of progress.
type Outcome int

const (
	// Unknown: the scheduler has not been told about the challenge.
	Unknown Outcome = iota
	// Ended: final; it never starts again.
	Ended
	// Parked: presented, its slot is free, its self check goes on.
	Parked
	// Delayed: it waits for its NotBefore.
	Delayed
	// NameBusy: another challenge for the same name and type is processing or is
	// ahead in line.
	NameBusy
	// IssuerFull: its issuer has Options.IssuerCap challenges processing.
	IssuerFull
	// ClassFull: of its class, Options.ClassCap challenges are processing.
	ClassFull
	// Full: Options.Cap challenges are processing.
	Full
	// Eligible: nothing is in its way; the next pass starts it.
	Eligible
	// Starting: decided; status.processing=true is to be written.
	Starting
	// Parking: decided; status.processing=false is to be written.
	Parking
	// Processing: it holds a slot.
	Processing
)

// String returns the name of the outcome.
func (o Outcome) String() string {
	names := [...]string{
		"Unknown", "Ended", "Parked", "Delayed", "NameBusy", "IssuerFull", "ClassFull",
		"Full", "Eligible", "Starting", "Parking", "Processing",
	}
	if o < 0 || int(o) >= len(names) {
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
	return names[o]
}

// Decision is one status to write.
type Decision struct {
	Key
	// Outcome is Starting or Parking.
	Outcome Outcome
}

// Pass is the result of Next.
type Pass struct {
	// Decisions are to be written. The caller MUST call Applied once for each.
	Decisions []Decision
	// Wake is when Next has to be called again if nothing happens before; zero for
	// never.
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

// Stats counts challenges.
type Stats struct {
	// Processing hold a slot.
	Processing int
	// Parked are presented without a slot.
	Parked int
	// Total is the number of challenges in the index, ended ones included.
	Total int
}

// Scheduler is the index. It is not safe for concurrent use.
type Scheduler struct {
	options Options
	// now is the time of the last pass.
	now time.Time
	// seq grows with each start and each new tenant or lane: it says whose turn it is.
	seq uint64

	items   map[Key]*item
	groups  map[groupKey]*group
	issuers pools
	classes pools
	tenants map[string]*tenant
	// ready is the tenant of all challenges that are Ready: always first.
	ready *tenant

	// line holds the tenants that have a candidate in a lane that is not hidden.
	line heap[*tenant]
	// delayed holds challenges that wait for a time.
	delayed heap[*item]
	// yielding holds processing challenges whose slot others may have.
	yielding heap[*item]
	// settling holds written decisions that have not been observed yet, oldest first.
	settling []*item
	// capped are the pools that have hidden lanes.
	capped map[*pool]struct{}

	inFlight, parking, parked int
	// candidates are first in line for their names, queued wait behind them or for a
	// name that is busy.
	candidates, queued int
}

// New returns an empty scheduler.
func New(o Options) *Scheduler {
	s := &Scheduler{
		options: o,
		items:   map[Key]*item{},
		groups:  map[groupKey]*group{},
		issuers: newPools(o.IssuerCap),
		classes: newPools(o.ClassCap),
		tenants: map[string]*tenant{},
		capped:  map[*pool]struct{}{},
	}
	s.line = heap[*tenant]{less: tenantBefore, place: func(t *tenant, i int) { t.index = i }}
	s.delayed = heap[*item]{less: dueBefore, place: placeItem}
	s.yielding = heap[*item]{less: startedBefore, place: placeItem}
	s.ready = s.newTenant("", true)
	return s
}

// Load tells the scheduler about many challenges, oldest first, as after a
// restart.
func (s *Scheduler) Load(challenges []Challenge) {
	sorted := slices.Clone(challenges)
	slices.SortFunc(sorted, func(a, b Challenge) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.Key.String(), b.Key.String())
	})
	for _, c := range sorted {
		s.Set(c)
	}
}

// Set adds a challenge or replaces what is known of it. Observations may lag
// behind decisions: a decision stands until it is observed or Applied says that
// it failed.
func (s *Scheduler) Set(c Challenge) {
	it := s.items[c.Key]
	if it != nil && !it.sameAs(c) {
		s.Remove(c.Key)
		it = nil
	}
	if it == nil {
		it = s.admit(c)
	} else if it.c == c {
		return
	}
	s.change(it, func() {
		it.c = c
		if c.Final || (it.pending == pendingStart && c.Processing) || (it.pending == pendingPark && !c.Processing) {
			s.settle(it)
		}
	})
}

// Remove forgets a challenge that no longer exists.
func (s *Scheduler) Remove(k Key) {
	it := s.items[k]
	if it == nil {
		return
	}
	s.change(it, func() {
		s.settle(it)
		it.c.Processing, it.c.Final = false, true
	})
	s.dismiss(it)
}

// Applied reports whether a decision has been written. It MUST be called once
// for each decision, and not before the API server has answered: a slot is
// only given away after processing=false is known to be written.
func (s *Scheduler) Applied(k Key, written bool) {
	it := s.items[k]
	if it == nil || it.pending == pendingNone {
		return
	}
	s.change(it, func() {
		if !written {
			s.settle(it)
			it.retryAt = s.now.Add(retryDelay)
			return
		}
		if it.pending == pendingPark {
			s.countParking(it, -1)
		}
		it.applied = true
		s.settling = append(s.settling, it)
	})
}

// Next decides what to start and what to park now. It is cheap when there is
// nothing to do, and is to be called after every event and at Pass.Wake.
func (s *Scheduler) Next(now time.Time) Pass {
	s.now = now
	s.forgetUnobserved(now)
	s.releaseDue(now)
	s.unhide()
	var pass Pass
	for s.inFlight < s.options.Cap {
		it := s.choose()
		if it == nil {
			break
		}
		s.start(it)
		pass.Decisions = append(pass.Decisions, Decision{Key: it.c.Key, Outcome: Starting})
	}
	for _, it := range s.victims(now) {
		s.change(it, func() {
			it.pending, it.applied = pendingPark, false
			s.countParking(it, +1)
		})
		pass.Decisions = append(pass.Decisions, Decision{Key: it.c.Key, Outcome: Parking})
	}
	pass.Wake = s.wake()
	return pass
}

// Stats counts the challenges.
func (s *Scheduler) Stats() Stats {
	return Stats{Processing: s.inFlight, Parked: s.parked, Total: len(s.items)}
}

// Explain says where a challenge stands, as of the last pass.
func (s *Scheduler) Explain(k Key) Outcome {
	it := s.items[k]
	switch {
	case it == nil:
		return Unknown
	case it.pending == pendingStart:
		return Starting
	case it.pending == pendingPark && !it.applied:
		return Parking
	case it.occupies():
		return Processing
	case it.c.Final:
		return Ended
	case it.isParked():
		return Parked
	case it.where == inDelayed:
		return Delayed
	case it.where == inGroup:
		return NameBusy
	case it.home.issuer.full():
		return IssuerFull
	case it.home.class.full():
		return ClassFull
	case s.inFlight >= s.options.Cap:
		return Full
	default:
		return Eligible
	}
}
