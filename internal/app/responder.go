package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/metrics"
	"chancery.dev/internal/solver/http01"
	"chancery.dev/internal/solver/tlsalpn01"
)

// responder answers HTTP-01 and TLS-ALPN-01 challenges from the watch cache. Every replica does, leader or not.
type responder struct {
	manager   ctrl.Manager
	http, tls string // where to listen; empty for not at all
	index     *http01.Index

	listening chan struct{} // closed once it listens
}

func newResponder(m ctrl.Manager, httpAddress, tlsAddress string) *responder {
	return &responder{manager: m, http: httpAddress, tls: tlsAddress, index: http01.NewIndex(), listening: make(chan struct{})}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*responder) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable: it serves until ctx ends, or one of both ports fails.
func (r *responder) Start(ctx context.Context) error {
	if err := r.watch(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var servers []func() error
	for _, s := range []struct {
		kind, address string
		serve         func(context.Context, net.Listener) error
	}{{"HTTP-01", r.http, r.serveHTTP}, {"TLS-ALPN-01", r.tls, r.serveTLS}} {
		if s.address == "" {
			continue
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
		if err != nil {
			return fmt.Errorf("listen for %s challenges: %w: choose another port, or end what listens there", s.kind, err)
		}
		defer func() { _ = listener.Close() }() // the server has done so, if there was one
		servers = append(servers, func() error { return s.serve(ctx, listener) })
	}
	close(r.listening)
	done := make(chan error, len(servers))
	for _, serve := range servers {
		go func() { done <- serve() }()
	}
	var errs []error
	for range servers {
		errs = append(errs, <-done)
		cancel()
	}
	return errors.Join(errs...)
}

func (r *responder) serveHTTP(ctx context.Context, listener net.Listener) error {
	answered, err := counter("chancery_http01_responses_total", "Requests for HTTP-01 challenges that the responder has answered, by HTTP status.", "status")
	if err != nil {
		return err
	}
	return http01.Serve(ctx, listener, http01.NewResponder(http01.ResponderOptions{
		Index: r.index, Answered: func(status int) { answered.WithLabelValues(strconv.Itoa(status)).Inc() },
	}))
}

func (r *responder) serveTLS(ctx context.Context, listener net.Listener) error {
	answered, err := counter("chancery_tlsalpn01_handshakes_total", "Connections for TLS-ALPN-01 challenges to the responder, by result: answered, unknown or failed.", "result")
	if err != nil {
		return err
	}
	server, err := tlsalpn01.NewResponder(tlsalpn01.ResponderOptions{
		Index: r.index, Answered: func(result string) { answered.WithLabelValues(result).Inc() },
	})
	if err != nil {
		return err
	}
	return server.Serve(ctx, listener)
}

func (r *responder) watch(ctx context.Context) error {
	for obj, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&acmev1.Challenge{}: handle(r.index.UpsertChallenge, func(c *acmev1.Challenge) { r.index.DeleteChallenge(c.Namespace, c.Name) }),
		&acmev1.Order{}:     handle(r.index.UpsertOrder, func(o *acmev1.Order) { r.index.DeleteOrder(o.Namespace, o.Name) }),
	} {
		informer, err := r.manager.GetCache().GetInformer(ctx, obj)
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	return nil
}

// counter is a metric with labels.
func counter(name, help string, labels ...string) (*prometheus.CounterVec, error) {
	return metrics.Register(prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

// ResponderConfig is what a user can set of the responder that runs by itself.
type ResponderConfig struct {
	// Address is host:port to answer HTTP-01 challenges on.
	Address string
	// TLSALPN01Address is host:port to answer TLS-ALPN-01 challenges on; empty for none.
	TLSALPN01Address string
	// MetricsAddress and HealthAddress are as in Config.
	MetricsAddress, HealthAddress string
	// Namespaces to answer for; none means all.
	Namespaces []string
}

// DefaultResponderConfig returns the defaults.
func DefaultResponderConfig() ResponderConfig {
	return ResponderConfig{Address: ":8089", MetricsAddress: "0.0.0.0:9402", HealthAddress: "0.0.0.0:9403"}
}

// NewResponder wires a responder for HTTP-01 and TLS-ALPN-01 challenges that needs no other right than
// to read Challenges and Orders, and no leader: every replica answers. It has to be
// started with a context that ends no later than ctx.
func NewResponder(ctx context.Context, cfg ResponderConfig, rc *rest.Config, log logr.Logger) (manager.Manager, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	scheme, err := api.Scheme()
	if err != nil {
		return nil, err
	}
	rc = rest.CopyConfig(rc)
	rc.UserAgent = "chancery-responder"
	watches := newWatches(log)
	options := commonOptions(ctx, scheme, watches)
	options.Cache.DefaultNamespaces = controller.Scope{Namespaces: cfg.Namespaces}.CacheNamespaces()
	m, err := ctrl.NewManager(rc, options)
	if err != nil {
		return nil, fmt.Errorf("set up the responder: %w", err)
	}
	open := newPorts(m, watches, func() error { return nil })
	open.metricsAddress, open.healthAddress = cfg.MetricsAddress, cfg.HealthAddress
	return m, errors.Join(open.serve(ctx, m, log), m.Add(newResponder(m, cfg.Address, cfg.TLSALPN01Address)))
}

// handle feeds one kind of object to upsert and remove.
func handle[T any](upsert, remove func(T)) toolscache.ResourceEventHandler {
	do := func(f func(T), obj any) {
		if o, ok := informers.LastOf[T](obj); ok {
			f(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { do(upsert, obj) },
		UpdateFunc: func(_, obj any) { do(upsert, obj) },
		DeleteFunc: func(obj any) { do(remove, obj) },
	}
}
