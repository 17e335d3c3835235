package schedule

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"
)

// order sorts keys, so that a seed always makes the same history.
func order(a, b Key) int { return strings.Compare(a.String(), b.String()) }

// api stands for an API server and all who use it. Writes take their time, and may be refused; their answers may be
// lost, and the watch then shows late whether they were done.
type api struct {
	*world

	r *rand.Rand
	// sent are the writes under way. The API server may do each at any time until it has answered, and one whose answer
	// was lost even after that.
	sent map[Key]*sent
	// stale is what the watch has not shown yet.
	stale map[Key]bool
	// since is how many starts there had been when a challenge began to wait for one.
	since  map[Key]int
	starts int
	serial int
	// longest is how many starts of others a challenge has waited for its own.
	longest int
}

type sent struct {
	outcome Outcome
	// lost says that nobody waits for the answer.
	done, lost bool
}

func newAPI(t *testing.T, seed int64) *api {
	t.Helper()
	r := rand.New(rand.NewSource(seed))
	return &api{
		world: newWorld(t, Options{Cap: 1 + r.Intn(6), IssuerCap: r.Intn(4), ClassCap: r.Intn(4)}),
		r:     r, sent: map[Key]*sent{}, stale: map[Key]bool{}, since: map[Key]int{},
	}
}

// create makes a challenge. A few of the names are wanted by many.
func (a *api) create(namespace string) {
	a.serial++
	c := challenge(namespace, fmt.Sprintf("c%d", a.serial), fmt.Sprintf("D%d.example.com", a.r.Intn(12)), a.serial)
	c.Issuer, c.Class = fmt.Sprintf("i%d", a.r.Intn(3)), []string{"", "x", "y"}[a.r.Intn(3)]
	a.since[c.Key] = a.starts
	a.set(c)
}

// amend changes a challenge, and the scheduler is told at once: its owner has written the change.
func (a *api) amend(k Key, f func(*Challenge)) {
	a.world.amend(k, f)
	delete(a.stale, k)
}

// pass decides, and sends what was decided.
func (a *api) pass() {
	a.t.Helper()
	for _, d := range a.s.Next(a.now).Decisions {
		old := a.sent[d.Key]
		if d.Again != (old != nil) {
			a.t.Fatalf("%s is decided, before it: %+v", d.Key, old)
		}
		if old == nil {
			a.sent[d.Key] = &sent{outcome: d.Outcome}
			a.starts += map[Outcome]int{Starting: 1}[d.Outcome]
		} else {
			old.lost = false
		}
	}
	a.check()
	a.noneIsHeldUp()
}

// write makes the API server do a write, if that has not been done.
func (a *api) write(k Key, w *sent) {
	c, exists := a.obj[k]
	if w.done || !exists {
		return
	}
	w.done = true
	if c.Processing = w.outcome == Starting; c.Processing {
		a.longest = max(a.longest, a.starts-a.since[k])
	} else {
		a.since[k] = a.starts
	}
	a.obj[k] = c
	a.stale[k] = true
}

// answer ends a write: it is done, or refused, or nobody learns which.
func (a *api) answer(k Key, w *sent) {
	c, exists := a.obj[k]
	late := exists && w.outcome == Starting && c.Final
	switch how := a.r.Intn(6); {
	case how == 0 && !w.lost:
		if a.r.Intn(2) == 0 && !late {
			a.write(k, w)
		}
		w.lost = true
		a.s.Lost(k)
	case w.lost:
	case how == 1 && !w.done, late, !exists:
		delete(a.sent, k)
		a.s.Answered(k, false)
	default:
		a.write(k, w)
		a.watch(k)
		delete(a.sent, k)
		a.s.Answered(k, true)
	}
}

// watch shows a challenge to the scheduler.
func (a *api) watch(k Key) {
	a.s.Set(a.obj[k])
	delete(a.stale, k)
}

func (a *api) delete(k Key) {
	delete(a.obj, k)
	delete(a.stale, k)
	delete(a.since, k)
	a.s.Remove(k)
}

// check holds mission rule 3 against what the API server has and what it may yet do: whatever may be processing is.
func (a *api) check() {
	a.t.Helper()
	stored := a.obj
	a.obj = maps.Clone(stored)
	for k, w := range a.sent {
		if c, exists := a.obj[k]; exists && !(w.done && w.outcome == Parking) {
			c.Processing = true
			a.obj[k] = c
		}
	}
	a.world.check()
	a.obj = stored
}

// noneIsHeldUp looks for challenges that wait, and for nothing.
func (a *api) noneIsHeldUp() {
	a.t.Helper()
	processing, waiting, namespaces := map[groupKey]int{}, map[groupKey]bool{}, map[string]int{}
	keys := func(c Challenge) map[Outcome]groupKey {
		return map[Outcome]groupKey{
			Full: {kind: everything}, IssuerFull: {ofIssuer, c.Issuer, "", ""}, ClassFull: {ofClass, c.Class, "", ""},
			NameBusy: {ofName, strings.ToLower(c.DNSName), c.Type, ""},
		}
	}
	for k, c := range a.obj {
		for _, key := range keys(c) {
			switch o := a.explain(k); {
			case o >= Starting, key.kind == ofName && !c.Final && c.HoldsUntil.After(a.now):
				processing[key]++
			case o > NameBusy:
				waiting[key] = true
			}
		}
	}
	for k, c := range a.obj {
		if a.explain(k) >= Starting || !c.Final && c.HoldsUntil.After(a.now) {
			namespaces[k.Namespace]++
		}
	}
	limits := map[Outcome]int{Full: a.s.options.Cap, IssuerFull: a.s.options.IssuerCap, ClassFull: a.s.options.ClassCap, NameBusy: 1}
	for k, c := range a.obj {
		o := a.explain(k)
		switch key := keys(c)[o]; o {
		case Full, IssuerFull, ClassFull:
			if processing[key] < limits[o] {
				a.t.Fatalf("%s is %s, and only %d are processing", k, o, processing[key])
			}
		case NamespaceFull:
			if namespaces[k.Namespace] < 2*a.s.options.Cap {
				a.t.Fatalf("%s is %s, and only %d are", k, o, namespaces[k.Namespace])
			}
		case NameBusy:
			if processing[key] == 0 && !waiting[key] {
				a.t.Fatalf("%s waits for a name that nobody has or wants", k)
			}
		default: // it does not wait for others
		}
	}
}

// step makes something happen.
func (a *api) step() {
	a.now = a.now.Add(time.Duration(a.r.Intn(500)) * time.Millisecond)
	keys := slices.SortedFunc(maps.Keys(a.obj), order)
	if len(keys) == 0 {
		a.create("n0")
		return
	}
	k := keys[a.r.Intn(len(keys))]
	switch a.r.Intn(16) {
	case 0:
		a.create(fmt.Sprintf("n%d", a.r.Intn(4)))
	case 1:
		if a.obj[k].Final {
			a.delete(k)
		}
	case 2:
		if a.sent[k] == nil {
			a.amend(k, func(c *Challenge) { c.Final, c.Processing = true, false })
		}
	case 3:
		if a.obj[k].Processing && a.sent[k] == nil {
			a.amend(k, func(c *Challenge) {
				c.Presented, c.Yields = true, true
				if c.HoldsUntil.IsZero() && a.r.Intn(2) == 0 {
					c.HoldsUntil = a.now.Add(20 * time.Second)
				}
			})
		}
	case 4:
		a.amend(k, func(c *Challenge) {
			if c.Presented && !c.Processing {
				c.Ready, c.Yields = true, false
			}
		})
	case 5:
		a.amend(k, func(c *Challenge) { c.NotBefore = a.now.Add(time.Duration(a.r.Intn(3)) * time.Second) })
	case 6, 7, 8, 9:
		for _, k := range slices.SortedFunc(maps.Keys(a.sent), order) {
			if a.r.Intn(2) == 0 {
				a.answer(k, a.sent[k])
			}
		}
	case 10:
		for k := range a.stale {
			a.watch(k)
		}
	default:
		a.pass()
	}
	a.check()
}

// TestInvariants: whatever happens in whatever order, never are two of one DNS name and type in flight nor more than a
// limit allows, also counting what may have been written; and nobody waits for nothing.
func TestInvariants(t *testing.T) {
	for seed := range int64(40) {
		a := newAPI(t, seed)
		for range 400 {
			a.step()
		}
		a.drain()
	}
}

// drain lets no more trouble happen: all get a slot, and end.
func (a *api) drain() {
	a.t.Helper()
	for range 20 * (len(a.obj) + 1) {
		a.now = a.now.Add(retryDelay)
		a.pass()
		for k, w := range a.sent {
			a.write(k, w)
			a.watch(k)
			delete(a.sent, k)
			a.s.Answered(k, true)
		}
		for k := range a.obj {
			a.amend(k, func(c *Challenge) {
				c.Final, c.HoldsUntil = c.Final || c.Processing, time.Time{}
				c.NotBefore, c.Yields, c.Ready, c.Processing = time.Time{}, false, c.Presented && !c.Final, false
			})
		}
	}
	for k, c := range a.obj {
		if !c.Final {
			a.t.Fatalf("%s never had a slot: %s", k, a.explain(k))
		}
	}
}

// TestNobodyStarves: forty challenges want few names. A namespace that always has more, and namespaces that are always
// new, keep nobody waiting for long; without turns some wait for as long as the test goes on.
func TestNobodyStarves(t *testing.T) {
	for seed := range int64(8) {
		a := newAPI(t, seed)
		for range 40 {
			a.create(fmt.Sprintf("n%d", a.r.Intn(4)))
		}
		for round := range 1000 {
			a.now = a.now.Add(time.Second)
			a.pass()
			for k, w := range a.sent {
				a.write(k, w)
				a.watch(k)
				delete(a.sent, k)
				a.s.Answered(k, true)
			}
			for k, c := range a.obj {
				if c.Processing { // one ends, another one comes
					a.delete(k)
					a.create([]string{"greedy", fmt.Sprintf("new%d", round), fmt.Sprintf("n%d", a.r.Intn(4))}[a.r.Intn(3)])
				}
			}
		}
		for k := range a.obj {
			a.longest = max(a.longest, a.starts-a.since[k])
		}
		if a.starts < 500 || a.longest > 400 {
			t.Errorf("seed %d, %+v: of %d starts, one has waited for %d", seed, a.s.options, a.starts, a.longest)
		}
	}
}
