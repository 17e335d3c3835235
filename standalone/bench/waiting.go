package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/miekg/dns"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/standalone/bench/usage"
)

const (
	// waitingCPU is the budget of a thousand challenges that wait for propagation, in percent of a core.
	waitingCPU = 5
	// checkPeriod is how often their self checks are tried again: the default of --dns01-check-retry-period.
	checkPeriod = 10 * time.Second
	// steadyAfter is how long after the last record was presented self checks come at the fixed period: they start after a
	// quarter of a second and double up to it, which takes 16 seconds, and one period more spreads them.
	steadyAfter = 30 * time.Second
	// postponingCap is how many challenges are in flight in the scenario postponed: the default of
	// --max-concurrent-challenges.
	postponingCap = 60
	// neverAppears is longer than any run.
	neverAppears = 24 * time.Hour
)

// Waiting is the cost of challenges whose record does not appear, once their self checks come at the fixed period.
type Waiting struct {
	// Challenges that wait, and how many of them have a slot; the others are postponed.
	Challenges int `json:"challenges"`
	InFlight   int `json:"inFlight"`
	// WindowSeconds is how long the challenges were watched, PeriodSeconds the time between two checks of one.
	WindowSeconds float64 `json:"windowSeconds"`
	PeriodSeconds float64 `json:"periodSeconds"`
	// CPUPercent is the controller's CPU time in percent of one core, beside the budget for a thousand.
	CPUPercent       float64 `json:"cpuPercent"`
	CPUBudgetPercent float64 `json:"cpuBudgetPercent"`
	// Requests to the API server in the window, beside what an idle cluster does: none, since no outcome has changed.
	Requests []RequestRow `json:"requests"`
	// Checks is how many questions for the TXT record there were for each challenge and period, and OtherQuestions how
	// many for anything else in all: zone cuts, name servers and addresses are known.
	Checks         float64 `json:"checks"`
	OtherQuestions int     `json:"otherQuestions"`
}

// prepareWaiting makes the DNS server take updates that it never shows, and lets all challenges be in flight.
func prepareWaiting(ctx context.Context, r *run) (*workload, error) {
	return prepareHidden(ctx, r, r.Certificates)
}

// preparePostponed does so with few in flight, so that others wait and those that fail are postponed.
func preparePostponed(ctx context.Context, r *run) (*workload, error) {
	return prepareHidden(ctx, r, postponingCap)
}

// late is when the DNS server of prepareLate shows a record: self checks before that, at once and a quarter of a second
// later, fail.
const late = 600 * time.Millisecond

// prepareLate makes the DNS server show each record late.
func prepareLate(ctx context.Context, r *run) (*workload, error) {
	work, err := prepareACME(ctx, r, rfc2136Solver)
	if err == nil {
		work.dns.SetDelay(0, late)
	}
	return work, err
}

func prepareHidden(ctx context.Context, r *run, inFlight int) (*workload, error) {
	work, err := prepareACME(ctx, r, rfc2136Solver)
	if err != nil {
		return nil, err
	}
	work.dns.SetDelay(0, neverAppears)
	work.controllerArguments = append(work.controllerArguments,
		"--max-concurrent-challenges="+strconv.Itoa(inFlight), "--dns01-check-retry-period="+checkPeriod.String())
	return work, nil
}

// waitScenario creates all certificates and looks at the controller while none can be issued.
func waitScenario(ctx context.Context, r *run, work *workload, result *Scenario) error {
	return withController(ctx, r, work, func(c *controller) error {
		r.say("%s: creating %d", result.Name, r.Certificates)
		if _, err := loop(ctx, r.Certificates, r.Concurrency, func(ctx context.Context, i int) error {
			return r.plane.client.Create(ctx, work.object(i))
		}); err != nil {
			return err
		}
		inFlight, err := r.untilAllWait(ctx)
		if err != nil {
			return err
		}
		r.say("%s: all wait, measuring for %s", result.Name, r.Window)
		out := &Waiting{
			Challenges: r.Certificates, InFlight: inFlight,
			WindowSeconds: r.Window.Seconds(), PeriodSeconds: checkPeriod.Seconds(), CPUBudgetPercent: waitingCPU,
		}
		if err := out.measure(ctx, r, work, c); err != nil {
			return err
		}
		result.Waiting = out
		result.ResidentBytes, err = usage.Resident(c.PID())
		return err
	})
}

// untilAllWait waits until every certificate has a challenge whose record is presented, and then until their self
// checks come at the fixed period. It tells how many have a slot.
func (r *run) untilAllWait(ctx context.Context) (inFlight int, err error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for presented := 0; presented < r.Certificates; {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d challenges are presented: %w", presented, r.Certificates, ctx.Err())
		case <-tick.C:
		}
		if presented, _, err = r.challenges(ctx); err != nil {
			return 0, err
		}
	}
	if err := sleep(ctx, steadyAfter); err != nil {
		return 0, err
	}
	_, inFlight, err = r.challenges(ctx)
	return inFlight, err
}

// challenges counts those that are presented, and those that have a slot.
func (r *run) challenges(ctx context.Context) (presented, inFlight int, err error) {
	all := &acmev1.ChallengeList{}
	if err := r.plane.client.List(ctx, all, client.InNamespace(namespace)); err != nil {
		return 0, 0, err
	}
	for i := range all.Items {
		status := &all.Items[i].Status
		if status.State.IsFinal() {
			return 0, 0, errors.New("a challenge is not waiting but " + string(status.State) + ": " + status.Reason)
		}
		if status.Presented {
			presented++
		}
		if status.Processing {
			inFlight++
		}
	}
	return presented, inFlight, nil
}

// measure looks at everything at the beginning and at the end of the window. The controller is asked nothing in it.
func (o *Waiting) measure(ctx context.Context, r *run, work *workload, c *controller) error {
	requests, err := r.plane.counted(ctx)
	if err != nil {
		return err
	}
	checks, others := work.questions()
	began := time.Now()
	used, err := usage.CPU(c.PID())
	if err != nil {
		return err
	}
	if err := sleep(ctx, r.Window); err != nil {
		return err
	}
	usedThen, err := usage.CPU(c.PID())
	if err != nil {
		return err
	}
	took := time.Since(began)
	checksThen, othersThen := work.questions()
	requestsThen, err := r.plane.counted(ctx)
	if err != nil {
		return err
	}
	o.CPUPercent = 100 * (usedThen - used).Seconds() / took.Seconds()
	o.Requests = rows(requestsThen.since(requests).of(classWork), float64(o.Challenges))
	o.Checks = float64(checksThen-checks) / float64(o.Challenges) / (took.Seconds() / checkPeriod.Seconds())
	o.OtherQuestions = othersThen - others
	return nil
}

// questions counts what the DNS server was asked: for TXT records, and for what leads there; an update is a question
// too.
func (w *workload) questions() (checks, others int) {
	for _, kind := range []uint16{dns.TypeNone, dns.TypeSOA, dns.TypeNS, dns.TypeA, dns.TypeAAAA, dns.TypeCNAME} {
		others += w.dns.Queries(0, kind)
	}
	return w.dns.Queries(0, dns.TypeTXT), others
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (o *Waiting) writeText(t *table, resident int64) {
	t.line("  challenges that wait\t%d, %d of them in flight", o.Challenges, o.InFlight)
	t.line("  measured for\t%.0f s, each is checked every %.0f s", o.WindowSeconds, o.PeriodSeconds)
	verdict := ""
	if o.CPUPercent > o.CPUBudgetPercent {
		verdict = ": EXCEEDED"
	}
	t.line("  controller's CPU\t%.2f %% of a core, budget %.0f %% for 1,000%s", o.CPUPercent, o.CPUBudgetPercent, verdict)
	requests := "none, budget none"
	if len(o.Requests) > 0 {
		requests = inWords(o.Requests) + ", budget none: EXCEEDED"
	}
	t.line("  requests to the API server\t%s", requests)
	t.line("  questions for the record, each period\t%.2f for each challenge", o.Checks)
	t.line("  other questions, in all\t%d", o.OtherQuestions)
	t.line("  controller's resident memory\t%s", mebibytes(resident))
}
