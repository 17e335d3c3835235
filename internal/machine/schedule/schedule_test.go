package schedule

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func key(namespace, name string) Key { return Key{Namespace: namespace, Name: name} }

// challenge is a queued DNS-01 challenge; age orders challenges, oldest first.
func challenge(namespace, name, domain string, age int) Challenge {
	return Challenge{
		Key: key(namespace, name), DNSName: domain, Type: "DNS-01", Issuer: "acme",
		Created: epoch.Add(time.Duration(age) * time.Second),
	}
}

// world is a scheduler, and the objects that it is told about. It plays the part of
// the API server and of the watch.
type world struct {
	t   *testing.T
	s   *Scheduler
	now time.Time
	obj map[Key]Challenge
}

func newWorld(t *testing.T, o Options) *world {
	t.Helper()
	return &world{t: t, s: New(o), now: epoch, obj: map[Key]Challenge{}}
}

func (w *world) set(c Challenge) {
	w.obj[c.Key] = c
	w.s.Set(c)
}

func (w *world) amend(k Key, f func(*Challenge)) {
	c := w.obj[k]
	f(&c)
	w.set(c)
}

// run makes passes, and writes what they decide, until nothing is decided.
func (w *world) run() (started, parked []string) {
	for range 1000 {
		pass := w.s.Next(w.now)
		if len(pass.Decisions) == 0 {
			return started, parked
		}
		for _, d := range pass.Decisions {
			if d.Outcome == Starting {
				started = append(started, d.Name)
			} else {
				parked = append(parked, d.Name)
			}
			w.amend(d.Key, func(c *Challenge) {
				c.Processing = d.Outcome == Starting
				if !c.Processing {
					c.Yields = false
				}
			})
			w.s.Answered(d.Key, true)
		}
		w.check()
	}
	w.t.Fatal("the scheduler does not come to rest")
	return nil, nil
}

// check holds the stored objects against mission rule 3.
func (w *world) check() {
	w.t.Helper()
	names, n, namespaces, issuers, classes := map[groupKey]Key{}, 0, map[string]int{}, map[string]int{}, map[string]int{}
	for k, c := range w.obj {
		if !c.Processing && (c.Final || !c.HoldsUntil.After(w.now)) {
			continue
		}
		if namespaces[k.Namespace]++; c.Processing {
			n++
		}
		name := groupKey{ofName, strings.ToLower(strings.TrimSuffix(c.DNSName, ".")), c.Type, ""}
		if other, twice := names[name]; twice {
			w.t.Fatalf("%s and %s are processing, or hold the name, for %s", other, k, c.DNSName)
		}
		names[name] = k
		if !c.Processing {
			continue
		}
		issuers[c.Issuer]++
		if c.Class != "" {
			classes[c.Class]++
		}
	}
	for limit, counts := range map[*int]map[string]int{&w.s.options.IssuerCap: issuers, &w.s.options.ClassCap: classes} {
		for name, n := range counts {
			if *limit > 0 && n > *limit {
				w.t.Fatalf("%d of %s are processing, the cap is %d", n, name, *limit)
			}
		}
	}
	if n > w.s.options.Cap {
		w.t.Fatalf("%d are processing, the cap is %d", n, w.s.options.Cap)
	}
	for name, n := range namespaces {
		if n > 2*w.s.options.Cap {
			w.t.Fatalf("%d of %s are processing or hold their name, the cap is %d", n, name, w.s.options.Cap)
		}
	}
}

// running is the challenge that is processing, where only one is.
func (w *world) running() Key {
	for k, c := range w.obj {
		if c.Processing {
			return k
		}
	}
	w.t.Fatal("none is processing")
	return Key{}
}

// explain says where a challenge stood in the last pass.
func (w *world) explain(k Key) Outcome {
	if f := w.s.byKey[k]; f != nil {
		return f.outcome
	}
	return Unknown
}

// outcomes counts where the challenges stand.
func (w *world) outcomes() map[Outcome]int {
	counts := map[Outcome]int{}
	for k := range w.obj {
		counts[w.explain(k)]++
	}
	return counts
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestRule2_NothingIsProcessingBeforeTheSchedulerSaysSo(t *testing.T) {
	w := newWorld(t, Options{Cap: 0})
	w.set(challenge("a", "c1", "x.example.com", 1))
	started, _ := w.run()
	equal(t, len(started), 0)
	equal(t, w.explain(key("a", "c1")), Full)
}

func TestRule3_CapAndOneAtATimeForANameAndType(t *testing.T) {
	w := newWorld(t, Options{Cap: 3})
	w.set(challenge("a", "apex", "X.example.com", 2))
	w.set(challenge("b", "wildcard", "x.example.com.", 1)) // the same name, elsewhere
	http := challenge("a", "http", "x.example.com", 3)
	http.Type = "HTTP-01"
	w.set(http)
	w.set(challenge("a", "y", "y.example.com", 4))
	w.set(challenge("a", "z", "z.example.com", 5))
	started, parked := w.run()
	equal(t, len(parked), 0)
	equal(t, len(started), 3)
	equal(t, w.outcomes(), map[Outcome]int{Processing: 3, NameBusy: 1, Full: 1})
	waiting := map[Outcome]time.Time{}
	w.s.Waiting(func(_ Challenge, why Outcome, until time.Time) { waiting[why] = until })
	equal(t, waiting, map[Outcome]time.Time{NameBusy: {}, Full: {}})
}

func TestRule6_AFinalStateLetsTheNextOneStart(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	w.set(challenge("a", "first", "x.example.com", 1))
	w.set(challenge("a", "second", "x.example.com", 2))
	started, _ := w.run()
	equal(t, started, []string{"first"})
	w.amend(key("a", "first"), func(c *Challenge) { c.Final, c.Processing = true, false })
	started, _ = w.run()
	equal(t, started, []string{"second"})
	equal(t, w.explain(key("a", "first")), Ended)
}

func TestFairBetweenNamespacesThenIssuersThenOldest(t *testing.T) {
	w := newWorld(t, Options{Cap: 6})
	for i := range 100 {
		w.set(challenge("big", fmt.Sprintf("big-%02d", i), fmt.Sprintf("b%d.example.com", i), i))
	}
	other := challenge("big", "other-issuer", "o.example.com", 500)
	other.Issuer = "other"
	w.set(other)
	w.set(challenge("small", "small-1", "s1.example.com", 1000))
	w.set(challenge("small", "small-0", "s0.example.com", 999))
	started, _ := w.run()
	equal(t, started, []string{"big-00", "small-0", "other-issuer", "small-1", "big-01", "big-02"})
}

func TestANamespaceThatWasJustServedStandsBehind(t *testing.T) {
	w := newWorld(t, Options{Cap: 6})
	add := func(namespace, name string, age int) { w.set(challenge(namespace, name, name+".example.com", age)) }
	add("b", "b0", 0)
	w.run()
	add("a", "a0", 1)
	add("a", "a1", 2)
	w.run()
	add("b", "b1", 3)
	add("b", "b2", 4)
	add("a", "a2", 5)
	started, _ := w.run()
	equal(t, started, []string{"b1", "a2", "b2"})
}

// Namespaces that come new, one after the other, do not get ahead of one that has waited for its next turn: neither for
// a slot nor for a name.
func TestNewNamespacesStandBehind(t *testing.T) {
	for _, domain := range []string{"x.example.com", "x%d.example.com"} {
		w := newWorld(t, Options{Cap: 1})
		for i := range 3 {
			w.set(challenge("old", fmt.Sprintf("old%d", i), strings.ReplaceAll(domain, "%d", fmt.Sprint(i)), i))
		}
		var order []string
		for i := range 6 {
			name := fmt.Sprintf("new%d", i)
			w.set(challenge(name, name, strings.ReplaceAll(domain, "%d", name), 10+i))
			started, _ := w.run()
			order = append(order, started...)
			w.amend(w.running(), func(c *Challenge) { c.Final, c.Processing = true, false })
		}
		equal(t, order, []string{"old0", "new0", "old1", "new1", "new2", "old2"})
	}
}

func TestAReadyOneGoesFirstAndTakesNobodyAlong(t *testing.T) {
	w := newWorld(t, Options{Cap: 4})
	for i, name := range []string{"a0", "a1", "a2", "b0", "b1"} {
		c := challenge(name[:1], name, name+".example.com", i)
		c.Presented, c.Ready = name == "a2", name == "a2"
		w.set(c)
	}
	started, _ := w.run()
	equal(t, started, []string{"a2", "b0", "a0", "b1"})
}

// It is the API server's word that counts: processing is processing, whatever else the status says (spec §5.6).
func TestAFinalOneThatIsProcessingHoldsItsSlot(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	c := challenge("a", "c1", "x.example.com", 1)
	c.Processing, c.Final, c.Yields = true, true, true
	w.set(c)
	w.set(challenge("a", "c2", "y.example.com", 2))
	equal(t, len(w.s.Next(w.now).Decisions), 0)
}

func TestATurnIsNotWonByComingBack(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	for i := range 10 {
		w.set(challenge("patient", fmt.Sprintf("p%d", i), fmt.Sprintf("p%d.example.com", i), i))
	}
	var order []string
	for i := range 8 {
		w.set(challenge("eager", fmt.Sprintf("e%d", i), "e.example.com", 100+i))
		started, _ := w.run()
		order = append(order, started[0][:1])
		for k, c := range w.obj {
			if c.Processing {
				delete(w.obj, k)
				w.s.Remove(k)
			}
		}
	}
	equal(t, order, []string{"p", "e", "p", "e", "p", "e", "p", "e"})
}

func TestNoNamespaceQueuesUpForANameAlone(t *testing.T) {
	w := newWorld(t, Options{Cap: 10})
	for i := range 50 {
		w.set(challenge("greedy", fmt.Sprintf("g%02d", i), "x.example.com", i))
	}
	w.set(challenge("owner", "o", "x.example.com", 100))
	for range 4 {
		started, _ := w.run()
		equal(t, len(started), 1)
		if started[0] == "o" {
			return
		}
		w.amend(key("greedy", started[0]), func(c *Challenge) { c.Final, c.Processing = true, false })
	}
	t.Fatal("the second namespace still waits after four turns")
}

func TestParkingOnlyUnderContention(t *testing.T) {
	w := newWorld(t, Options{Cap: 60})
	for i := range 60 {
		c := challenge("broken", fmt.Sprintf("b%02d", i), fmt.Sprintf("b%d.example.com", i), i)
		w.set(c)
	}
	started, _ := w.run()
	equal(t, len(started), 60)
	for i := range 60 {
		w.amend(key("broken", fmt.Sprintf("b%02d", i)), func(c *Challenge) { c.Presented, c.Yields = true, true })
	}
	_, parked := w.run()
	equal(t, len(parked), 0) // nobody waits

	w.set(challenge("healthy", "h", "h.example.com", 1000))
	started, parked = w.run()
	equal(t, parked, []string{"b00"})
	equal(t, started, []string{"h"})
	equal(t, w.explain(key("broken", "b00")), Parked)
	equal(t, w.outcomes(), map[Outcome]int{Processing: 60, Parked: 1})

	// Its self check passes while others queue up: it is first in line.
	w.set(challenge("healthy", "h2", "h2.example.com", 1))
	w.amend(key("broken", "b00"), func(c *Challenge) { c.Ready = true })
	started, parked = w.run()
	equal(t, parked, []string{"b01", "b02"})
	equal(t, started, []string{"b00", "h2"})
}

// A thousand that wait for propagation ask again a hundred times in a second: nothing that a pass would see changes.
func TestNothingChangesForThoseWhoOnlyWait(t *testing.T) {
	w := newWorld(t, Options{Cap: 2})
	c := challenge("a", "c1", "x.example.com", 1)
	equal(t, w.s.Set(c), true)
	equal(t, w.s.Set(c), false)
	c.NotBefore = w.now.Add(time.Minute)
	equal(t, w.s.Set(c), true)
	c.Processing, c.Presented, c.Yields = true, true, true
	equal(t, w.s.Set(c), true)
	c.NotBefore = w.now.Add(time.Hour)
	equal(t, w.s.Set(c), false) // holds a slot
	c.Processing = false
	equal(t, w.s.Set(c), true)
	c.NotBefore = w.now.Add(2 * time.Hour)
	equal(t, w.s.Set(c), false) // is parked
	c.Ready = true
	equal(t, w.s.Set(c), true)
	pass := w.s.Next(w.now)
	equal(t, pass.Wake, c.NotBefore)
	equal(t, w.s.Remove(c.Key), true)
	equal(t, w.s.Remove(c.Key), false)
}

func TestSixtyBrokenChallengesDoNotHoldUpHealthyOnes(t *testing.T) {
	w := newWorld(t, Options{Cap: 60})
	for i := range 60 {
		c := challenge("broken", fmt.Sprintf("b%02d", i), fmt.Sprintf("b%d.example.com", i), i)
		c.Processing, c.Presented, c.Yields = true, true, true
		w.set(c)
	}
	for i := range 200 {
		w.set(challenge("healthy", fmt.Sprintf("h%03d", i), fmt.Sprintf("h%d.example.com", i), 100+i))
	}
	started, parked := w.run()
	equal(t, len(parked), 60)
	equal(t, len(started), 60)
	equal(t, started[0], "h000")
}

func TestABrokenHolderGivesUpANameToItsNextWaiter(t *testing.T) {
	w := newWorld(t, Options{Cap: 60})
	w.set(challenge("a", "broken", "x.example.com", 1))
	w.set(challenge("b", "healthy", "x.example.com", 2))
	w.run()
	w.amend(key("a", "broken"), func(c *Challenge) { c.Presented, c.Yields = true, true })
	started, parked := w.run()
	equal(t, parked, []string{"broken"})
	equal(t, started, []string{"healthy"})
}

func TestAParkedOneDoesNotTakeItsSlotBack(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	w.set(challenge("a", "older", "x.example.com", 1))
	w.run()
	w.amend(key("a", "older"), func(c *Challenge) { c.Yields = true })
	w.set(challenge("a", "younger", "y.example.com", 2))
	started, parked := w.run()
	equal(t, parked, []string{"older"})
	equal(t, started, []string{"younger"})
}

func TestASlotIsGivenAwayOnlyOnceItIsKnownToBeFree(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	c := challenge("a", "broken", "x.example.com", 1)
	c.Processing, c.Presented, c.Yields = true, true, true
	w.set(c)
	w.set(challenge("b", "healthy", "y.example.com", 2))
	pass := w.s.Next(w.now)
	equal(t, pass.Decisions, []Decision{{Key: c.Key, Outcome: Parking}})
	equal(t, w.explain(c.Key), Parking)
	c.Processing = false
	w.s.Set(c) // the watch is faster than the answer
	equal(t, len(w.s.Next(w.now).Decisions), 0)
	w.s.Answered(c.Key, true)
	equal(t, w.s.Next(w.now).Decisions, []Decision{{Key: key("b", "healthy"), Outcome: Starting}})
}

func TestAFailedWriteIsTriedAgainAndHoldsUpNobody(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	w.set(challenge("a", "c1", "x.example.com", 1))
	w.set(challenge("a", "c2", "y.example.com", 2))
	equal(t, w.s.Next(w.now).Decisions, []Decision{{Key: key("a", "c1"), Outcome: Starting}})
	w.s.Answered(key("a", "c1"), false)
	pass := w.s.Next(w.now)
	equal(t, pass.Decisions, []Decision{{Key: key("a", "c2"), Outcome: Starting}})
	equal(t, pass.Wake, w.now.Add(retryDelay))
	w.s.Remove(key("a", "c2"))
	w.s.Answered(key("a", "c2"), true)
	w.now = w.now.Add(retryDelay)
	equal(t, w.s.Next(w.now).Decisions, []Decision{{Key: key("a", "c1"), Outcome: Starting}})
}

// A challenge that could not be parked is parked later, though nothing happens meanwhile.
func TestAFailedParkingIsTriedAgain(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	c := challenge("a", "broken", "x.example.com", 1)
	c.Processing, c.Presented, c.Yields = true, true, true
	w.set(c)
	w.set(challenge("b", "healthy", "y.example.com", 2))
	equal(t, len(w.s.Next(w.now).Decisions), 1)
	w.s.Answered(c.Key, false)
	pass := w.s.Next(w.now)
	equal(t, pass, Pass{Wake: w.now.Add(retryDelay)})
	equal(t, w.s.Next(pass.Wake).Decisions, []Decision{{Key: c.Key, Outcome: Parking}})
}

// Whether a write was done nobody knows: its slot is neither given away nor free until somebody does.
func TestALostAnswerKeepsTheSlot(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	w.set(challenge("a", "c1", "x.example.com", 1))
	w.set(challenge("a", "c2", "y.example.com", 2))
	equal(t, w.s.Next(w.now).Decisions, []Decision{{Key: key("a", "c1"), Outcome: Starting}})
	w.s.Lost(key("a", "c1"))
	equal(t, w.s.Next(w.now), Pass{Wake: w.now.Add(retryDelay)})
	w.now = w.now.Add(retryDelay)
	again := Decision{Key: key("a", "c1"), Outcome: Starting, Again: true}
	equal(t, w.s.Next(w.now).Decisions, []Decision{again})
	equal(t, w.s.Next(w.now).Decisions, []Decision(nil)) // it is under way
	w.s.Lost(key("a", "c1"))
	w.now = w.now.Add(retryDelay)
	w.s.Remove(key("a", "c1")) // which frees its slot; its write is still to be answered
	equal(t, w.s.Next(w.now).Decisions, []Decision{{Key: key("a", "c2"), Outcome: Starting}, again})
}

// After a rush, passes cost what they did before it, and nobody's turn is lost.
func TestARushLeavesNothingBehind(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	w.set(challenge("served", "s0", "s0.example.com", 0))
	w.set(challenge("served", "s1", "s1.example.com", 1))
	w.set(challenge("waits", "w0", "w0.example.com", 2))
	w.run()
	w.amend(key("served", "s0"), func(c *Challenge) { c.Final, c.Processing = true, false })
	rush := queue(10_000)
	for _, c := range rush {
		w.s.Set(c)
	}
	for _, c := range rush {
		w.s.Remove(c.Key)
	}
	equal(t, len(w.s.groups) < 2*manyVacant, true)
	started, _ := w.run()
	equal(t, started, []string{"w0"})
}

// A pass looks, and changes nothing.
func TestAPassIsPure(t *testing.T) {
	s := New(Options{Cap: 60, IssuerCap: 10})
	for _, c := range queue(1000) {
		c.Processing = len(s.facts) < 70
		c.Yields = c.Processing
		s.Set(c)
	}
	s.now = epoch
	before := fmt.Sprint(s.state, deref(s.facts))
	first, second := decide(s.state), decide(s.state)
	equal(t, len(first.Decisions) > 0, true)
	equal(t, first, second)
	equal(t, fmt.Sprint(s.state, deref(s.facts)) == before, true)
}

func deref(facts []*fact) (out []fact) {
	for _, f := range facts {
		out = append(out, *f)
	}
	return out
}

func TestNotBeforeIsKept(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	c := challenge("a", "c1", "x.example.com", 1)
	c.NotBefore = w.now.Add(time.Minute)
	w.set(c)
	pass := w.s.Next(w.now)
	equal(t, len(pass.Decisions), 0)
	equal(t, pass.Wake, c.NotBefore)
	equal(t, w.explain(c.Key), Delayed)
	equal(t, len(w.s.Next(c.NotBefore).Decisions), 1)
}

func TestRestartKeepsTheCap(t *testing.T) {
	var stored []Challenge
	for i := range 10 {
		c := challenge("a", fmt.Sprintf("c%d", i), fmt.Sprintf("c%d.example.com", i), i)
		c.Processing = i < 3
		c.Presented = i < 4 // c3 was parked
		stored = append(stored, c)
	}
	s := New(Options{Cap: 4})
	for _, i := range rand.Perm(len(stored)) {
		s.Set(stored[i])
	}
	equal(t, s.Next(epoch).Decisions, []Decision{{Key: key("a", "c4"), Outcome: Starting}})
	equal(t, s.byKey[key("a", "c3")].outcome, Parked)
}

func TestIssuerCap(t *testing.T) {
	w := newWorld(t, Options{Cap: 10, IssuerCap: 2})
	for i := range 5 {
		w.set(challenge(fmt.Sprintf("n%d", i), fmt.Sprintf("c%d", i), fmt.Sprintf("c%d.example.com", i), i))
	}
	other := challenge("n0", "other", "o.example.com", 100)
	other.Issuer = "other"
	w.set(other)
	started, _ := w.run()
	equal(t, started, []string{"c0", "c1", "other"})
	equal(t, w.explain(key("n2", "c2")), IssuerFull)
	w.amend(key("n0", "c0"), func(c *Challenge) { c.Yields, c.Presented = true, true })
	started, parked := w.run()
	equal(t, parked, []string{"c0"})
	equal(t, started, []string{"c2"})
}

// TestClassCap lets two issuers share a class: nobody waits for it who has another or none.
func TestClassCap(t *testing.T) {
	w := newWorld(t, Options{Cap: 10, IssuerCap: 3, ClassCap: 2})
	for i := range 8 {
		c := challenge("n", fmt.Sprintf("c%d", i), fmt.Sprintf("c%d.example.com", i), i)
		c.Issuer, c.Class = fmt.Sprintf("i%d", i%2), "public"
		w.set(c)
	}
	other, dns := challenge("n", "other", "o.example.com", 100), challenge("n", "dns", "d.example.com", 101)
	other.Issuer, other.Class, dns.Issuer = "i0", "internal", "i1"
	w.set(other)
	w.set(dns)
	started, _ := w.run()
	slices.Sort(started)
	equal(t, started, []string{"c0", "c1", "dns", "other"})
	equal(t, w.explain(key("n", "c2")), ClassFull)
	w.amend(key("n", "c0"), func(c *Challenge) { c.Final, c.Processing = true, false })
	started, _ = w.run()
	equal(t, len(started), 1)
	w.amend(key("n", "c1"), func(c *Challenge) { c.Yields, c.Presented = true, true })
	started, parked := w.run()
	equal(t, parked, []string{"c1"})
	equal(t, len(started), 1)
}

// TestNoClassCap knows no classes: they are not even told apart.
func TestNoClassCap(t *testing.T) {
	w := newWorld(t, Options{Cap: 10})
	for i := range 6 {
		c := challenge("n", fmt.Sprintf("c%d", i), fmt.Sprintf("c%d.example.com", i), i)
		c.Class = fmt.Sprint(i)
		w.set(c)
	}
	started, _ := w.run()
	equal(t, started, []string{"c0", "c1", "c2", "c3", "c4", "c5"})
}

func TestOutcomesHaveNames(t *testing.T) {
	for o := Unknown; o <= Processing; o++ {
		if s := o.String(); s == "" || s[:1] == "O" {
			t.Errorf("outcome %d is called %q", int(o), s)
		}
	}
}
