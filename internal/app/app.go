package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/controller/externalissuers"
	"chancery.dev/internal/controller/injection"
	"chancery.dev/internal/controller/podrequests"
	"chancery.dev/internal/controller/requests"
	"chancery.dev/internal/controller/shims"
	"chancery.dev/internal/controller/trustbundles"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/kube/leader"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/metrics"
	"chancery.dev/internal/tracing"
)

// stopWithin is how long the reconcilers may take to finish when asked to stop.
const stopWithin = 4 * time.Second

// App is a controller that is wired and not yet running.
type App struct {
	manager ctrl.Manager
	events  record.EventBroadcaster
	sink    *typedcorev1.EventSinkImpl
	watches *watches
	log     logr.Logger
	counts  *prometheus.CounterVec // of events

	spans     *tracing.Exporter           // nil if nothing is traced
	lease     *leader.Lease               // by which it leads; nil if it works without
	fit       func(context.Context) error // asked before it works without a lease; may be nil
	listening <-chan struct{}             // closed once challenges are answered; nil if they are not answered here
	allSetUp  <-chan struct{}             // closed once everything is set up that comes late; nil if nothing does
}

// New wires a controller that speaks to the API server of rc, with the rights of rc. Nothing runs before Run, which has
// to be called with a context that ends no later than ctx.
func New(ctx context.Context, cfg Config, rc *rest.Config, log logr.Logger) (*App, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.findResponder()
	cfg.setClock()
	rc = connection(rc, "chancery-controller")
	warnOfUnmet(cfg, log)
	scheme, err := api.Scheme()
	if err != nil {
		return nil, err
	}
	kept, watches := kept{secrets.New(cfg.Now), informers.NewRequests()}, newWatches(log)
	options, told := managerOptions(ctx, cfg, scheme, kept, watches), &objectMetrics{cfg: cfg}
	if err := cacheRoutes(cfg, &options.Cache); err != nil {
		return nil, err
	}
	definitions, err := newDefinitions(rc, cfg, log)
	if err != nil {
		return nil, err
	}
	a, err := newLeader(ctx, rc, cfg, leader.Options{Name: "cert-manager-controller", Fit: definitions.check}, options, watches)
	if err != nil {
		return nil, err
	}
	manager := a.manager
	told.manager, told.term = manager, a.term()
	deps, err := a.deps(ctx, cfg, scheme, kept)
	if err != nil {
		return nil, err
	}
	deps.Fit = func() bool { return definitions.ready(nil) == nil }
	if cfg.KeepKinds && !deps.Scope.NamespacedOnly {
		keeper, err := externalissuers.New(externalissuers.Options{
			Config: rc, HTTP: manager.GetHTTPClient(), Reader: manager.GetAPIReader(), Namespace: cfg.AdmissionNamespace,
			Failed: watches.failed, Log: log.WithName("kinds"),
		})
		if err = errors.Join(err, manager.Add(keeper)); err != nil {
			return nil, err
		}
	}
	open := newPorts(manager, watches, deps.Engine.Stuck)
	open.ready["definitions"] = definitions.ready
	open.controller = &metrics.Controller{Objects: told.objects, Leads: told.leads, Now: cfg.Now, Pods: metrics.NewPodRequests()}
	if err := a.serve(ctx, &cfg, rc, open); err != nil {
		return nil, err
	}
	if cfg.WaitsAddress != "" {
		if err := manager.Add(newWaits(cfg.WaitsAddress, deps.Engine.Waits, told.leads, log.WithName("waits"))); err != nil {
			return nil, err
		}
	}
	if cfg.ACME.HTTP01Address+cfg.ACME.TLSALPN01Address != "" {
		answers := newResponder(manager, cfg.ACME.HTTP01Address, cfg.ACME.TLSALPN01Address)
		if err := manager.Add(answers); err != nil {
			return nil, err
		}
		a.listening = answers.listening
	}
	if err := wire(ctx, cfg, deps, open.controller.Pods, log); err != nil {
		return nil, err
	}
	a.allSetUp = deps.AllSetUp()
	return a, nil
}

// connection is rc for a process of Chancery.
func connection(rc *rest.Config, userAgent string) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.QPS, rc.Burst = -1, -1 // the API server protects itself: API Priority and Fairness
	rc.UserAgent = userAgent
	rc.DisableCompression = true // a start would spend more time on it than on a cluster's network
	rc.Wrap(informers.BoundLists)
	return rc
}

// warnOfUnmet says which switches of the user cannot be met.
func warnOfUnmet(cfg Config, log logr.Logger) {
	if len(cfg.Unmet) > 0 {
		slog.New(logr.ToSlogHandler(log)).Warn("these switches change nothing here", "switches", strings.Join(cfg.Unmet, "; "))
	}
}

// never is a time that does not come; twice of it, in seconds, is still a time.Duration.
const never = 50 * 365 * 24 * time.Hour

// newLeader is newApp for processes of which one at a time leads, by the lease of that name. The options of the lease
// are complete but for what cfg says.
func newLeader(ctx context.Context, rc *rest.Config, cfg Config, lease leader.Options, options ctrl.Options, watches *watches) (*App, error) {
	if !cfg.LeaderElect {
		a, err := newApp(ctx, rc, options, watches)
		if err == nil {
			a.fit = lease.Fit
		}
		return a, err
	}
	lease.Namespace, lease.Now = cfg.LeaderElectionNamespace, time.Now
	lease.Duration, lease.RenewDeadline, lease.Retry = cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod
	lock, err := leader.New(rc, lease)
	if err != nil {
		return nil, err
	}
	rc = rest.CopyConfig(rc)
	rc.Wrap(lock.Guard)
	options.LeaderElectionID = lease.Name // in the metrics
	options.LeaderElection, options.LeaderElectionReleaseOnCancel, options.LeaderElectionResourceLockInterface = true, true, lock
	// The lock ends and resumes the term of a leader: the election would end the process.
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = new(2*never), new(never), &cfg.RetryPeriod
	a, err := newApp(ctx, rc, options, watches)
	if err == nil {
		a.lease = lock
	}
	return a, err
}

// newApp returns an App with a manager into which nothing is wired yet.
func newApp(ctx context.Context, rc *rest.Config, options ctrl.Options, watches *watches) (*App, error) {
	manager, err := ctrl.NewManager(rc, options)
	if err != nil {
		return nil, fmt.Errorf("set up the controller manager: %w", err)
	}
	clientset, err := kubernetes.NewForConfigAndClient(rc, manager.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	counts, err := counter("chancery_events_total", "Events that were emitted, by the kind of the object that they are about.", "kind", "type", "reason")
	if err != nil {
		return nil, err
	}
	counts.WithLabelValues(acmev1.ChallengeKind, corev1.EventTypeWarning, acmev1.ChallengeReasonCleanUpAbandoned) // 0: an alert sees the first one, too
	return &App{
		counts: counts,
		// It is shut down by Run, and logs what the API server refuses.
		manager: &adding{Manager: manager}, events: newEvents(logr.NewContext(context.WithoutCancel(ctx), watches.log)),
		sink: &typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events("")}, watches: watches, log: watches.log,
	}, nil
}

// serve adds the ports, at the addresses of cfg.
func (a *App) serve(ctx context.Context, cfg *Config, rc *rest.Config, open ports) error {
	open.healthAddress, open.profilerAddress = cfg.HealthAddress, cfg.ProfilerAddress
	open, err := cfg.withMetrics(open, a.manager, rc, a.watches)
	if err != nil {
		return err
	}
	return open.serve(ctx, a.manager, a.log)
}

// newEvents sends the events about one object at the rate of docs/limits.md, which is that of other clients of
// Kubernetes. What it cannot send, it logs by ctx.
func newEvents(ctx context.Context) record.EventBroadcaster {
	return record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: limits.Events, QPS: 1.0 / limits.EventSeconds,
	}))
}

// kept is what is kept of objects in place of what the caches leave out.
type kept struct {
	secrets  *secrets.Secrets
	requests *informers.Requests
}

// Run works until ctx ends.
func (a *App) Run(ctx context.Context) error {
	watch := a.events.StartRecordingToSink(a.sink)
	logged := a.events.StartEventWatcher(a.logEvent)
	defer func() {
		watch.Stop()
		logged.Stop()
		a.events.Shutdown()
	}()
	if a.fit != nil {
		if err := a.fit(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer a.trace(ctx)()
	lost := make(chan error)
	go func() { lost <- a.loses(ctx, stop) }()
	go a.tellTerm(ctx)
	err := a.manager.Start(logr.NewContext(ctx, a.log)) // leader election logs by its context
	stop()
	if err = errors.Join(<-lost, err); err != nil {
		return errors.Join(err, a.watches.said())
	}
	return nil
}

// trace sends spans until the function that it returns is called, which sends those that are left.
func (a *App) trace(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.spans.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// term is the time for which this process may act.
func (a *App) term() *engine.Term {
	if a.lease == nil {
		return nil
	}
	return a.lease.Term()
}

// tellTerm logs when this process stops acting because its lease has run out, and when it goes on. The end for good is
// told by Run.
func (a *App) tellTerm(ctx context.Context) {
	for t := a.term(); t != nil; a.log.Info("the lease is renewed: going on") {
		running, end := t.Within(ctx)
		<-running.Done()
		end()
		if ctx.Err() != nil || t.Ended() {
			return
		}
		a.log.Info("the lease could not be renewed in time: nothing is written and nobody is asked until it is", "lease", a.lease.Describe())
		if t.Wait(ctx) != nil {
			return
		}
	}
}

// loses calls stop and returns an error if another process takes the lease before ctx ends, or the API server knows
// less than before.
func (a *App) loses(ctx context.Context, stop func()) error {
	if a.lease == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-a.lease.Lost():
		stop()
		return fmt.Errorf("lost the lease %s %w: so this one ends", a.lease.Describe(), a.lease.Loss())
	}
}

// logEvent counts an event. The cause in the line of the log about the decision says the same, so the event comes a
// level lower.
func (a *App) logEvent(e *corev1.Event) {
	about := e.InvolvedObject
	a.counts.WithLabelValues(about.Kind, e.Type, e.Reason).Inc()
	a.log.V(1).Info(e.Message, "reason", e.Reason, "type", e.Type, "kind", about.Kind, "namespace", about.Namespace, "name", about.Name)
}

// Synced waits until the caches hold what the API server has, and until the responder listens, if it runs here; false
// if ctx ended first.
func (a *App) Synced(ctx context.Context) bool {
	synced := a.manager.GetCache().WaitForCacheSync(ctx)
	for _, other := range []<-chan struct{}{a.allSetUp, a.listening} {
		if other != nil {
			select {
			case <-other:
			case <-ctx.Done():
			}
		}
	}
	return synced && informers.WaitForAll(ctx, a.manager.GetCache()) && ctx.Err() == nil
}

func managerOptions(ctx context.Context, cfg Config, scheme *runtime.Scheme, kept kept, watches *watches) ctrl.Options {
	o := commonOptions(ctx, scheme, watches)
	// For what logs by its context.
	o.BaseContext = func() context.Context { return logr.NewContext(context.WithoutCancel(ctx), watches.log) }
	o.Cache.DefaultNamespaces = cacheNamespaces(cfg)
	o.Cache.ByObject = map[client.Object]cache.ByObject{
		&corev1.Secret{}: {
			Label:     labels.SelectorFromSet(labels.Set{certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue}),
			Transform: kept.secrets.Transform,
		},
		&certmanagerv1.CertificateRequest{}: {Transform: stub.Bound(kept.requests.Transform)},
		&certmanagerv1.Certificate{}:        {Transform: stub.Bound(informers.ThinCertificate)},
	}
	// CertificateSigningRequests, PodCertificateRequests and ClusterTrustBundles are not served everywhere, so they
	// cannot be named above.
	o.Cache.DefaultTransform = stub.Bound(informers.ShareSolvers(injection.Transform(requests.Thin(podrequests.Thin(trustbundles.Thin(shims.Thin(cfg.Shims.Settings)))))))
	o.Cache.NewInformer = informers.NewPagedInformer
	return o
}

// commonOptions are those of the controller and of the responder.
func commonOptions(ctx context.Context, scheme *runtime.Scheme, watches *watches) ctrl.Options {
	return ctrl.Options{
		Scheme:   scheme,
		Logger:   Machinery(watches.log),
		NewCache: informers.NewStoppable(ctx),
		Cache: cache.Options{
			DefaultWatchErrorHandler:     watches.failed,
			DefaultUnsafeDisableDeepCopy: new(true),
			DefaultTransform:             stub.Bound(informers.ShareSolvers(cache.TransformStripManagedFields())),
		},
		Metrics:                 metricsserver.Options{BindAddress: "0"}, // see ports, as for the probes
		GracefulShutdownTimeout: new(stopWithin),
	}
}

// cacheNamespaces is the scope, with the namespace that ClusterIssuers keep their Secrets in.
func cacheNamespaces(cfg Config) map[string]cache.Config {
	out := cfg.scope().CacheNamespaces()
	if out != nil && len(cfg.Namespaces) == 0 {
		out[cfg.ClusterResourceNamespace] = cache.Config{}
	}
	return out
}

func (a *App) deps(ctx context.Context, cfg Config, scheme *runtime.Scheme, kept kept) (*controller.Deps, error) {
	rc, watched := a.manager.GetConfig(), a.manager.GetCache()
	names, err := metadata.NewForConfigAndClient(metadata.ConfigFor(rc), a.manager.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	traces := cfg.Tracing
	traces.Service, traces.Log = "chancery-controller", a.log.WithName("traces")
	if a.spans, err = tracing.New(traces); err != nil {
		return nil, err
	}
	pods := podapi.New(client.WithFieldOwner(a.manager.GetClient(), "chancery"))
	api := ownwrites.New(pods, cfg.Now)
	refused, err := metrics.NewRefused()
	if err != nil {
		return nil, err
	}
	api.OnError(refused)
	api.AnswerBriefly(func(obj client.Object) bool { return stub.Is(obj) })
	source := secrets.Source{
		Client: api, Live: a.manager.GetAPIReader(), Cache: watched, Metadata: names, Namespaces: slices.Sorted(maps.Keys(cacheNamespaces(cfg))),
	}
	if err := errors.Join(kept.secrets.Connect(ctx, source), kept.requests.Connect(ctx, watched), a.manager.Add(kept.secrets)); err != nil {
		return nil, err
	}
	return &controller.Deps{
		Manager:   a.manager,
		Engine:    engine.New(ctx, engine.Options{Client: api, Now: cfg.Now, Log: a.log, Spans: a.spans, Term: a.term()}),
		Client:    api,
		Pods:      pods,
		Secrets:   kept.secrets,
		Requests:  kept.requests,
		Scope:     cfg.scope(),
		Now:       cfg.Now,
		Clock:     cfg.Clock,
		HeadStart: cfg.HeadStart,
		Events:    a.recorder(scheme),
		Settings:  cfg.settings(),
	}, nil
}

// recorder returns what controller.Deps wants.
func (a *App) recorder(scheme *runtime.Scheme) func(component string) record.EventRecorder {
	return func(component string) record.EventRecorder {
		return a.events.NewRecorder(scheme, corev1.EventSource{Component: component})
	}
}

// synced is ready once the caches are: a replica that does not lead is ready too.
func synced(manager ctrl.Manager, watches *watches) func(*http.Request) error {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), time.Second)
		defer cancel()
		if !informers.WaitForAll(ctx, manager.GetCache()) {
			return errors.Join(errors.New("the caches have not synced yet"), watches.said())
		}
		return nil
	}
}
