package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	registry "sigs.k8s.io/controller-runtime/pkg/metrics"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/metrics"
	"chancery.dev/internal/solver/http01"
)

const (
	// portRead is how long a client of a port may take to send a request.
	portRead = 10 * time.Second
	// portIdle is how long a connection stays open without a request: Prometheus asks every minute by default.
	portIdle = 90 * time.Second
	// portHeaderBytes bounds the header of a request.
	portHeaderBytes = 16 << 10
)

// ports are what a process serves to its cluster: /metrics, whether the process is alive and ready, and what else it is
// told to. Anything in the cluster may connect, so each port has a bound of connections.
type ports struct {
	// metricsAddress, healthAddress and profilerAddress are host:port; "0" and an empty one serve nothing.
	metricsAddress, healthAddress, profilerAddress string
	// tls is for /metrics; nil serves plain HTTP.
	tls *tls.Config
	// controller is what /metrics tells beside the metrics of the process; nil for nothing.
	controller *metrics.Controller
	// live and ready are the checks, by name. readyPath is where ready is served.
	live, ready map[string]healthz.Checker
	readyPath   string
}

// newPorts returns the ports of a process with the checks of all processes. A leader whose lease has run out waits
// until it can renew the lease, and ends the process if another one has taken it. So /livez has to check whether the
// process answers and whether its work is stuck, but not whether a server answers: a new process would not help.
func newPorts(m ctrl.Manager, watches *watches, stuck func() error) ports {
	return ports{
		live:      map[string]healthz.Checker{"progress": func(*http.Request) error { return stuck() }},
		ready:     map[string]healthz.Checker{"caches": synced(m, watches)},
		readyPath: "/readyz",
	}
}

// runner runs what is added to it: a manager.
type runner interface {
	Add(r manager.Runnable) error
}

// serve adds the servers of the ports to a manager.
func (p ports) serve(ctx context.Context, m runner, log logr.Logger) error {
	scrapes, probes := http.NewServeMux(), http.NewServeMux()
	scrapes.Handle("/metrics", metrics.Handler(registry.Registry, p.controller, log))
	for path, checks := range map[string]map[string]healthz.Checker{"/livez": p.live, p.readyPath: p.ready} {
		answers := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		probes.Handle(path, answers)
		probes.Handle(path+"/", answers) // one check of them
	}
	profiles := http.NewServeMux()
	profiles.HandleFunc("/debug/pprof/", pprof.Index)
	profiles.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	profiles.HandleFunc("/debug/pprof/profile", pprof.Profile)
	profiles.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	profiles.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return errors.Join(
		server{what: "metrics", address: p.metricsAddress, answers: scrapes, tls: p.tls}.addTo(ctx, m),
		server{what: "probes", address: p.healthAddress, answers: probes}.addTo(ctx, m),
		server{what: "profiles", address: p.profilerAddress, answers: profiles}.addTo(ctx, m),
	)
}

// server serves one port.
type server struct {
	// what is served, for people.
	what string
	// address is host:port; "0" and an empty one serve nothing.
	address string
	answers http.Handler
	// tls serves TLS; nil serves plain HTTP.
	tls *tls.Config
	// write is how long a request may take from its header to the end of its answer; 0 is no bound.
	write time.Duration
	// connections is how many may be open; 0 means limits.Connections.
	connections int
}

// addTo listens at the address, and adds the server to a manager.
func (s server) addTo(ctx context.Context, m runner) error {
	if s.address == "0" || s.address == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("cannot serve %s: %w", s.what, err)
	}
	if s.tls != nil {
		listener = tls.NewListener(listener, s.tls)
	}
	return m.Add(&manager.Server{
		Listener: listener, ShutdownTimeout: new(stopWithin),
		Server: &http.Server{
			Handler: s.answers, ReadTimeout: portRead, WriteTimeout: s.write, IdleTimeout: portIdle, MaxHeaderBytes: portHeaderBytes,
			ConnState: http01.NewConnections(cmp.Or(s.connections, limits.Connections)).Track,
		},
	})
}
