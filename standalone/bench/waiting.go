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
	waitingCPU = 5.0
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
	// late is when the DNS server of prepareLate shows a record: self checks before that, at once and a quarter of a
	// second later, fail.
	late = 600 * time.Millisecond
)

// prepareWaiting makes the DNS server take updates that it never shows, and lets all challenges be in flight.
func prepareWaiting(ctx context.Context, r *run) (*workload, error) {
	return prepareHidden(ctx, r, r.Certificates)
}

// preparePostponed does so with few in flight, so that others wait and those that fail are postponed.
func preparePostponed(ctx context.Context, r *run) (*workload, error) {
	return prepareHidden(ctx, r, postponingCap)
}

func prepareHidden(ctx context.Context, r *run, inFlight int) (*workload, error) {
	return prepareDelayed(ctx, r, neverAppears, "--max-concurrent-challenges="+strconv.Itoa(inFlight), "--dns01-check-retry-period="+checkPeriod.String())
}

// prepareLate makes the DNS server show each record late.
func prepareLate(ctx context.Context, r *run) (*workload, error) { return prepareDelayed(ctx, r, late) }

func prepareDelayed(ctx context.Context, r *run, delay time.Duration, arguments ...string) (*workload, error) {
	work, err := prepareACME(ctx, r, rfc2136Solver, nil)
	if err == nil {
		work.dns.SetDelay(0, delay)
		work.arguments = append(work.arguments, arguments...)
	}
	return work, err
}

// waitScenario creates all certificates and looks at the controller while none can be issued, once self checks come at
// the fixed period.
func waitScenario(ctx context.Context, r *run, work *workload) (rows []Row, err error) {
	err = r.withIssuer(ctx, work, func(c *controller) error {
		r.say("creating %d", r.Certificates)
		if _, err := loop(ctx, r.Certificates, r.Concurrency, func(ctx context.Context, i int) error {
			return r.plane.client.Create(ctx, work.object(i))
		}); err != nil {
			return err
		}
		for presented := 0; presented < r.Certificates; {
			if err := sleep(ctx, time.Second); err != nil {
				return fmt.Errorf("%d of %d challenges are presented: %w", presented, r.Certificates, err)
			}
			if presented, _, err = r.challenges(ctx); err != nil {
				return err
			}
		}
		if err := sleep(ctx, steadyAfter); err != nil {
			return err
		}
		_, inFlight, err := r.challenges(ctx)
		if err != nil {
			return err
		}
		r.say("all wait, measuring for %s", r.Window)
		before, after, err := r.lookTwice(ctx, work, c)
		if err != nil {
			return err
		}
		resident, err := usage.Resident(c.PID())
		rows = append([]Row{
			{Name: "challenges that wait", Value: float64(r.Certificates)},
			{Name: "… of them in flight", Value: float64(inFlight)},
			{Name: "measured for", Value: r.Window.Seconds(), Unit: "s"},
			{Name: "each is checked every", Value: checkPeriod.Seconds(), Unit: "s"},
		}, after.since(before, r.Certificates)...)
		rows = append(rows, mebibytes("controller's resident memory", resident))
		return err
	})
	return rows, err
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

// look is what is counted at one time while challenges wait: checks are questions for TXT records, others are those for
// zone cuts, name servers and addresses.
type look struct {
	at             time.Time
	requests       counts
	cpu            time.Duration
	checks, others int
}

// lookTwice looks at the beginning and at the end of the window. The controller is asked nothing in it.
func (r *run) lookTwice(ctx context.Context, work *workload, c *controller) (before, after look, err error) {
	if before.requests, err = r.plane.counted(ctx); err != nil {
		return before, after, err
	}
	before.checks, before.others = work.questions()
	before.at = time.Now()
	if before.cpu, err = usage.CPU(c.PID()); err != nil {
		return before, after, err
	}
	if err := sleep(ctx, r.Window); err != nil {
		return before, after, err
	}
	if after.cpu, err = usage.CPU(c.PID()); err != nil {
		return before, after, err
	}
	after.at = time.Now()
	after.checks, after.others = work.questions()
	after.requests, err = r.plane.counted(ctx)
	return before, after, err
}

// since is what so many challenges cost. They cost no request to the API server, for no outcome has changed, and ask
// for nothing but their records.
func (l look) since(before look, challenges int) []Row {
	took := l.at.Sub(before.at).Seconds()
	return []Row{
		{Name: "controller's CPU", Value: 100 * (l.cpu - before.cpu).Seconds() / took, Unit: "% of a core", Budget: new(waitingCPU), Words: "for 1,000"},
		l.requests.since(before.requests).of(classWork).none("requests to the API server"),
		{Name: "questions for the record, for each challenge and period", Value: float64(l.checks-before.checks) / float64(challenges) / (took / checkPeriod.Seconds())},
		{Name: "other questions, in all", Value: float64(l.others - before.others)},
	}
}

// questions counts what the DNS server was asked: for TXT records, and for what leads there; an update is a question
// too.
func (w *workload) questions() (checks, others int) {
	for _, kind := range []uint16{dns.TypeNone, dns.TypeSOA, dns.TypeNS, dns.TypeA, dns.TypeAAAA, dns.TypeCNAME} {
		others += w.dns.Queries(0, kind)
	}
	return w.dns.Queries(0, dns.TypeTXT), others
}
