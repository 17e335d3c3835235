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
	// what it is, for people.
	title string
	// requestBudget is that of docs/performance.md, for one certificate; zero if there is none.
	requestBudget int
	// prepare sets up what the certificates need and says how to make and recognise them.
	prepare func(ctx context.Context, r *run) (*workload, error)
	// bare measures the ceiling of an ACME client without Kubernetes; nil for none.
	bare func(ctx context.Context, r *run) (*Ceiling, error)
	// rests starts the controller, after that, on what it has issued; nil if it is not. It takes long, with numbers
	// that matter.
	rests func(ctx context.Context, r *run, work *workload, result *Scenario) error
	// does replaces the issuing of all certificates: what is measured is something else; nil for most.
	does func(ctx context.Context, r *run, work *workload, result *Scenario) error
	// apart says that it is not done unless it is asked for.
	apart bool
	// injects says that no certificate is issued: what is measured is the CA injector.
	injects bool
}

func scenarios() []scenario {
	return []scenario{
		{name: "ca", title: "Certificates by a CA ClusterIssuer", requestBudget: 6, prepare: prepareCA},
		{name: "selfsigned", title: "Certificates by a SelfSigned ClusterIssuer", requestBudget: 8, prepare: prepareSelfSigned},
		{
			name: "acme-dns01", title: "Certificates by ACME, DNS-01, one name each", requestBudget: 22,
			prepare: prepareDNS01, bare: bareDNS01,
		},
		{
			name: "late-dns01", title: "Certificates by ACME, DNS-01, whose records appear after two failed self checks", requestBudget: 22,
			prepare: prepareLate, apart: true,
		},
		{
			name: "acme-http01", title: "Certificates by ACME, HTTP-01, one name each", requestBudget: 24,
			prepare: prepareHTTP01, bare: bareHTTP01,
		},
		{name: "requests", title: "CertificateRequests without a Certificate, by a CA ClusterIssuer", requestBudget: 3, prepare: prepareRequests},
		{name: "csr", title: "CertificateSigningRequests by a CA ClusterIssuer", requestBudget: 4, prepare: prepareCSR},
		{
			name: "rest", title: "Certificates by a CA ClusterIssuer, then at rest", requestBudget: 6,
			prepare: prepareCA, rests: runAtRest,
		},
		{
			name: "shims", title: "Certificates that Ingresses and Gateways ask for, by a CA ClusterIssuer, then at rest", requestBudget: 8,
			prepare: prepareShims, rests: restShims,
		},
		{name: "injection", title: "The CA injector beside definitions at rest", injects: true},
		{name: "waiting", title: "DNS-01 challenges that wait for propagation, all in flight", prepare: prepareWaiting, does: waitScenario},
		{name: "postponed", title: "DNS-01 challenges that wait for propagation, most of them postponed", prepare: preparePostponed, does: waitScenario},
		{name: "hanging", title: "Certificates by ACME, DNS-01, beside a namespace whose servers never answer", prepare: prepareDNS01, does: hangScenario},
		{name: "hostile", title: "Certificates by a CA ClusterIssuer, beside a namespace that attacks", prepare: prepareHostile, does: hostileScenario},
	}
}

// Scenarios returns the names of all scenarios.
func Scenarios() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// DefaultScenarios returns the names of the scenarios whose results with a hundred certificates say something and
// take only minutes.
func DefaultScenarios() []string {
	var names []string
	for _, s := range scenarios() {
		if s.rests == nil && s.does == nil && !s.injects && !s.apart {
			names = append(names, s.name)
		}
	}
	return names
}

func (o *Options) validate() error {
	var problems []error
	if o.Certificates < 1 {
		problems = append(problems, fmt.Errorf("--certificates: must be at least 1, not %d", o.Certificates))
	}
	if o.Concurrency < 1 {
		problems = append(problems, fmt.Errorf("--concurrency: must be at least 1, not %d", o.Concurrency))
	}
	if o.Unrelated < 0 {
		problems = append(problems, fmt.Errorf("--unrelated: must not be negative, but is %d", o.Unrelated))
	}
	if o.Definitions < 0 {
		problems = append(problems, fmt.Errorf("--definitions: must not be negative, but is %d", o.Definitions))
	}
	if o.Hanging < 0 {
		problems = append(problems, fmt.Errorf("--hanging: must not be negative, but is %d", o.Hanging))
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
		result, err := (&run{Options: o, help: map[string]*child.Help{}}).best(ctx, s)
		if err != nil {
			return report, fmt.Errorf("scenario %s: %w", s.name, err)
		}
		report.Scenarios = append(report.Scenarios, *result)
		if o.Other != "" && ctx.Err() == nil {
			report.Scenarios = append(report.Scenarios, *runOther(ctx, o, s, result))
		}
	}
	return report, nil
}

// runOther measures a scenario with the other controller. What it cannot do is its result.
func runOther(ctx context.Context, o Options, s scenario, ours *Scenario) *Scenario {
	r := &run{Options: o, other: true, arguments: o.OtherArguments, help: map[string]*child.Help{}}
	r.Controller = o.Other
	r.say("%s: again, with %s", s.name, o.Other)
	result, err := runScenario(ctx, r, s)
	if err != nil {
		result = &Scenario{Name: s.name, Title: s.title, Failure: err.Error()}
	}
	result.Controller = o.Other
	if err == nil && ours.Pace.PerSecond > 0 {
		result.Ratios = append(result.Ratios,
			Ratio{"requests each, times ours", result.RequestsEach / ours.RequestsEach},
			Ratio{"latency p50, times ours", result.Pace.P50Millis / ours.Pace.P50Millis},
			Ratio{"rate, share of ours", result.Pace.PerSecond / ours.Pace.PerSecond},
			Ratio{"controller's CPU each, times ours", result.CPUMillisEach / ours.CPUMillisEach},
			Ratio{"controller's resident memory, times ours", float64(result.ResidentBytes) / float64(ours.ResidentBytes)},
		)
	}
	return result
}

// run is a scenario under way.
type run struct {
	Options

	plane *plane
	// other says that the controller is the other one, which gets arguments too.
	other     bool
	arguments []string
	// help is what the program has said of its flags, by command: it is asked once for each.
	help map[string]*child.Help
}

// helpOf is what the controller's program says of the flags of a command.
func (r *run) helpOf(command string) (_ *child.Help, err error) {
	if r.help[command] == nil {
		r.help[command], err = child.HelpOf(r.Controller, command)
	}
	return r.help[command], err
}

// scenarioWithin bounds a whole scenario: it grows with what is issued, and with what lies at rest.
func (o *Options) scenarioWithin() time.Duration {
	within := 5*time.Minute + time.Duration(o.Certificates)*time.Second + o.starts(4)
	if slices.Contains(o.Scenarios, "hostile") {
		within += 3 * firstWithin
	}
	return within
}

// starts is what so many starts of a controller may take longer because of the objects that it finds.
func (o *Options) starts(count int) time.Duration {
	return time.Duration(count*(o.AtRest+o.Unrelated+o.Definitions)) * 5 * time.Millisecond
}

func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.Progress, format+"\n", args...)
}

// runScenario measures one scenario on a control plane of its own: no scenario sees what another one has left behind.
func runScenario(ctx context.Context, r *run, s scenario) (_ *Scenario, err error) {
	// A scenario that hangs must not hang for good: the parts bound their waits, this bounds them all.
	ctx, cancel := context.WithTimeout(ctx, r.scenarioWithin())
	defer cancel()
	r.say("%s: starting a control plane", s.name)
	if r.plane, err = startPlane(ctx, r.Standalone); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.plane.stop()) }()
	result := &Scenario{Name: s.name, Title: s.title, Certificates: r.Certificates, RequestBudget: s.requestBudget}
	if s.injects {
		return result, injectionScenario(ctx, r, result)
	}
	if s.does == nil {
		if result.Ceilings, err = ceilings(ctx, r, s); err != nil {
			return nil, err
		}
	}
	work, err := s.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	defer work.close()
	if s.does != nil {
		return result, s.does(ctx, r, work, result)
	}
	if err := issueScenario(ctx, r, work, result); err != nil {
		return nil, err
	}
	if s.rests != nil {
		if err := s.rests(ctx, r, work, result); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// ceilings measures what a scenario is compared with.
func ceilings(ctx context.Context, r *run, s scenario) ([]Ceiling, error) {
	r.say("%s: measuring ceilings", s.name)
	secrets, err := secretCeiling(ctx, r)
	if err != nil {
		return nil, err
	}
	if s.bare == nil {
		return []Ceiling{*secrets}, nil
	}
	bare, err := s.bare(ctx, r)
	if err != nil {
		return nil, err
	}
	return []Ceiling{*secrets, *bare}, nil
}

// issueScenario issues everything, with a controller of its own.
func issueScenario(ctx context.Context, r *run, work *workload, result *Scenario) error {
	return withController(ctx, r, work, func(c *controller) error {
		if work.calm {
			if err := c.calm(ctx); err != nil {
				return err
			}
		}
		r.say("%s: issuing %d, %d at a time", result.Name, r.Certificates, r.Concurrency)
		return measure(ctx, r, work, c, result)
	})
}

// withController runs a controller until do is over, which starts when the issuer is ready. An error comes with the
// controller's last words.
func withController(ctx context.Context, r *run, work *workload, do func(*controller) error) (err error) {
	c, err := startProcess(ctx, r, controllerOf(work))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err = waitForIssuer(ctx, r.plane.client, work.issuer); err == nil {
		err = do(c)
	}
	if err != nil {
		return errors.Join(err, c.LastWords())
	}
	return nil
}
