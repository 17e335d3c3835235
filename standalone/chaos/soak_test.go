package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/standalone/bench/usage"
	"chancery.dev/standalone/chaos/trend"
)

const (
	// soakVariable says how many minutes churn and rest take turns; without it the test does not run.
	soakVariable = "CHANCERY_SOAK_MINUTES"
	// pictureVariable names the file that the picture is written to; empty for none.
	pictureVariable = "CHANCERY_SOAK_SVG"
	// A churn and a rest last a thirtieth of the whole each, within these bounds.
	shortestPhase, longestPhase = 15 * time.Second, time.Minute
	// warmUp is how many cycles are not judged: connections are made in them.
	warmUp = 2
	// rounds is how often all is measured, if something grows: one of forty series that do not grow seems to. What grows
	// does so in each round; chance takes another series each time.
	rounds = 2
	// toldOf is of how many objects client-go remembers which events it has told (maxLruCacheEntries in its package
	// record): before so many were told of, memory grows. Batches of objects come and go until then.
	// The DNS names of a batch come again in the next one: the zones of 10,000 names are kept (internal/limits).
	toldOf, batch = 4096, 300
	// soakPace is how long a user waits between two things.
	soakPace = 150 * time.Millisecond
	// standing is how many Certificates there are in each rest.
	standing = 60
	// sampleEvery is how often the controller is looked at.
	sampleEvery = time.Second
	mebibyte    = 1 << 20
)

// What is measured, in the order of the picture.
const (
	resident = iota
	heap
	goroutines
	descriptors
	watches
	requests // so far
	measurements
)

// measurement is what is looked at, and from which slope on it grows.
type measurement struct {
	name string
	// leak is how much 1,000 changes may leave behind: less than a leak would. The name of an object that is never
	// forgotten takes more than 32 bytes, and one change of a thousand that leaves a goroutine, descriptor or watch, or
	// makes the controller ask once a minute for ever, is one too many.
	leak float64
}

func measured() []measurement {
	const mebibytes = 32 * 1000.0 / mebibyte
	return []measurement{
		{"resident memory, MiB", mebibytes}, {"heap in use, MiB", mebibytes},
		{"goroutines", 1}, {"open descriptors", 1}, {"open watches", 1}, {"requests to the API server a minute", 1},
	}
}

// sample is what was seen of the controller at a time.
type sample struct {
	at     time.Duration
	values [measurements]float64
}

// cycle is a churn and the rest after it.
type cycle struct {
	began, rested, ended time.Duration
	// changes were made in the churn, and took so many requests of the controller.
	changes, requests int
	// heap is what is in use at the end, after garbage was collected, in MiB, and profile is that of the heap.
	heap    float64
	profile []byte
}

type soak struct {
	w       *world
	c       *controller
	pid     int
	began   time.Time
	phase   time.Duration
	mu      sync.Mutex
	samples []sample
}

// phaseOf is how long a churn lasts, and a rest. The error says how many minutes are needed.
func phaseOf(minutes float64) (time.Duration, error) {
	phase := min(max(time.Duration(minutes*float64(time.Minute))/30, shortestPhase), longestPhase)
	if least := (2 * shortestPhase * (warmUp + trend.Least)).Minutes(); minutes < least {
		return 0, fmt.Errorf("%g minutes are too few: %d cycles of %s each, of which the first %d are not judged, need %g minutes",
			minutes, warmUp+trend.Least, 2*shortestPhase, warmUp, least)
	}
	return phase, nil
}

// TestPhases: too few minutes are an error that says how many are needed.
func TestPhases(t *testing.T) {
	for minutes, want := range map[float64]time.Duration{3.5: 15 * time.Second, 15: 30 * time.Second, 30: time.Minute, 600: time.Minute} {
		if got, err := phaseOf(minutes); err != nil || got != want {
			t.Errorf("%g minutes: %s, %v; want %s", minutes, got, err, want)
		}
	}
	if _, err := phaseOf(3); err == nil || !strings.Contains(err.Error(), "need 3.5 minutes") {
		t.Errorf("3 minutes: %v", err)
	}
}

// TestSoak: whatever comes, changes and goes, nothing of the controller grows.
func TestSoak(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv(soakVariable), 64)
	if err != nil {
		t.Skip("SLOW: make soak runs this test")
	}
	phase, err := phaseOf(minutes)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 1)
	t.Cleanup(func() {
		if t.Failed() {
			w.keepLogs()
		}
	})
	w.load = &load{w: w, hosts: batch, done: map[string]int{}, allowed: map[string]int{}}
	s := &soak{w: w, c: w.controllers[0], pid: w.controllers[0].cmd.Process.Pid, phase: phase}
	if err := s.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.began = time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.watch(ctx) })
	defer func() {
		stop()
		running.Wait()
		if s.c.unasked > 0 {
			t.Errorf("the controller has ended by itself %d times", s.c.unasked)
		}
	}()
	cycles, first := []cycle(nil), warmUp
	grows := map[string]int{}
	for range rounds {
		for end := time.Now().Add(time.Duration(minutes * float64(time.Minute))); len(cycles) < first+trend.Least || time.Now().Before(end); {
			if cycles = append(cycles, s.cycle(ctx)); t.Failed() {
				return
			}
		}
		for _, name := range s.judge(cycles, first) {
			grows[name]++
		}
		if len(grows) == 0 {
			return
		}
		first = len(cycles)
	}
	maps.DeleteFunc(grows, func(_ string, n int) bool { return n < rounds })
	if len(grows) == 0 {
		return
	}
	t.Errorf("something grows in each round: see GROWS; go tool pprof -base first.pprof last.pprof shows what the heap has more than after the warm-up")
	for name, c := range map[string]cycle{"first.pprof": cycles[warmUp], "last.pprof": cycles[len(cycles)-1]} {
		_ = os.WriteFile(filepath.Join(w.dir, name), c.profile, 0o600)
	}
}

// cycle has a churn and a rest.
func (s *soak) cycle(ctx context.Context) cycle {
	c, before := cycle{began: time.Since(s.began), changes: int(s.phase / soakPace * 3 / 4)}, s.c.requests.Load()
	s.churn(ctx, c.changes, soakPace)
	c.requests, c.rested = int(s.c.requests.Load()-before), time.Since(s.began)
	sleep(ctx, s.phase)
	c.ended = time.Since(s.began)
	now, err := s.look(ctx)
	if err != nil {
		s.w.t.Error(err)
	}
	inUse, profile, err := usage.Heap(ctx, s.c.profiles)
	if err != nil {
		s.w.t.Error(err)
	}
	c.heap, c.profile = float64(inUse)/mebibyte, profile
	s.w.t.Logf("%5.1f min: %d changes took %d requests and %.0f s; at rest %.1f MiB resident, %.2f MiB of heap, %.0f goroutines, %.0f descriptors, %.0f watches",
		c.ended.Minutes(), c.changes, c.requests, (c.rested - c.began).Seconds(),
		now.values[resident], c.heap, now.values[goroutines], now.values[descriptors], now.values[watches])
	return c
}

// churn has users do so many things, and waits until everything is as before it, and in order. Each churn is the same,
// with other names.
func (s *soak) churn(ctx context.Context, changes int, pace time.Duration) {
	s.w.t.Helper()
	s.w.load.random = mathrand.New(mathrand.NewPCG(1, 1))
	for range changes {
		s.w.load.step(ctx)
		sleep(ctx, pace)
	}
	if err := s.w.load.level(ctx); err != nil {
		s.w.t.Error(err)
	}
	s.w.await(ctx)
}

// fill has objects come and go until as many were told of as client-go remembers.
func (s *soak) fill(ctx context.Context) error {
	for began := time.Now(); ; {
		s.churn(ctx, batch, 0)
		events := &corev1.EventList{}
		if err := s.w.client.List(ctx, events); err != nil {
			return err
		}
		told := map[types.UID]bool{}
		for i := range events.Items {
			told[events.Items[i].InvolvedObject.UID] = true
		}
		s.w.t.Logf("warm-up: %d objects were told of by %d events after %.0f s", len(told), len(events.Items), time.Since(began).Seconds())
		if len(told) >= toldOf || s.w.t.Failed() {
			return nil
		}
	}
}

// level brings the objects back to those of a rest: those that came go, and those that went come back.
func (l *load) level(ctx context.Context) error {
	for i := range standing {
		name := fmt.Sprintf("standing-%d", i)
		err := l.create(ctx, certificate(name, []string{"acme", "ca", "own"}[i%3], name+".example.com"))
		if client.IgnoreAlreadyExists(err) != nil {
			return err
		}
	}
	for began := time.Now(); time.Since(began) < wellWithin; sleep(ctx, soakPace) {
		if left, err := l.sweep(ctx); err != nil || left == 0 {
			return err
		}
	}
	return errors.New("objects that were deleted do not go")
}

// sweep deletes what has come, and returns how much of it was there. The Secrets come last: their Certificates would
// have them made again.
func (l *load) sweep(ctx context.Context) (left int, err error) {
	if err := errors.Join(l.w.client.DeleteAllOf(ctx, &networkingv1.Ingress{}, client.InNamespace(namespace)),
		l.w.client.DeleteAllOf(ctx, &certificatesv1.CertificateSigningRequest{})); err != nil {
		return 0, err
	}
	for _, list := range []client.ObjectList{&certmanagerv1.CertificateList{}, &corev1.SecretList{}} {
		if err := l.w.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return 0, err
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object)
			if !strings.HasPrefix(o.GetName(), "c-") {
				return nil
			}
			left++
			return client.IgnoreNotFound(l.w.client.Delete(ctx, o))
		})
		if err != nil || left > 0 {
			return left, err
		}
	}
	return 0, nil
}

// watch takes samples until ctx ends.
func (s *soak) watch(ctx context.Context) {
	for ; ctx.Err() == nil; sleep(ctx, sampleEvery) {
		now, err := s.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.w.t.Error(err)
			return
		}
		s.mu.Lock()
		s.samples = append(s.samples, now)
		s.mu.Unlock()
	}
}

// look takes a sample.
func (s *soak) look(ctx context.Context) (out sample, err error) {
	bytes, err := usage.Resident(s.pid)
	if err != nil {
		return out, err
	}
	open, err := usage.Descriptors(s.pid)
	if err != nil {
		return out, err
	}
	page, err := usage.Page(ctx, s.c.metrics)
	if err != nil {
		return out, err
	}
	out.at = time.Since(s.began)
	out.values[resident], out.values[descriptors] = float64(bytes)/mebibyte, float64(open)
	out.values[watches], out.values[requests] = float64(s.c.watches.Load()), float64(s.c.requests.Load())
	if out.values[heap], err = metric(page, "go_memstats_heap_alloc_bytes"); err != nil {
		return out, err
	}
	out.values[heap] /= mebibyte
	out.values[goroutines], err = metric(page, "go_goroutines")
	return out, err
}

// metric reads the value of a metric without labels.
func metric(page []byte, name string) (float64, error) {
	for line := range bytes.Lines(page) {
		if value, is := strings.CutPrefix(string(line), name+" "); is {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// points are the samples of a measurement; of requests, how many there were in a minute.
func (s *soak) points(of int) (out []trend.Point) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, now := range s.samples {
		point := trend.Point{At: now.at, Value: now.values[of]}
		if of == requests {
			if i == 0 {
				continue
			}
			before := s.samples[i-1]
			point.Value = (now.values[of] - before.values[of]) / (now.at - before.at).Minutes()
		}
		out = append(out, point)
	}
	return out
}

// mean is the mean of the points between two times.
func mean(points []trend.Point, from, to time.Duration) trend.Point {
	sum, n := 0.0, 0.0
	for _, p := range points {
		if p.At >= from && p.At < to {
			sum, n = sum+p.Value, n+1
		}
	}
	return trend.Point{At: (from + to) / 2, Value: sum / n}
}

// judge compares the cycles from the first one on, prints all series, and draws them from the begin on. It returns the
// names of the series that grow.
func (s *soak) judge(cycles []cycle, first int) (grow []string) {
	s.w.t.Helper()
	all := s.series(cycles[first:])
	changes, end := 0, cycles[len(cycles)-1].ended
	picture := trend.Picture{Title: "make soak: churn (shaded) and rest in turn", End: end}
	for _, c := range cycles {
		changes += c.changes
		picture.Shaded = append(picture.Shaded, [2]time.Duration{c.began, c.rested})
	}
	for of, m := range measured() {
		picture.Panels = append(picture.Panels, trend.Panel{Title: m.name, Samples: s.points(of), Levels: all[of].Points, Line: all[of].Line})
	}
	if path := os.Getenv(pictureVariable); path != "" {
		if err := os.WriteFile(path, []byte(picture.SVG()), 0o644); err != nil {
			s.w.t.Error(err)
		}
	}
	for _, series := range all {
		if series.Grows() {
			grow = append(grow, series.Name)
		}
	}
	s.w.t.Logf("\n%s\nsoak: %.0f minutes, %d cycles, %d changes of objects, %d Certificates at rest, %d series, grows: %d",
		trend.Table(all), end.Minutes(), len(cycles), changes, standing, len(all), len(grow))
	return grow
}

// series are those of all measurements at rest, then those in churn. The level is the mean of a churn, or of the second
// half of a rest; of the heap, what is in use once garbage was collected.
func (s *soak) series(cycles []cycle) (all []trend.Series) {
	changes := 0
	for _, c := range cycles {
		changes += c.changes
	}
	hour := float64(changes) / (cycles[len(cycles)-1].ended - cycles[0].began).Hours()
	add := func(name string, leak float64, level func(cycle) trend.Point) {
		series := trend.Series{Name: name, Allowed: leak / 1000 * hour}
		for _, c := range cycles {
			series.Points = append(series.Points, level(c))
		}
		var err error
		if series.Line, err = trend.Fit(series.Points); err != nil {
			s.w.t.Errorf("%s: %v", name, err)
		}
		all = append(all, series)
	}
	for of, m := range measured() {
		points := s.points(of)
		add(m.name+", at rest", m.leak, func(c cycle) trend.Point {
			if of == heap {
				return trend.Point{At: c.ended, Value: c.heap}
			}
			return mean(points, (c.rested+c.ended)/2, c.ended)
		})
	}
	for of, m := range measured()[:requests] {
		points := s.points(of)
		add(m.name+", in churn", m.leak, func(c cycle) trend.Point { return mean(points, c.began, c.rested) })
	}
	const oneOfTwenty = 0.05
	add("requests for a change", oneOfTwenty, func(c cycle) trend.Point {
		return trend.Point{At: c.began, Value: float64(c.requests) / float64(c.changes)}
	})
	return all
}
