package schedule

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// challenge is a queued DNS-01 challenge; age orders challenges, oldest first.
func challenge(namespace, name, domain string, age int) Challenge {
	return Challenge{
		Key: Key{Namespace: namespace, Name: name}, DNSName: domain, Type: "DNS-01", Issuer: "acme",
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
			w.s.Applied(d.Key, true)
			w.amend(d.Key, func(c *Challenge) {
				c.Processing = d.Outcome == Starting
				if !c.Processing {
					c.Yields = false
				}
			})
		}
		w.check()
	}
	w.t.Fatal("the scheduler does not come to rest")
	return nil, nil
}

// check holds the stored objects against mission rule 3.
func (w *world) check() {
	w.t.Helper()
	names, n, issuers, classes := map[groupKey]Key{}, 0, map[string]int{}, map[string]int{}
	for k, c := range w.obj {
		if !c.Processing {
			continue
		}
		n++
		if other, twice := names[keyOfGroup(c)]; twice {
			w.t.Fatalf("%s and %s are processing for %s", other, k, c.DNSName)
		}
		names[keyOfGroup(c)] = k
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
	equal(t, w.s.Explain(Key{"a", "c1"}), Full)
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
	outcomes := map[Outcome]int{}
	for k := range w.obj {
		outcomes[w.s.Explain(k)]++
	}
	equal(t, outcomes, map[Outcome]int{Processing: 3, NameBusy: 1, Full: 1})
}

func TestRule6_AFinalStateLetsTheNextOneStart(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	w.set(challenge("a", "first", "x.example.com", 1))
	w.set(challenge("a", "second", "x.example.com", 2))
	started, _ := w.run()
	equal(t, started, []string{"first"})
	w.amend(Key{"a", "first"}, func(c *Challenge) { c.Final, c.Processing = true, false })
	started, _ = w.run()
	equal(t, started, []string{"second"})
	equal(t, w.s.Explain(Key{"a", "first"}), Ended)
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
	for turn := range 4 {
		started, _ := w.run()
		equal(t, len(started), 1)
		if started[0] == "o" {
			return
		}
		w.amend(Key{"greedy", started[0]}, func(c *Challenge) { c.Final, c.Processing = true, false })
		_ = turn
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
		w.amend(Key{"broken", fmt.Sprintf("b%02d", i)}, func(c *Challenge) { c.Presented, c.Yields = true, true })
	}
	_, parked := w.run()
	equal(t, len(parked), 0) // nobody waits

	w.set(challenge("healthy", "h", "h.example.com", 1000))
	started, parked = w.run()
	equal(t, parked, []string{"b00"})
	equal(t, started, []string{"h"})
	equal(t, w.s.Explain(Key{"broken", "b00"}), Parked)
	equal(t, w.s.Stats(), Stats{Processing: 60, Parked: 1, Total: 61})

	// Its self check passes while others queue up: it is first in line.
	w.set(challenge("healthy", "h2", "h2.example.com", 1))
	w.amend(Key{"broken", "b00"}, func(c *Challenge) { c.Ready = true })
	started, parked = w.run()
	equal(t, parked, []string{"b01", "b02"})
	equal(t, started, []string{"b00", "h2"})
}

// A thousand Challenges that wait for propagation lead to hundreds of passes in a second: none looks at them all.
func TestAPassCostsNothingWhenNobodyWaits(t *testing.T) {
	s := New(Options{Cap: 1000})
	for i := range 1000 {
		c := challenge("broken", fmt.Sprintf("b%03d", i), fmt.Sprintf("b%d.example.com", i), i)
		c.Processing, c.Presented, c.Yields = true, true, true
		s.Set(c)
	}
	// Nothing but the pass is measured: fmt's buffers are of a pool, which under the race
	// detector drops some at random.
	decisions := 0
	equal(t, testing.AllocsPerRun(10, func() { decisions += len(s.Next(epoch).Decisions) }), 0.0)
	equal(t, decisions, 0)
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
	w.amend(Key{"a", "broken"}, func(c *Challenge) { c.Presented, c.Yields = true, true })
	started, parked := w.run()
	equal(t, parked, []string{"broken"})
	equal(t, started, []string{"healthy"})
}

func TestASlotIsGivenAwayOnlyOnceItIsKnownToBeFree(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	c := challenge("a", "broken", "x.example.com", 1)
	c.Processing, c.Presented, c.Yields = true, true, true
	w.set(c)
	w.set(challenge("b", "healthy", "y.example.com", 2))
	pass := w.s.Next(w.now)
	equal(t, pass.Decisions, []Decision{{c.Key, Parking}})
	equal(t, len(w.s.Next(w.now).Decisions), 0)
	equal(t, w.s.Explain(c.Key), Parking)
	w.s.Applied(c.Key, true)
	equal(t, w.s.Next(w.now).Decisions, []Decision{{Key{"b", "healthy"}, Starting}})
	w.s.Set(c) // the watch lags behind: it still shows processing=true
	equal(t, w.s.Stats().Processing, 1)
}

func TestAFailedWriteIsTriedAgainAndHoldsUpNobody(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	w.set(challenge("a", "c1", "x.example.com", 1))
	w.set(challenge("a", "c2", "y.example.com", 2))
	equal(t, w.s.Next(w.now).Decisions, []Decision{{Key{"a", "c1"}, Starting}})
	w.s.Applied(Key{"a", "c1"}, false)
	pass := w.s.Next(w.now)
	equal(t, pass.Decisions, []Decision{{Key{"a", "c2"}, Starting}})
	equal(t, pass.Wake, w.now.Add(retryDelay))
	w.s.Applied(Key{"a", "c2"}, true)
	w.s.Remove(Key{"a", "c2"})
	w.now = w.now.Add(retryDelay)
	equal(t, w.s.Next(w.now).Decisions, []Decision{{Key{"a", "c1"}, Starting}})
}

func TestAnUnobservedWriteIsForgottenInTheEnd(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	w.set(challenge("a", "c1", "x.example.com", 1))
	w.s.Next(w.now)
	w.s.Applied(Key{"a", "c1"}, true)
	pass := w.s.Next(w.now)
	equal(t, pass.Wake, w.now.Add(settleLimit))
	equal(t, len(w.s.Next(pass.Wake.Add(-time.Second)).Decisions), 0)
	equal(t, w.s.Next(pass.Wake).Decisions, []Decision{{Key{"a", "c1"}, Starting}})
}

func TestNotBeforeIsKept(t *testing.T) {
	w := newWorld(t, Options{Cap: 1})
	c := challenge("a", "c1", "x.example.com", 1)
	c.NotBefore = w.now.Add(time.Minute)
	w.set(c)
	pass := w.s.Next(w.now)
	equal(t, len(pass.Decisions), 0)
	equal(t, pass.Wake, c.NotBefore)
	equal(t, w.s.Explain(c.Key), Delayed)
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
	s.Load(stored)
	equal(t, s.Stats(), Stats{Processing: 3, Parked: 1, Total: 10})
	equal(t, s.Next(epoch).Decisions, []Decision{{Key{"a", "c4"}, Starting}})
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
	equal(t, w.s.Explain(Key{"n2", "c2"}), IssuerFull)
	w.amend(Key{"n0", "c0"}, func(c *Challenge) { c.Yields, c.Presented = true, true })
	started, parked := w.run()
	equal(t, parked, []string{"c0"})
	equal(t, started, []string{"c2"})
}

// TestClassCap has two issuers share a class, and nobody wait for it who has another or none.
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
	equal(t, w.s.Explain(Key{"n", "c2"}), ClassFull)
	w.amend(Key{"n", "c0"}, func(c *Challenge) { c.Final, c.Processing = true, false })
	started, _ = w.run()
	equal(t, len(started), 1)
	w.amend(Key{"n", "c1"}, func(c *Challenge) { c.Yields, c.Presented = true, true })
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
	equal(t, len(w.s.tenants["n"].lanes), 1)
	started, _ := w.run()
	equal(t, started, []string{"c0", "c1", "c2", "c3", "c4", "c5"})
}

// TestRandomOperations holds the index against brute force over its members after
// each of many random operations: the counts, the choice, and that nobody who
// could start is left waiting.
func TestRandomOperations(t *testing.T) {
	for seed := range int64(40) {
		r := rand.New(rand.NewSource(seed))
		w := newWorld(t, Options{Cap: 1 + r.Intn(6), IssuerCap: r.Intn(4), ClassCap: r.Intn(4)})
		for step := range 400 {
			w.randomOperation(r, step)
			w.verify()
		}
		// Everybody ends in the end, and has then had a slot.
		for range 10 * (len(w.obj) + 1) {
			for k := range w.obj {
				w.amend(k, func(c *Challenge) {
					c.NotBefore, c.Yields, c.Ready = time.Time{}, false, c.Presented && !c.Processing
				})
			}
			w.now = w.now.Add(settleLimit + time.Second)
			w.run()
			for k, c := range w.obj {
				if c.Processing {
					w.amend(k, func(c *Challenge) { c.Final, c.Processing = true, false })
				}
			}
		}
		for k, c := range w.obj {
			if !c.Final {
				t.Fatalf("seed %d: %s never had a slot: %s", seed, k, w.s.Explain(k))
			}
		}
	}
}

func (w *world) randomOperation(r *rand.Rand, step int) {
	var keys []Key
	for i := range 40 {
		k := Key{fmt.Sprintf("n%d", i%4), fmt.Sprintf("c%d", i)}
		if _, exists := w.obj[k]; exists {
			keys = append(keys, k)
		}
	}
	w.now = w.now.Add(time.Duration(r.Intn(2000)) * time.Millisecond)
	op := r.Intn(10)
	if len(keys) == 0 || op < 2 {
		i := r.Intn(40)
		k := Key{fmt.Sprintf("n%d", i%4), fmt.Sprintf("c%d", i)}
		if _, exists := w.obj[k]; !exists {
			c := challenge(k.Namespace, k.Name, fmt.Sprintf("d%d.example.com", r.Intn(12)), step)
			c.Issuer, c.Class = fmt.Sprintf("i%d", r.Intn(3)), []string{"", "x", "y"}[r.Intn(3)]
			w.set(c)
		}
		return
	}
	k := keys[r.Intn(len(keys))]
	switch op {
	case 2:
		delete(w.obj, k)
		w.s.Remove(k)
	case 3:
		w.amend(k, func(c *Challenge) { c.Final, c.Processing = true, false })
	case 4:
		w.amend(k, func(c *Challenge) { c.Presented = c.Presented || c.Processing; c.Yields = c.Processing })
	case 5:
		w.amend(k, func(c *Challenge) { c.Ready = c.Presented && !c.Processing && !c.Final })
	case 6:
		w.amend(k, func(c *Challenge) { c.NotBefore = w.now.Add(time.Duration(r.Intn(3)) * time.Second) })
	default:
		w.randomPass(r)
	}
}

// randomPass writes decisions, loses some of the writes, and delays their watch
// events at random.
func (w *world) randomPass(r *rand.Rand) {
	for _, d := range w.s.Next(w.now).Decisions {
		if r.Intn(5) == 0 {
			w.s.Applied(d.Key, false)
			continue
		}
		c := w.obj[d.Key]
		c.Processing = d.Outcome == Starting
		w.obj[d.Key] = c
		w.check()
		w.s.Applied(d.Key, true)
		w.s.Set(c)
	}
}

func (w *world) verify() {
	w.t.Helper()
	inFlight, queued, lanes, tenants, pools := 0, 0, map[*lane]int{}, map[*tenant]int{}, map[*pool]int{}
	for _, it := range w.s.items {
		if it.where == inGroup {
			queued++
		}
		if it.occupies() {
			inFlight++
			lanes[it.home]++
			tenants[it.home.tenant]++
			pools[it.home.issuer]++
			pools[it.home.class]++
		}
	}
	equal(w.t, w.s.inFlight, inFlight)
	equal(w.t, w.s.queued, queued)
	for _, it := range w.s.items {
		l := it.home
		if l.inFlight != lanes[l] || l.tenant.inFlight != tenants[l.tenant] || l.issuer.inFlight != pools[l.issuer] || l.class.inFlight != pools[l.class] {
			w.t.Fatalf("the counts of %s are wrong", it.c.Key)
		}
	}
	w.s.unhide()
	got, want := w.s.choose(), w.bruteForce()
	switch {
	case (got == nil) != (want == nil):
		w.t.Fatalf("picked %v, brute force %v", got, want)
	case got != want && w.s.options.IssuerCap == 0 && w.s.options.ClassCap == 0:
		w.t.Fatalf("picked %s, brute force %s", got.c.Key, want.c.Key)
	}
}

// bruteForce finds whose turn it is by looking at everybody.
func (w *world) bruteForce() *item {
	first := map[*group]*item{}
	for _, it := range w.s.items {
		waits := !it.occupies() && !it.c.Final && !it.isParked() && (it.due().IsZero() || !it.due().After(w.s.now))
		if it.where == inDelayed || !waits || it.group.busy > 0 {
			continue
		}
		if best := first[it.group]; best == nil || waiterBefore(it, best) {
			first[it.group] = it
		}
	}
	var best *item
	for _, it := range first {
		if it.home.full() != nil {
			continue
		}
		if best == nil || w.precedes(it, best) {
			best = it
		}
	}
	return best
}

func (w *world) precedes(a, b *item) bool {
	la, lb := w.s.laneFor(a), w.s.laneFor(b)
	switch {
	case la.tenant != lb.tenant:
		return tenantBefore(la.tenant, lb.tenant)
	case la != lb:
		return laneBefore(la, lb)
	default:
		return olderBefore(a, b)
	}
}

func TestOutcomesHaveNames(t *testing.T) {
	for o := Unknown; o <= Processing; o++ {
		if s := o.String(); s == "" || s[:1] == "O" {
			t.Errorf("outcome %d is called %q", int(o), s)
		}
	}
	equal(t, Outcome(99), "Outcome(99)")
}
