package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/standalone/bench/usage"
)

const (
	// issueWithin bounds the wait for one certificate.
	issueWithin = time.Minute
	// flatnessFrom is from how many certificates on the run is divided into parts, to compare the first with the last.
	flatnessFrom = 200
)

// workload is what a scenario issues.
type workload struct {
	// issuer is the name of the ClusterIssuer to wait for.
	issuer string
	// controllerArguments are those that the scenario needs.
	controllerArguments []string
	// object makes number i, not yet created.
	object func(i int) client.Object
	// list is of the kind to watch.
	list client.ObjectList
	// state says whether a watched object is issued, and if not, what is said about it.
	state func(client.Object) (issued bool, said string)
	// calm says to give the controller no work before it has looked at everything.
	calm bool
	// dns is the server that ACME challenges are looked up at; nil without.
	dns *dnsserver.Server
	// close ends what the scenario has started.
	close func()
}

// snapshot is everything that is counted, at one time.
type snapshot struct {
	requests   counts
	controller map[string]int
	settled    bool
	// cpu is the controller's.
	cpu time.Duration
}

func (r *run) snapshot(ctx context.Context, c *controller) (snapshot, error) {
	var s snapshot
	var err error
	if s.requests, s.settled, err = r.plane.settled(ctx); err != nil {
		return s, err
	}
	if s.controller, err = c.requests(ctx); err != nil {
		return s, err
	}
	s.cpu, err = usage.CPU(c.PID())
	return s, err
}

// issueAll issues a part, and tells what CPU time it took the API server: without the reading of its metrics, which
// takes it more than a certificate does.
func issueAll(ctx context.Context, r *run, w *workload, seen *observer, p part) (timing, time.Duration, error) {
	server := r.plane.server.PID()
	before, err := usage.CPU(server)
	if err != nil {
		return timing{}, 0, err
	}
	t, err := loop(ctx, p.to-p.from, r.Concurrency, func(ctx context.Context, i int) error {
		return issue(ctx, r, w, seen, p.from+i)
	})
	if err != nil {
		return t, 0, err
	}
	after, err := usage.CPU(server)
	return t, after - before, err
}

// part is certificates from … to-1.
type part struct{ from, to int }

// parts divides a long run: the first ten, the rest of the first tenth, then tenths.
func parts(count int) []part {
	if count < flatnessFrom {
		return []part{{0, count}}
	}
	tenth := count / 10
	out := []part{{0, 10}, {10, tenth}}
	for i := 1; i < 9; i++ {
		out = append(out, part{i * tenth, (i + 1) * tenth})
	}
	return append(out, part{9 * tenth, count})
}

// measure issues everything and fills in the result.
func measure(ctx context.Context, r *run, w *workload, c *controller, result *Scenario) error {
	seen := newObserver(w)
	if err := seen.start(ctx, r.plane.client); err != nil {
		return err
	}
	defer seen.stop()
	first, err := r.snapshot(ctx, c)
	if err != nil {
		return err
	}
	var took timing
	var server time.Duration
	before := first
	for _, p := range parts(r.Certificates) {
		t, used, err := issueAll(ctx, r, w, seen, p)
		if err != nil {
			return err
		}
		took.add(t)
		server += used
		after, err := r.snapshot(ctx, c)
		if err != nil {
			return err
		}
		result.Parts = append(result.Parts, partOf(p, t, before, after))
		before = after
	}
	result.Pace = took.pace()
	result.ServerCPUMillisEach = millis(server) / float64(r.Certificates)
	result.fill(first, before)
	result.ResidentBytes, err = usage.Resident(c.PID())
	return err
}

func partOf(p part, t timing, before, after snapshot) Part {
	n := float64(p.to - p.from)
	return Part{
		From: p.from + 1, To: p.to, Pace: t.pace(),
		RequestsEach:  float64(after.requests.since(before.requests).of(classWork).total()) / n,
		CPUMillisEach: millis(after.cpu-before.cpu) / n,
	}
}

// issue creates one object and waits until the watch says that it is issued.
func issue(ctx context.Context, r *run, w *workload, seen *observer, i int) error {
	object := w.object(i)
	issued := seen.expect(object)
	if err := r.plane.client.Create(ctx, object); err != nil {
		return fmt.Errorf("create %s: %w", object.GetName(), err)
	}
	timeout := time.NewTimer(issueWithin)
	defer timeout.Stop()
	select {
	case <-issued:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		return fmt.Errorf("%s is not issued after %s: %s", object.GetName(), issueWithin, seen.said(object))
	}
}

// fill computes what a certificate costs from the state before and after all of them.
func (s *Scenario) fill(before, after snapshot) {
	n := float64(s.Certificates)
	sent := map[string]int{}
	for method := range maps.Keys(after.controller) {
		sent[method] = after.controller[method] - before.controller[method]
	}
	diff := after.requests.since(before.requests)
	s.OtherReads = rows(diff.takeReads(sent[http.MethodGet] == 0), n)
	s.Settled = after.settled
	s.Requests = rows(diff.of(classWork), n)
	s.CacheRequests = rows(diff.of(classCache), n)
	s.BackgroundRequests = rows(diff.of(classBackground), n)
	s.RequestsEach = float64(diff.of(classWork).total()) / n
	s.CPUMillisEach = millis(after.cpu-before.cpu) / n
	s.ControllerRequestsEach = map[string]float64{}
	for method, count := range sent {
		if count != 0 {
			s.ControllerRequestsEach[method] = float64(count) / n
		}
	}
	s.Ratios = ratios(s)
}

// errWatchEnded is what waits end with when the watch does.
var errWatchEnded = errors.New("the watch ended")

// start watches. The watch is one request, not one for each certificate.
func (o *observer) start(ctx context.Context, c client.WithWatch) error {
	w, err := c.Watch(ctx, o.work.list, client.InNamespace(o.namespace()))
	if err != nil {
		return fmt.Errorf("watch what is issued: %w", err)
	}
	o.watch = w
	go func() {
		for event := range w.ResultChan() {
			if object, ok := event.Object.(client.Object); ok && event.Type != watch.Deleted {
				o.observe(object)
			}
		}
		o.end(errWatchEnded)
	}()
	return nil
}
