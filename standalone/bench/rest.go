package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/standalone/bench/usage"
)

const (
	// restingMemory and restingStart are the budgets of 10,000 certificates that are in order.
	restingMemory = 160 << 20
	restingStart  = 8 * time.Second
	// flatCPU is how much more CPU the last certificates may take than the first.
	flatCPU = 1.3
	// restFor is how long a controller is left alone before its memory is read: Go gives back what a start has taken.
	restFor = 15 * time.Second
	// A controller is calm that uses no more than calmCPU in each of calmWindows times calmWindow.
	calmCPU, calmWindow, calmWindows = 50 * time.Millisecond, time.Second, 5
	// unrelatedSize is what a Secret weighs that is none of ours, in bytes.
	unrelatedSize = 10_000
	// unrelatedNamespace holds them.
	unrelatedNamespace = "unrelated"
)

// Rest is the cost of certificates that are in order.
type Rest struct {
	// Certificates is how many there are.
	Certificates int `json:"certificates"`
	// ResidentBytes is the controller's memory some time after a start, beside its Budget, PeakBytes the peak.
	ResidentBytes int64 `json:"residentBytes"`
	PeakBytes     int64 `json:"peakBytes"`
	Budget        int64 `json:"budget"`
	// Writes are those of the start, beside what an idle cluster does: none, if all is in order.
	Writes []RequestRow `json:"writes"`
	// Unrelated is how many Secrets of others were added then, and UnrelatedResidentBytes the controller's memory with
	// them.
	Unrelated              int   `json:"unrelated"`
	UnrelatedResidentBytes int64 `json:"unrelatedResidentBytes,omitempty"`
	// StartMillis is the time from the start of the process until the process works on a Certificate that was changed
	// while no controller ran.
	StartMillis       float64 `json:"startMillis"`
	StartBudgetMillis float64 `json:"startBudgetMillis"`
	// CPUGrowth is the CPU time of a certificate that is issued beside those at rest, divided by the CPU time of a
	// certificate without them.
	CPUGrowth       float64 `json:"cpuGrowth"`
	CPUGrowthBudget float64 `json:"cpuGrowthBudget"`
}

// runAtRest fills the namespace up to --at-rest certificates that are in order, and starts the controller on them.
func runAtRest(ctx context.Context, r *run, work *workload, result *Scenario) (err error) {
	out := &Rest{Certificates: max(r.AtRest, r.Certificates), Budget: restingMemory, StartBudgetMillis: millis(restingStart), CPUGrowthBudget: flatCPU, Unrelated: r.Unrelated}
	r.say("%s: laying %d certificates to rest", result.Name, out.Certificates)
	if err := r.seed(ctx, work); err != nil {
		return err
	}
	before, _, err := r.plane.settled(ctx)
	if err != nil {
		return err
	}
	if out.ResidentBytes, out.PeakBytes, err = r.atRest(ctx, work); err != nil {
		return err
	}
	after, _, err := r.plane.settled(ctx)
	if err != nil {
		return err
	}
	started := after.since(before)
	started.takeReads(true)
	out.Writes = rows(started.of(classWork), 1)
	if r.Unrelated > 0 {
		r.say("%s: adding %d Secrets of others", result.Name, r.Unrelated)
		if err := r.addUnrelated(ctx); err != nil {
			return err
		}
		if out.UnrelatedResidentBytes, _, err = r.atRest(ctx, work); err != nil {
			return err
		}
	}
	if out.StartMillis, err = r.startOnChange(ctx, work); err != nil {
		return err
	}
	if out.CPUGrowth, err = r.growth(ctx, work, result.CPUMillisEach); err != nil {
		return err
	}
	result.Rest = out
	return nil
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

// calm waits until the controller has looked at everything, and then leaves it alone for restFor.
func (c *controller) calm(ctx context.Context) error {
	before, err := usage.CPU(c.PID())
	if err != nil {
		return err
	}
	tick := time.NewTicker(calmWindow)
	defer tick.Stop()
	for quiet := 0; quiet < calmWindows; quiet++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now, err := usage.CPU(c.PID())
		if err != nil {
			return err
		}
		if now-before > calmCPU {
			quiet = -1
		}
		before = now
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(restFor):
		return nil
	}
}

// addUnrelated makes the Secrets of others.
func (r *run) addUnrelated(ctx context.Context) (err error) {
	if err := r.plane.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: unrelatedNamespace}}); err != nil {
		return err
	}
	to, err := newSeeder(r.plane)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close(ctx)) }()
	return r.seedUnrelated(ctx, to, r.Unrelated)
}

// growth issues as many certificates again beside those at rest, and compares the CPU time of each.
func (r *run) growth(ctx context.Context, work *workload, alone float64) (float64, error) {
	more := *work
	more.object = func(i int) client.Object { return work.object(r.Certificates + i) }
	again := &Scenario{Name: "rest", Certificates: r.Certificates}
	more.calm = true
	if err := issueScenario(ctx, r, &more, again); err != nil {
		return 0, err
	}
	return again.CPUMillisEach / alone, nil
}

// atRest runs a controller that finds nothing to do, and tells how much memory it has in the end, and had at most.
func (r *run) atRest(ctx context.Context, work *workload) (resident, peak int64, err error) {
	c, err := startProcess(ctx, r, controllerOf(work))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.calm(ctx); err != nil {
		return 0, 0, err
	}
	pid := c.PID()
	if resident, err = usage.Resident(pid); err != nil {
		return 0, 0, err
	}
	peak, err = usage.Peak(pid)
	return resident, peak, err
}

// startOnChange changes a Certificate while no controller runs: one that is late in the list. It returns how many
// milliseconds after its start a controller works on the Certificate.
func (r *run) startOnChange(ctx context.Context, work *workload) (_ float64, err error) {
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
	c, err := startProcess(ctx, r, controllerOf(work))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	timeout := time.NewTimer(issueWithin + r.starts(1))
	defer timeout.Stop()
	select {
	case _, open := <-w.ResultChan():
		if !open {
			return 0, errWatchEnded
		}
		return millis(time.Since(c.Began())), nil
	case <-timeout.C:
		return 0, fmt.Errorf("%s has changed, and nobody has looked at it after %s", crt.Name, issueWithin+r.starts(1))
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (o *Rest) writeText(t *table) {
	t.line("")
	t.line("  resident memory with %d certificates at rest\t%s, budget %s for 10,000; at most %s", o.Certificates, mebibytes(o.ResidentBytes), mebibytes(o.Budget), mebibytes(o.PeakBytes))
	if o.Unrelated > 0 {
		t.line("  … with %d Secrets of others\t%s", o.Unrelated, mebibytes(o.UnrelatedResidentBytes))
	}
	writes := "none"
	if len(o.Writes) > 0 {
		writes = inWords(o.Writes)
	}
	t.line("  writes of a start\t%s", writes)
	t.line("  from start to the first look at a changed one\t%.0f ms, budget %.0f ms", o.StartMillis, o.StartBudgetMillis)
	t.line("  CPU of one that is issued beside them, times of one without\t%.2f, budget %.1f", o.CPUGrowth, o.CPUGrowthBudget)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }
