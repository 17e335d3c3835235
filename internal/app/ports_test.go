package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/port"
)

// runners runs what is added to it, as a manager does.
type runners struct{ all []manager.Runnable }

// Add implements runner.
func (r *runners) Add(m manager.Runnable) error {
	r.all = append(r.all, m)
	return nil
}

// run runs all until the test ends.
func (r *runners) run(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for _, m := range r.all {
		wg.Go(func() {
			if err := m.Start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
}

// TestPortsAreBounded: whoever opens more connections to a port than may be open, and asks nothing, loses the first.
// A probe, or who wants a profile, is answered beside them.
func TestPortsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		open  func(address string) ports
		paths []string
	}{
		"probes":   {func(at string) ports { return ports{healthAddress: at} }, []string{"/livez", "/readyz", "/readyz/ping"}},
		"metrics":  {func(at string) ports { return ports{metricsAddress: at} }, []string{"/metrics"}},
		"profiles": {func(at string) ports { return ports{profilerAddress: at} }, []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"}},
	} {
		t.Run(name, func(t *testing.T) { portIsBounded(t, c.open, c.paths) })
	}
}

func portIsBounded(t *testing.T, open func(address string) ports, paths []string) {
	t.Helper()
	address, err := port.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := &runners{}
	p := open(address.String())
	p.readyPath = "/readyz"
	if err := p.serve(t.Context(), m, logr.Discard()); err != nil {
		t.Fatal(err)
	}
	m.run(t)
	var first net.Conn
	for range limits.Connections + 1 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if first == nil {
			first = conn
		}
	}
	for _, path := range paths {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.String()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if err := first.SetReadDeadline(time.Now().Add(portRead / 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection is open: %v", err)
	}
}
