package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// budgeted is up to how many certificates at rest there is a budget of memory, and of the time of a start.
const budgeted = 10_000

// restScenario issues certificates, fills the namespace up to --at-rest certificates that are in order, and starts the
// controller on them.
func restScenario(ctx context.Context, r *run, work *workload) ([]Row, error) {
	rows, err := issueScenario(ctx, r, work)
	if err != nil {
		return nil, err
	}
	count := max(r.AtRest, r.Certificates)
	r.say("laying %d certificates to rest", count)
	if err := r.seed(ctx, work); err != nil {
		return nil, err
	}
	before, _, err := r.plane.settled(ctx)
	if err != nil {
		return nil, err
	}
	with, err := r.memoryAtRest(ctx, work)
	if err != nil {
		return nil, err
	}
	after, _, err := r.plane.settled(ctx)
	if err != nil {
		return nil, err
	}
	resident := with.rows(fmt.Sprintf("resident memory with %d certificates", count))
	if count <= budgeted {
		resident[0].Budget = new(160.0)
	}
	made := after.since(before)
	made.takeReads(true) // the control plane's garbage collector looks for the owners of what was seeded
	rows = append(append(rows, resident...), made.of(classWork).none("writes of a start"))
	if r.Unrelated > 0 {
		r.say("adding %d Secrets of others", r.Unrelated)
		if err := r.addUnrelated(ctx); err != nil {
			return nil, err
		}
		more, err := r.memoryAtRest(ctx, work)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more.rows(fmt.Sprintf("resident memory with %d certificates and %d Secrets of others", count, r.Unrelated))...)
	}
	start, err := r.startOnChange(ctx, work)
	if err != nil {
		return nil, err
	}
	growth, err := r.growth(ctx, work)
	look := Row{Name: "from start to the first look at a changed one", Value: start, Unit: "ms"}
	if count <= budgeted {
		look.Budget = new(8000.0)
	}
	return append(rows,
		look,
		Row{Name: "CPU of one that is issued beside them, times of one without", Value: growth, Budget: new(1.3)},
	), err
}

// seed copies the first certificate as often as it takes.
func (r *run) seed(ctx context.Context, work *workload) (err error) {
	first, err := r.sample(ctx, work.object(0).GetName())
	if err != nil {
		return err
	}
	to, err := newSeeder(r.plane)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close(ctx)) }()
	for i := range r.AtRest - r.Certificates {
		if err := first.copyTo(ctx, to, seededName(i)); err != nil {
			return err
		}
	}
	return nil
}

// growth issues as many certificates again beside those at rest, and compares the CPU time of each.
func (r *run) growth(ctx context.Context, work *workload) (float64, error) {
	more := *work
	more.object = func(i int) client.Object { return work.object(r.Certificates + i) }
	again, err := r.issue(ctx, &more, true)
	if err != nil {
		return 0, err
	}
	return again.cpuEach() / r.issued.cpuEach(), nil
}

// startOnChange changes a Certificate while no controller runs: one that is late in the list. It returns how many
// milliseconds after its start a controller works on the Certificate.
func (r *run) startOnChange(ctx context.Context, work *workload) (took float64, err error) {
	last := client.ObjectKeyFromObject(work.object(r.Certificates - 1))
	if copies := r.AtRest - r.Certificates; copies > 0 {
		last.Name = seededName(copies - 1)
	}
	crt := &certmanagerv1.Certificate{}
	if err := r.plane.client.Get(ctx, last, crt); err != nil {
		return 0, err
	}
	crt.Spec.DNSNames = append(crt.Spec.DNSNames, "changed."+zone)
	if err := r.plane.client.Update(ctx, crt); err != nil {
		return 0, err
	}
	w, err := r.plane.client.Watch(ctx, &certmanagerv1.CertificateList{}, client.InNamespace(namespace),
		client.MatchingFields{"metadata.name": crt.Name}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: crt.ResourceVersion}})
	if err != nil {
		return 0, fmt.Errorf("watch the Certificate that has changed: %w", err)
	}
	defer w.Stop()
	err = r.with(ctx, work, func(c *controller) error {
		timeout := time.NewTimer(issueWithin + r.starts(1))
		defer timeout.Stop()
		select {
		case _, open := <-w.ResultChan():
			if !open {
				return errWatchEnded
			}
			took = millis(time.Since(c.Began()))
			return nil
		case <-timeout.C:
			return fmt.Errorf("%s has changed, and nobody has looked at it after %s", crt.Name, issueWithin+r.starts(1))
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return took, err
}
