package chaos

import (
	"context"
	"fmt"
	"maps"
	"math"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// minutesVariable says how long failures go on; without it the test does not run.
	minutesVariable = "CHANCERY_CHAOS_MINUTES"
	// seedVariable repeats the choices of a run.
	seedVariable = "CHANCERY_CHAOS_SEED"
	// onlyVariable selects those failures alone whose name contains it.
	onlyVariable = "CHANCERY_CHAOS_ONLY"
	// between is how long all goes well before the next failure.
	between = 4 * time.Second
	// wellWithin is how long it may take after a failure until everything is in order.
	wellWithin = 4 * time.Minute
)

// TestChaos: whatever dies or is silent, everything is in order a while after it is back, and nobody has intervened.
func TestChaos(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv(minutesVariable), 64)
	if err != nil {
		t.Skip("SLOW: make chaos runs this test")
	}
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	random := mathrand.New(mathrand.NewPCG(seed, seed))
	t.Logf("%s=%d repeats the choices of this run", seedVariable, seed)
	w := newWorld(t, 2)
	t.Cleanup(func() {
		if t.Failed() {
			w.keepLogs()
		}
	})
	w.load = &load{w: w, random: random, hosts: math.MaxInt, done: map[string]int{}, allowed: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { w.load.run(ctx) })
	looks, twice := 0, []string(nil)
	running.Go(func() { looks, twice = w.watchNames(ctx) })

	table := map[string]*row{}
	end := time.Now().Add(time.Duration(minutes * float64(time.Minute)))
	for time.Now().Before(end) && !t.Failed() {
		all := slices.DeleteFunc(faults(), func(f fault) bool { return !strings.Contains(f.name, os.Getenv(onlyVariable)) })
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, f := range all {
			if time.Now().After(end) || t.Failed() {
				break
			}
			sleep(ctx, between)
			w.live(ctx, f, table)
		}
	}
	stop()
	running.Wait()
	w.atTheEnd(t.Context())
	for _, name := range twice {
		t.Errorf("two Challenges at once for %s", name)
	}
	for _, unled := range w.unled {
		t.Error(unled)
	}
	w.report(table, looks)
}

// row is what is known of a kind of fault.
type row struct {
	times   int
	longest time.Duration
}

// live makes a fault happen, and waits until everything is in order again.
func (w *world) live(ctx context.Context, f fault, table map[string]*row) {
	began := time.Now()
	f.do(ctx, w)
	over := time.Now()
	w.load.running.Lock()
	defer w.load.running.Unlock()
	v := w.await(ctx)
	took := time.Since(over)
	if table[f.name] == nil {
		table[f.name] = &row{}
	}
	table[f.name].times++
	table[f.name].longest = max(table[f.name].longest, took)
	w.t.Logf("%s %-40s %5.1f s, in order after %5.1f s; %d Certificates, %d wait for their next try", began.Format(time.TimeOnly), f.name,
		over.Sub(began).Seconds(), took.Seconds(), v.certificates, len(v.waiting))
}

// await waits until everything is in order.
func (w *world) await(ctx context.Context) *verdict {
	w.t.Helper()
	v, err := &verdict{}, error(nil)
	for began := time.Now(); time.Since(began) < wellWithin; sleep(ctx, time.Second) {
		if v, err = w.judge(ctx); err == nil && len(v.wrong) == 0 {
			return v
		}
	}
	if err != nil {
		w.t.Errorf("the API server does not answer: %v", err)
		return &verdict{}
	}
	w.t.Errorf("after %s it is not in order:\n%s", wellWithin, strings.Join(v.wrong, "\n"))
	return v
}

// atTheEnd retries those Certificates at once that wait for their next try: they may say no more.
func (w *world) atTheEnd(ctx context.Context) {
	w.t.Helper()
	v := w.await(ctx)
	waited := len(v.waiting)
	for began := time.Now(); len(v.waiting) > 0 && time.Since(began) < wellWithin; v = w.await(ctx) {
		for _, crt := range v.waiting {
			w.load.allowed[crt.Name]++
			if err := renew(ctx, w.client, crt); err != nil {
				w.t.Logf("renew %s: %v", crt.Name, err)
			}
		}
		sleep(ctx, between)
	}
	for _, crt := range v.waiting {
		w.t.Errorf("Certificate %s is lost: %+v", crt.Name, crt.Status.Cause)
	}
	w.t.Logf("at the end %d Certificates waited for their next try, and were renewed at once", waited)
	often, err := w.issuedTooOften(ctx)
	if err != nil {
		w.t.Error(err)
	}
	for _, said := range often {
		w.t.Error(said)
	}
}

// report prints what was lived through.
func (w *world) report(table map[string]*row, looks int) {
	times := 0
	var text strings.Builder
	fmt.Fprintf(&text, "\n%-42s %6s  %s\n", "FAULT", "TIMES", "IN ORDER AFTER AT MOST")
	for _, name := range slices.Sorted(maps.Keys(table)) {
		fmt.Fprintf(&text, "%-42s %6d  %.1f s\n", name, table[name].times, table[name].longest.Seconds())
		times += table[name].times
	}
	fmt.Fprintf(&text, "\nDONE MEANWHILE\n")
	for _, what := range slices.Sorted(maps.Keys(w.load.done)) {
		fmt.Fprintf(&text, "%-42s %6d\n", what, w.load.done[what])
	}
	fmt.Fprintf(&text, "%-42s %6d\n", "orders made at the CA", w.proxy.Created())
	fmt.Fprintf(&text, "%-42s %6d\n", "not taken by the API server", w.load.failed)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.controllers {
		fmt.Fprintf(&text, "%-42s %6d\n", c.name+" ended by itself", c.unasked)
	}
	fmt.Fprintf(&text, "\n%d faults survived; %d writes judged, %d without the lease; %d looks at Challenges; lost: 0\n", times, w.writes, len(w.unled), looks)
	if w.t.Failed() {
		return
	}
	w.t.Log(text.String())
}

// keepLogs moves the logs of all processes, and profiles, to where they outlive the test.
func (w *world) keepLogs() {
	kept, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		w.t.Log(err)
		return
	}
	files, _ := filepath.Glob(filepath.Join(w.dir, "*.*")) // the error would be of the pattern
	for _, file := range files {
		_ = os.Rename(file, filepath.Join(kept, filepath.Base(file)))
	}
	w.t.Logf("the logs, and profiles if there are any, are in %s", kept)
}
