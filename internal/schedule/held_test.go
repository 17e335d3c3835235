package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestRule3_AHolderWhoseCAValidatesKeepsItsName: it gives its slot to others, at most as many as there are slots do so,
// and its name is free when HoldsUntil has come.
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
	equal(t, fmt.Sprint(started, parked), "[] []") // as many as there are slots hold their names already
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
