// Package bench measures the cost of certificates: requests to the API server, time, and the controller's CPU and
// memory.
//
// The API server, the controller and the measuring process are three processes, so that the CPU time of each can be
// measured alone. The API server counts the requests; the measuring process does not. Most scenarios also measure a
// ceiling: how fast the API server alone, or an ACME client without Kubernetes, does a part of the same work. The
// ceiling is measured in the same run on the same machine, because ratios tell more than seconds. The package is not a
// test: it prints each budget next to its count. Only in the scenario hostile, a number above its bound is an error.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"chancery.dev/standalone/child"
	"chancery.dev/standalone/controlplane"
)

// Options say what to measure.
type Options struct {
	// Certificates is how many to issue in each scenario; at least 1.
	Certificates int
	// Scenarios to run, in this sequence; see Scenarios.
	Scenarios []string
	// Concurrency is how many certificates are under way at once, in scenarios and ceilings; at least 1.
	Concurrency int
	// AtRest is the number of certificates up to which the scenario rest fills the namespace. Unrelated is how many
	// Secrets of others this scenario adds.
	AtRest, Unrelated int
	// Definitions is how many the scenario injection makes.
	Definitions int
	// Window is how long the scenarios watch objects that are at rest, or that wait.
	Window time.Duration
	// Hanging is how many issuers with servers that never answer the scenario hanging has, in another namespace.
	Hanging int
	// Routes makes an Ingress for each HTTP-01 Challenge, as on a cluster, although nobody serves the Ingress here.
	Routes bool
	// Standalone and Controller are the binaries chancery-standalone and chancery.
	Standalone, Controller string
	// Other is the program of another controller, which runs each scenario after ours; empty for none. It gets those of
	// our flags that its help names, and OtherArguments.
	Other          string
	OtherArguments []string
	// Progress is told what happens, a line each; nil is told nothing.
	Progress io.Writer
}

// scenario is one kind of certificate to measure.
type scenario struct {
	name string
	// title says what it is, for people.
	title string
	// requestBudget is that of docs/performance.md, for one certificate; zero if there is none.
	requestBudget int
	// prepare sets up what the certificates need and says how to make and recognise them.
	prepare func(ctx context.Context, r *run) (*workload, error)
	// measure does the work, and tells what it took.
	measure func(ctx context.Context, r *run, work *workload) ([]Row, error)
	// apart says that it is done only when it is named: it takes long, or needs numbers that matter.
	apart bool
}

// byDefault and whenNamed are the values of apart.
const byDefault, whenNamed = false, true

func scenarios() []scenario {
	return []scenario{
		{"ca", "Certificates by a CA ClusterIssuer", 6, prepareCA, issueScenario, byDefault},
		{"mldsa", "Certificates with ML-DSA-65 keys by a CA ClusterIssuer with such a key", 6, prepareMLDSA, issueScenario, byDefault},
		{"selfsigned", "Certificates by a SelfSigned ClusterIssuer", 8, prepareSelfSigned, issueScenario, byDefault},
		{"acme-dns01", "Certificates by ACME, DNS-01, one name each", 22, prepareDNS01, issueScenario, byDefault},
		{"late-dns01", "Certificates by ACME, DNS-01, whose records appear after two failed self checks", 22, prepareLate, issueScenario, whenNamed},
		{"acme-http01", "Certificates by ACME, HTTP-01, one name each", 24, prepareHTTP01, issueScenario, byDefault},
		{"requests", "CertificateRequests without a Certificate, by a CA ClusterIssuer", 3, prepareRequests, issueScenario, byDefault},
		{"csr", "CertificateSigningRequests by a CA ClusterIssuer", 4, prepareCSR, issueScenario, byDefault},
		{"pods", "PodCertificateRequests of one ServiceAccount, by a CA ClusterIssuer", 3, preparePods, issueScenario, byDefault},
		{"pods-accounts", "PodCertificateRequests of a ServiceAccount each, by a CA ClusterIssuer", 4, preparePodsOfAccounts, issueScenario, whenNamed},
		{"rest", "Certificates by a CA ClusterIssuer, then at rest", 6, prepareCA, restScenario, whenNamed},
		{"shims", "Certificates that Ingresses and Gateways ask for, by a CA ClusterIssuer, then at rest", 8, prepareShims, shimsScenario, whenNamed},
		{"injection", "The CA injector beside definitions at rest", 0, prepareInjection, injectionScenario, whenNamed},
		{"waiting", "DNS-01 challenges that wait for propagation, all in flight", 0, prepareWaiting, waitScenario, whenNamed},
		{"postponed", "DNS-01 challenges that wait for propagation, most of them postponed", 0, preparePostponed, waitScenario, whenNamed},
		{"hanging", "Certificates by ACME, DNS-01, beside a namespace whose servers never answer", 0, prepareDNS01, hangScenario, whenNamed},
		{hostileName, "Certificates by a CA ClusterIssuer, beside a namespace that attacks", 0, prepareHostile, hostileScenario, whenNamed},
	}
}

// Scenarios returns the names of all scenarios.
func Scenarios() []string { return names(func(scenario) bool { return true }) }

// DefaultScenarios returns the names of the scenarios whose results with a hundred certificates say something and
// take only minutes.
func DefaultScenarios() []string { return names(func(s scenario) bool { return !s.apart }) }

func names(chosen func(scenario) bool) (out []string) {
	for _, s := range scenarios() {
		if chosen(s) {
			out = append(out, s.name)
		}
	}
	return out
}

func (o *Options) validate() error {
	var problems []error
	for _, number := range []struct {
		flag      string
		is, least int
	}{
		{"certificates", o.Certificates, 1}, {"concurrency", o.Concurrency, 1},
		{"unrelated", o.Unrelated, 0}, {"definitions", o.Definitions, 0}, {"hanging", o.Hanging, 0},
	} {
		if number.is < number.least {
			problems = append(problems, fmt.Errorf("--%s: must be at least %d, not %d", number.flag, number.least, number.is))
		}
	}
	if o.Window < 0 {
		problems = append(problems, fmt.Errorf("--window: must not be negative, but is %s", o.Window))
	}
	if len(o.Scenarios) == 0 {
		problems = append(problems, errors.New("--scenario: name at least one"))
	}
	for _, name := range o.Scenarios {
		if !slices.Contains(Scenarios(), name) {
			problems = append(problems, fmt.Errorf("--scenario: there is no %q: choose from %q", name, Scenarios()))
		}
	}
	return errors.Join(problems...)
}

// Run measures and reports. On an error the report holds the scenarios that were finished before it.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	report := &Report{
		Kubernetes: controlplane.KubernetesVersion, CPUs: runtime.NumCPU(), Certificates: o.Certificates, Concurrency: o.Concurrency,
	}
	for _, s := range scenarios() {
		if !slices.Contains(o.Scenarios, s.name) {
			continue
		}
		ours := &run{Options: o, scenario: s}
		result, err := ours.best(ctx)
		if err != nil {
			return report, fmt.Errorf("scenario %s: %w", s.name, err)
		}
		report.Scenarios = append(report.Scenarios, *result)
		if o.Other != "" && ctx.Err() == nil {
			report.Scenarios = append(report.Scenarios, *runOther(ctx, ours))
		}
	}
	return report, nil
}

// runOther measures a scenario with the other controller. What it cannot do is its result.
func runOther(ctx context.Context, ours *run) *Scenario {
	r := &run{Options: ours.Options, scenario: ours.scenario, other: true}
	r.Controller = r.Other
	r.say("again, with %s", r.Other)
	result, err := r.measured(ctx)
	if err != nil {
		result = r.result()
		result.Failure = err.Error()
	}
	result.Controller = r.Other
	if err == nil && ours.issued != nil {
		result.add(r.issued.comparedWith(ours.issued)...)
	}
	return result
}

// run is a scenario under way.
type run struct {
	Options

	scenario scenario
	plane    *plane
	// other says that the controller is the other one.
	other bool
	// help is what the program says of the flags of its command: a scenario has one command, which is asked once.
	help *child.Help
	// issued is what the scenario's certificates have cost; nil if none were to be issued.
	issued *cost
}

// scenarioWithin bounds a whole scenario: it grows with what is issued, and with what lies at rest.
func (o *Options) scenarioWithin() time.Duration {
	within := 5*time.Minute + time.Duration(o.Certificates)*time.Second + o.starts(4)
	if slices.Contains(o.Scenarios, hostileName) {
		within += 3 * firstWithin
	}
	return within
}

// starts is what so many starts of a controller may take longer because of the objects that it finds.
func (o *Options) starts(count int) time.Duration {
	return time.Duration(count*(o.AtRest+o.Unrelated+o.Definitions)) * 5 * time.Millisecond
}

// say tells what happens.
func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.Progress, r.scenario.name+": "+format+"\n", args...)
}

// measured does the scenario on a control plane of its own: no scenario sees what another one has left behind.
func (r *run) measured(ctx context.Context) (_ *Scenario, err error) {
	// A scenario that hangs must not hang for good: the parts bound their waits, this bounds them all. What the scenario
	// has started in this process ends with it.
	ctx, cancel := context.WithTimeout(ctx, r.scenarioWithin())
	defer cancel()
	r.say("starting a control plane")
	if r.plane, err = startPlane(ctx, r.Standalone); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.plane.stop()) }()
	work, err := r.scenario.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	rows, err := r.scenario.measure(ctx, r, work)
	result := r.result()
	result.add(rows...)
	return result, err
}

// result is that of the scenario, without a number so far.
func (r *run) result() *Scenario {
	return &Scenario{Name: r.scenario.name, Title: r.scenario.title, Rows: []Row{}}
}
