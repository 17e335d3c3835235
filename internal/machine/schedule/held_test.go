package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRule3_AHolderWhoseCAValidatesKeepsItsName: it gives its slot to others, until its namespace has twice as many in
// slots and with names as there are slots, and its name is free when HoldsUntil has come.
func TestRule3_AHolderWhoseCAValidatesKeepsItsName(t *testing.T) {
	w := newWorld(t, Options{Cap: 2})
	until := epoch.Add(10 * time.Minute)
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		w.set(challenge("n", name, name+".example.com", i))
	}
	silent := func(k Key) {
		w.amend(k, func(c *Challenge) { c.Presented, c.Yields, c.HoldsUntil = true, true, until })
	}
	w.run()
	w.set(challenge("other", "a2", "A.example.com", 9))
	for _, name := range []string{"a", "b"} {
		silent(key("n", name))
	}
	_, parked := w.run()
	equal(t, parked, []string{"a", "b"})
	silent(key("n", "c"))
	silent(key("n", "d"))
	started, parked := w.run()
	equal(t, fmt.Sprint(started, parked), "[] []") // of its namespace, four hold their names or have a slot already
	equal(t, w.explain(key("n", "e")), NamespaceFull)
	equal(t, w.explain(key("other", "a2")), NameBusy)
	if pass := w.s.Next(w.now); !pass.Wake.Equal(until) {
		t.Errorf("the next pass is at %s", pass.Wake)
	}
	w.amend(key("n", "c"), func(c *Challenge) { c.Final, c.Processing = true, false })
	w.amend(key("n", "a"), func(c *Challenge) { c.Ready = true }) // its CA has forgotten: only it may have the name
	started, _ = w.run()
	equal(t, fmt.Sprint(slices.Contains(started, "a"), slices.Contains(started, "a2")), "true false")
	w.now = until
	w.amend(key("n", "a"), func(c *Challenge) { c.Final, c.Processing = true, false })
	started, _ = w.run()
	equal(t, slices.Contains(started, "a2"), true)
}

// crowd sets so many challenges in each of so many namespaces, and has the CA of each that gets a slot be silent.
func (w *world) crowd(namespaces, each int, until time.Time) {
	for n := range namespaces {
		for i := range each {
			name := fmt.Sprintf("silent-%d-%d", n, i)
			w.set(challenge(fmt.Sprintf("crowd-%d", n), name, name+".example.com", i))
		}
	}
	w.silence(until)
}

// silence makes passes until nothing changes; the CA of each challenge of the crowd that has a slot is silent.
func (w *world) silence(until time.Time) {
	for more := true; more; {
		w.run()
		more = false
		for k, c := range w.obj {
			if c.Processing && !c.Yields && strings.HasPrefix(k.Name, "silent") {
				w.amend(k, func(c *Challenge) { c.Presented, c.Yields, c.HoldsUntil = true, true, until })
				more = true
			}
		}
	}
}

// TestSilentCAsLeaveRoom: however many namespaces have 200 names each at a CA that never answers, a namespace that
// comes has as many slots as it wants.
func TestSilentCAsLeaveRoom(t *testing.T) {
	for _, namespaces := range []int{1, 3, 8, 70} {
		w := newWorld(t, Options{Cap: 60})
		w.crowd(namespaces, 200, epoch.Add(10*time.Minute))
		for round := range 3 {
			for i := range 60 {
				name := fmt.Sprintf("asked-%d-%d", round, i)
				w.set(challenge("tenant", name, name+".example.com", 1000+round))
			}
			if started, _ := w.run(); len(started) < 60 {
				t.Fatalf("%d namespaces, round %d: %d of 60 start; %v", namespaces, round, len(started), w.outcomes())
			}
			for k, c := range w.obj {
				if c.Processing && k.Namespace == "tenant" {
					w.amend(k, func(c *Challenge) { c.Final, c.Processing = true, false })
				}
			}
			w.silence(epoch.Add(10 * time.Minute))
		}
	}
}

// TestANamespaceIsFull: what else the namespace has waits until the names are free, and a pass is due then.
func TestANamespaceIsFull(t *testing.T) {
	w := newWorld(t, Options{Cap: 60})
	until := epoch.Add(10 * time.Minute)
	w.crowd(1, 121, until)
	w.set(challenge("crowd-0", "healthy", "healthy.example.com", 500))
	started, parked := w.run()
	equal(t, fmt.Sprint(started, parked), "[] []")
	if pass := w.s.Next(w.now); !pass.Wake.Equal(until) {
		t.Fatalf("the next pass is at %s", pass.Wake)
	}
	w.set(challenge("other", "other", "other.example.com", 600))
	started, parked = w.run()
	equal(t, fmt.Sprint(started, len(parked)), "[other] 1")
	w.amend(key("other", "other"), func(c *Challenge) { c.Final, c.Processing = true, false })
	w.run()
	equal(t, w.explain(key("crowd-0", "healthy")), NamespaceFull)
	w.now = until
	started, _ = w.run()
	equal(t, started, []string{"silent-0-120", "healthy"})
}

// TestAFullNamespaceQueuesUpForNoName: nor does it keep a Ready one that holds its name behind one that does not.
func TestAFullNamespaceQueuesUpForNoName(t *testing.T) {
	w := newWorld(t, Options{Cap: 60})
	w.crowd(1, 120, epoch.Add(10*time.Minute))
	w.set(challenge("crowd-0", "squat", "victim.example.com", 500))
	w.run()
	w.set(challenge("tenant", "victim", "victim.example.com", 600))
	started, _ := w.run()
	equal(t, started, []string{"victim"})
	equal(t, w.explain(key("crowd-0", "squat")), NameBusy)

	w = newWorld(t, Options{Cap: 2})
	for i, name := range []string{"ready", "holder", "h2", "h3", "h4"} {
		c := challenge("n", name, name+".example.com", i)
		c.Presented, c.Ready = true, i < 2
		if i > 0 {
			c.HoldsUntil = epoch.Add(10 * time.Minute)
		}
		w.set(c)
	}
	started, _ = w.run()
	equal(t, started, []string{"holder"})
}

// TestALowerCapIsReached: more of the one namespace have slots than the cap allows, since it was lowered. Those that
// yield give them up for others, as with any cap.
func TestALowerCapIsReached(t *testing.T) {
	w := newWorld(t, Options{Cap: 2})
	for i := range 5 {
		c := challenge("n", fmt.Sprintf("broken-%d", i), fmt.Sprintf("b%d.example.com", i), i)
		c.Processing, c.Presented, c.Yields = true, true, true
		w.s.Set(c)
	}
	w.s.Set(challenge("n", "waits", "waits.example.com", 10))
	equal(t, len(w.s.Next(w.now).Decisions), 1)
}

// TestANameThatIsHeldIsGivenUpForItsWaiter: a holder with a slot that nobody else wants is parked, so that it ends.
func TestANameThatIsHeldIsGivenUpForItsWaiter(t *testing.T) {
	w := newWorld(t, Options{Cap: 5})
	w.set(challenge("n", "a", "a.example.com", 0))
	w.run()
	w.amend(key("n", "a"), func(c *Challenge) { c.Presented, c.Yields, c.HoldsUntil = true, true, epoch.Add(10*time.Minute) })
	_, parked := w.run()
	equal(t, len(parked), 0)
	w.set(challenge("n", "b", "a.example.com", 1))
	started, parked := w.run()
	equal(t, fmt.Sprint(started, parked), "[] [a]")
}

// A challenge that yields with nothing presented, and does not say until when, does not get back what it gives up.
