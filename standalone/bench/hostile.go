package bench

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/standalone/bench/attack"
	"chancery.dev/standalone/bench/usage"
)

// How the attack is measured. Bars are printed beside the results.
const (
	// hostileFor is how long the attack goes on before anything is measured beside it, and after the restart.
	hostileFor = 30 * time.Second

	// besides is how many certificates are issued alone, and beside the attack, one at a time.
	besides = 20
	// starts is how often a controller is started, alone and beside the attack: one start is longer by half now and then.
	starts = 7
	// firstWithin bounds the wait for the first certificate after a start.
	firstWithin = 6 * time.Minute

	// asked is how many certificates by DNS-01 are issued alone, and beside the attack.
	asked = 3

	hostileMemory = 300 << 20
	hostileRatio  = 2.0
	hostileStart  = 5 * time.Second
	// hostileRuns is how often it is tried: the best run counts, and one within all bars is the last.
	hostileRuns = 3
)

// Hostile is the cost of certificates in one namespace while another namespace attacks: with objects as large as the
// API server takes, with many objects, with objects that come and go, with servers that send as much as they can, and
// with a CA that gives no result.
type Hostile struct {
	// Answers is how many large answers hostile servers have sent, and Requests how many certificates were asked of them.
	Answers  int `json:"answers"`
	Requests int `json:"requests"`
	// PeakBytes is the most resident memory of the controller during the attack, and after the restart.
	PeakBytes [2]int64 `json:"peakBytes"`
	// Alone and Beside are the pace of certificates by a CA, before the attack and beside it.
	Alone  Pace `json:"alone"`
	Beside Pace `json:"beside"`
	// Ratio compares the medians.
	Ratio float64 `json:"ratio"`
	// DNS01Millis is the time of the slowest certificate by DNS-01, before the attack and beside it.
	DNS01Millis [2]float64 `json:"dns01Millis"`
	// FirstMillis is the time from the start of a controller until the first certificate, without the attack and with
	// the attack's objects: medians of several starts.
	FirstMillis [2]float64 `json:"firstMillis"`
}

// bar is a number that must not be above another one.
type bar struct {
	name      string
	value, at float64
}

func (o *Hostile) bars() []bar {
	return []bar{
		{"latency p50 beside the attack, times that alone", o.Ratio, hostileRatio},
		{fmt.Sprintf("first certificate after a start beside the attack (median of %d), s", starts), o.FirstMillis[1] / 1000, hostileStart.Seconds()},
		{"most resident memory, MiB", float64(max(o.PeakBytes[0], o.PeakBytes[1])) / (1 << 20), hostileMemory >> 20},
	}
}

// worst is the number that is nearest to its bar, or farthest above it, as a share of the bar.
func (o *Hostile) worst() (worst float64) {
	for _, b := range o.bars() {
		worst = max(worst, b.value/b.at)
	}
	return worst
}

// Exceeded returns an error that names each number of the scenario hostile that is above its bar, or nil.
func (r *Report) Exceeded() error {
	var all []error
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; s.Hostile != nil && s.Controller == "" {
			for _, b := range s.Hostile.bars() {
				if b.value > b.at {
					all = append(all, fmt.Errorf("scenario %s: %s: %.2f, at most %g", s.Name, b.name, b.value, b.at))
				}
			}
		}
	}
	return errors.Join(all...)
}

// best runs a scenario, the scenario hostile up to so many times, and returns the best run.
func (r *run) best(ctx context.Context, s scenario) (best *Scenario, err error) {
	for n := 1; ; n++ {
		result, err := runScenario(ctx, r, s)
		if err != nil || result.Hostile == nil {
			return result, err
		}
		if best == nil || result.Hostile.worst() < best.Hostile.worst() {
			best = result
		}
		if best.Hostile.worst() <= 1 || n == hostileRuns {
			return best, nil
		}
		r.say("%s: run %d of %d is above a bar:", s.name, n, hostileRuns)
		if err := result.writeText(r.Progress); err != nil {
			return nil, err
		}
	}
}

// prepareHostile makes a CA, and an ACME issuer whose DNS server hostile challenges are looked up at.
func prepareHostile(ctx context.Context, r *run) (*workload, error) {
	acme, err := prepareDNS01(ctx, r)
	if err != nil {
		return nil, err
	}
	work := certificates(caIssuer)
	work.controllerArguments, work.dns, work.close = acme.controllerArguments, acme.dns, acme.close
	return work, createCA(ctx, r.plane.client)
}

// hostileScenario issues certificates alone, then beside the attack, and restarts the controller on its objects.
func hostileScenario(ctx context.Context, r *run, work *workload, result *Scenario) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := newObserver(work)
	if err := seen.start(ctx, r.plane.client); err != nil {
		return err
	}
	defer seen.stop()
	out := &Hostile{}
	byDNS := certificates(acmeIssuer)
	one := *r
	one.Concurrency = 1
	next, under := 0, (*attack.Attack)(nil)
	issueSome := func(by *workload, n int) (Pace, error) {
		t, _, err := issueAll(ctx, &one, by, seen, part{next, next + n})
		next += n
		return t.pace(), err
	}
	measure := func(pace *Pace, dns01 *float64) error {
		slowest, err := issueSome(byDNS, asked)
		if err == nil {
			*dns01 = slowest.P99Millis
			*pace, err = issueSome(work, besides)
		}
		return err
	}
	if err := withController(ctx, r, work, func(*controller) error {
		if _, err := issueSome(work, 5); err != nil {
			return err
		}
		if err := waitForIssuer(ctx, r.plane.client, acmeIssuer); err != nil {
			return err
		}
		return measure(&out.Alone, &out.DNS01Millis[0])
	}); err != nil {
		return err
	}
	err := r.startOften(ctx, work, seen, &next, &out.FirstMillis[0], func(c *controller) (err error) {
		if under, err = r.attack(ctx); err != nil {
			return err
		}
		r.say("%s: issuing %d beside the attack", result.Name, besides)
		if err = measure(&out.Beside, &out.DNS01Millis[1]); err == nil {
			out.PeakBytes[0], err = usage.Peak(c.PID())
		}
		return err
	})
	if err != nil {
		return err
	}
	r.say("%s: starting the controller again", result.Name)
	err = r.startOften(ctx, work, seen, &next, &out.FirstMillis[1], func(c *controller) (err error) {
		if err := sleep(ctx, hostileFor); err != nil {
			return err
		}
		out.PeakBytes[1], err = usage.Peak(c.PID())
		return err
	})
	if err != nil {
		return err
	}
	out.Requests, out.Answers = under.Stop()
	out.Ratio = out.Beside.P50Millis / out.Alone.P50Millis
	result.Hostile = out
	return nil
}

// startOften starts controllers one after the other, each with a Certificate, from number next on, and tells the median
// of how long these take. It runs the last one until do is over.
func (r *run) startOften(ctx context.Context, work *workload, seen *observer, next *int, median *float64, do func(*controller) error) error {
	var took [starts]float64
	for n := range took {
		then := do
		if n < starts-1 {
			then = func(*controller) error { return nil }
		}
		*next++
		if err := r.startWith(ctx, work, seen, *next-1, &took[n], then); err != nil {
			return err
		}
	}
	slices.Sort(took[:])
	*median = took[starts/2]
	return nil
}

// startWith starts a controller that finds a Certificate, number i, without a certificate. It tells how long the
// certificate takes from the start of the process, and runs the controller until do is over.
func (r *run) startWith(ctx context.Context, work *workload, seen *observer, i int, took *float64, do func(*controller) error) error {
	object := work.object(i)
	issued := seen.expect(object)
	if err := r.plane.client.Create(ctx, object); err != nil {
		return err
	}
	return withController(ctx, r, work, func(c *controller) error {
		timeout := time.NewTimer(firstWithin)
		defer timeout.Stop()
		select {
		case <-issued:
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return fmt.Errorf("the first certificate is not issued after %s: %s", firstWithin, seen.said(object))
		}
		*took = millis(time.Since(c.Began()))
		return do(c)
	})
}

// attack has another namespace attack, for a while.
func (r *run) attack(ctx context.Context) (*attack.Attack, error) {
	r.say("hostile: storing what attacks")
	acme := &certmanagerv1.ClusterIssuer{}
	if err := r.plane.client.Get(ctx, client.ObjectKey{Name: acmeIssuer}, acme); err != nil {
		return nil, err
	}
	with := &attack.With{Name: "hostile." + zone, Solver: acme.Spec.ACME.Solvers[0]}
	many := make([]string, limits.CertificateNames)
	for n := range many {
		many[n] = fmt.Sprintf("%d.%s", n, with.Name)
	}
	for _, request := range []struct {
		pem   *[]byte
		names []string
	}{{&with.CSR, []string{with.Name}}, {&with.ManyNamed, many}} {
		der, err := newRequest(with.Name, request.names...)
		if err != nil {
			return nil, err
		}
		*request.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	a, err := attack.Start(ctx, r.plane.client, with)
	if err != nil {
		return nil, err
	}
	return a, sleep(ctx, hostileFor)
}

func (o *Hostile) writeText(t *table) {
	t.line("  large answers of hostile servers\t%d, to %d requests for certificates", o.Answers, o.Requests)
	t.line("\n  \tP50\tP99\tBY DNS-01\tFIRST AFTER A START\tMOST RESIDENT MEMORY")
	t.line("  alone\t%.0f ms\t%.0f ms\t%.1f s\t%.1f s\t", o.Alone.P50Millis, o.Alone.P99Millis, o.DNS01Millis[0]/1000, o.FirstMillis[0]/1000)
	t.line("  beside the attack\t%.0f ms\t%.0f ms\t%.1f s\t%.1f s\t%s, %s after the start", o.Beside.P50Millis, o.Beside.P99Millis,
		o.DNS01Millis[1]/1000, o.FirstMillis[1]/1000, mebibytes(o.PeakBytes[0]), mebibytes(o.PeakBytes[1]))
	t.line("")
	for _, b := range o.bars() {
		verdict := ""
		if b.value > b.at {
			verdict = ": EXCEEDED"
		}
		t.line("  %s\t%.2f, at most %g%s", b.name, b.value, b.at, verdict)
	}
}
