package bench

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cmmeta "chancery.dev/api/meta/v1"
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
	// arguments are those that the controller needs for the scenario.
	arguments []string
	// injector says that the CA injector runs in place of the controller, and that nothing is issued.
	injector bool
	// object makes number i, not yet created.
	object func(i int) client.Object
	// list is of the kind to watch.
	list client.ObjectList
	// state says whether a watched object is issued, and if not, what is said about it.
	state func(client.Object) (issued bool, said string)
	// dns is the server that ACME challenges are looked up at; nil without.
	dns *dnsserver.Server
	// bare measures what another client does, which is what barely says: an ACME client without Kubernetes that does the
	// same, or one that only writes a status; nil for none.
	bare   func(ctx context.Context, r *run) (pace, error)
	barely string
}

// snapshot is everything that is counted, at one time.
type snapshot struct {
	// requests are what the API server has counted, sent what the controller says that it has sent, by HTTP method alone.
	requests, sent counts
	// goingOn is how many requests there were in settleWithin if they did not end.
	goingOn int
	// cpu is the controller's.
	cpu time.Duration
}

func (r *run) snapshot(ctx context.Context, c *controller) (s snapshot, err error) {
	if s.requests, s.goingOn, err = r.plane.settled(ctx); err != nil {
		return s, err
	}
	if s.sent, err = c.requests(ctx); err != nil {
		return s, err
	}
	s.cpu, err = usage.CPU(c.PID())
	return s, err
}

func (s snapshot) since(before snapshot) snapshot {
	return snapshot{s.requests.since(before.requests), s.sent.since(before.sent), s.goingOn, s.cpu - before.cpu}
}

// issueScenario measures what certificates cost, and what the API server, and an ACME client without Kubernetes, do. No
// scenario prepares a Secret in the namespace that is measured: the ceiling deletes those.
func issueScenario(ctx context.Context, r *run, work *workload) ([]Row, error) {
	r.say("measuring ceilings")
	secrets, err := secretCeiling(ctx, r)
	if err != nil {
		return nil, err
	}
	var bare pace
	if work.bare != nil {
		if bare, err = work.bare(ctx, r); err != nil {
			return nil, err
		}
	}
	if r.issued, err = r.issue(ctx, work, false); err != nil {
		return nil, err
	}
	size, err := r.secretSize(ctx)
	return slices.Concat(r.issued.rows(r.scenario), r.issued.paces(r.scenario.name, work.barely, secrets, bare), size), err
}

// secretSize is how much data the Secret of a certificate has, on average; nothing where there are none.
func (r *run) secretSize(ctx context.Context) ([]Row, error) {
	list := &corev1.SecretList{}
	if err := r.plane.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	count, size := 0, 0
	for _, secret := range list.Items {
		if len(secret.Data[cmmeta.TLSCertKey]) == 0 {
			continue
		}
		count++
		for _, value := range secret.Data {
			size += len(value)
		}
	}
	if count == 0 {
		return nil, nil
	}
	return []Row{{Name: "data of a Secret", Value: float64(size) / float64(count), Unit: "bytes"}}, nil
}

// issue issues everything with a controller of its own. If asked for, it waits until that one is calm: until it has
// looked at all that is there.
func (r *run) issue(ctx context.Context, work *workload, calm bool) (out *cost, err error) {
	err = r.withIssuer(ctx, work, func(c *controller) error {
		if calm {
			if err := c.calm(ctx); err != nil {
				return err
			}
		}
		r.say("issuing %d, %d at a time", r.Certificates, r.Concurrency)
		out, err = r.issueParts(ctx, work, c)
		return err
	})
	return out, err
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

// issueParts issues everything, and looks at what is counted after each part.
func (r *run) issueParts(ctx context.Context, work *workload, c *controller) (*cost, error) {
	seen, err := r.observe(ctx, work)
	if err != nil {
		return nil, err
	}
	defer seen.stop()
	first, err := r.snapshot(ctx, c)
	if err != nil {
		return nil, err
	}
	all := &cost{count: r.Certificates}
	before := first
	for _, p := range parts(r.Certificates) {
		t, err := r.issueAll(ctx, work, seen, p)
		if err != nil {
			return nil, err
		}
		all.add(t)
		after, err := r.snapshot(ctx, c)
		if err != nil {
			return nil, err
		}
		one := &cost{count: p.to - p.from, snapshot: after.since(before), timing: t}
		all.parts = append(all.parts, one.flat(fmt.Sprintf("certificates %d to %d", p.from+1, p.to))...)
		before = after
	}
	all.snapshot = before.since(first)
	all.reads = all.requests.takeReads(all.sent[request{verb: http.MethodGet}] == 0)
	all.resident, err = usage.Resident(c.PID())
	return all, err
}

// issueAll issues a part, and tells what CPU time it took the API server: without the reading of its metrics, which
// takes it more than a certificate does.
func (r *run) issueAll(ctx context.Context, work *workload, seen *observer, p part) (timing, error) {
	server := r.plane.server.PID()
	before, err := usage.CPU(server)
	if err != nil {
		return timing{}, err
	}
	t, err := loop(ctx, p.to-p.from, r.Concurrency, func(ctx context.Context, i int) error {
		return r.issueOne(ctx, work, seen, p.from+i)
	})
	if err != nil {
		return t, err
	}
	after, err := usage.CPU(server)
	t.server = after - before
	return t, err
}

// issueOne creates one object and waits until the watch says that it is issued.
func (r *run) issueOne(ctx context.Context, work *workload, seen *observer, i int) error {
	object := work.object(i)
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
