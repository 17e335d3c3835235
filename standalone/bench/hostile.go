package bench

import (
	"context"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

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

	hostileMemory       = 300 << 20
	hostileRatio        = 2.0
	hostileRestartRatio = 1.5
)

// Hostile is what certificates of one namespace take beside another one that attacks: with objects as large as the API
// server takes, with objects that come and go, and with servers that send as much as they can.
type Hostile struct {
	// Answers is how many large answers hostile servers have sent, and Requests how many certificates were asked of them.
	Answers  int `json:"answers"`
	Requests int `json:"requests"`
	// PeakBytes is the most resident memory of the controller during the attack, and after the restart.
	PeakBytes [2]int64 `json:"peakBytes"`
	// PeakBudget is the bar for both.
	PeakBudget int64 `json:"peakBudget"`
	// Alone and Beside are the pace of certificates by a CA, before the attack and beside it.
	Alone  Pace `json:"alone"`
	Beside Pace `json:"beside"`
	// Ratio compares the medians, and RatioBudget is the bar.
	Ratio       float64 `json:"ratio"`
	RatioBudget float64 `json:"ratioBudget"`
	// FirstMillis is from the start of a controller until the first certificate, without the attack and with its objects:
	// medians of several starts.
	FirstMillis [2]float64 `json:"firstMillis"`
	// RestartRatio compares them, and RestartRatioBudget is the bar.
	RestartRatio       float64 `json:"restartRatio"`
	RestartRatioBudget float64 `json:"restartRatioBudget"`
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
	out := &Hostile{PeakBudget: hostileMemory, RatioBudget: hostileRatio, RestartRatioBudget: hostileRestartRatio}
	one := *r
	one.Concurrency = 1
	next, under := 0, (*attack.Attack)(nil)
	issueSome := func(n int) (Pace, error) {
		t, _, err := issueAll(ctx, &one, work, seen, part{next, next + n})
		next += n
		return t.pace(), err
	}
	first := func(into *float64, do func(*controller) error) error {
		var took [starts]float64
		for n := range took {
			then := do
			if n < starts-1 {
				then = func(*controller) error { return nil }
			}
			next++
			if err := r.startWith(ctx, work, seen, next-1, &took[n], then); err != nil {
				return err
			}
		}
		slices.Sort(took[:])
		*into = took[starts/2]
		return nil
	}
	if err := withController(ctx, r, work, func(*controller) (err error) {
		if _, err = issueSome(5); err == nil {
			out.Alone, err = issueSome(besides)
		}
		return err
	}); err != nil {
		return err
	}
	err := first(&out.FirstMillis[0], func(c *controller) (err error) {
		if under, err = r.attack(ctx); err != nil {
			return err
		}
		r.say("%s: issuing %d beside the attack", result.Name, besides)
		if out.Beside, err = issueSome(besides); err == nil {
			out.PeakBytes[0], err = usage.Peak(c.PID())
		}
		return err
	})
	if err != nil {
		return err
	}
	r.say("%s: starting the controller again", result.Name)
	err = first(&out.FirstMillis[1], func(c *controller) (err error) {
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
	out.Ratio, out.RestartRatio = out.Beside.P50Millis/out.Alone.P50Millis, out.FirstMillis[1]/out.FirstMillis[0]
	result.Hostile = out
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
	const name = "hostile." + zone
	der, err := newRequest(name)
	if err != nil {
		return nil, err
	}
	a, err := attack.Start(ctx, r.plane.client, name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	if err != nil {
		return nil, err
	}
	return a, sleep(ctx, hostileFor)
}

func (o *Hostile) writeText(t *table) {
	t.line("  large answers of hostile servers\t%d, to %d requests for certificates", o.Answers, o.Requests)
	t.line("\n  \tP50\tP99\tFIRST AFTER A START\tMOST RESIDENT MEMORY")
	t.line("  alone\t%.0f ms\t%.0f ms\t%.1f s\t", o.Alone.P50Millis, o.Alone.P99Millis, o.FirstMillis[0]/1000)
	t.line("  beside the attack\t%.0f ms\t%.0f ms\t%.1f s\t%s, %s after the start", o.Beside.P50Millis, o.Beside.P99Millis, o.FirstMillis[1]/1000,
		mebibytes(o.PeakBytes[0]), mebibytes(o.PeakBytes[1]))
	t.line("")
	for _, row := range []struct {
		name      string
		value, at float64
	}{
		{"latency p50 beside the attack, times that alone", o.Ratio, o.RatioBudget},
		{fmt.Sprintf("first certificate after a start (median of %d), times that without the attack", starts), o.RestartRatio, o.RestartRatioBudget},
		{"most resident memory, MiB", float64(max(o.PeakBytes[0], o.PeakBytes[1]) >> 20), float64(o.PeakBudget >> 20)},
	} {
		verdict := ""
		if row.value > row.at {
			verdict = ": EXCEEDED"
		}
		t.line("  %s\t%.2f, at most %.1f%s", row.name, row.value, row.at, verdict)
	}
}
