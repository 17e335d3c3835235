package exec_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/rig/golden"
	"chancery.dev/internal/solver/dns01/provider/exec"
	"chancery.dev/internal/solver/dns01/provider/limit"
	"chancery.dev/internal/solver/dns01/wire"
)

// refusing is a program that refuses each record.
type refusing struct{ with wire.Failure }

func (*refusing) Capabilities() wire.Capabilities { return wire.Capabilities{} }

func (*refusing) Configure(context.Context, wire.Configuration) (wire.Capabilities, error) {
	return wire.Capabilities{}, nil
}

func (r *refusing) Present(context.Context, wire.Record) error { return &r.with }

func (r *refusing) CleanUp(context.Context, wire.Record) error { return &r.with }

// listen makes a program answer at a socket until the test ends.
func listen(t *testing.T, p wire.Handler) (path string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = wire.Serve(context.Background(), conn, conn, p) }()
		}
	}()
	return "unix:" + socket
}

// TestWaits is the table of the waits of a Challenge whose record a program does not write.
func TestWaits(t *testing.T) {
	t.Parallel()
	var waits golden.Waits
	add := func(what string, program func(asked time.Duration) string) {
		waits.Add("DNS programs", what, func(asked time.Duration, chance float64) func(int) string {
			path := program(asked)
			w := newWorld(t, "well", func(o *exec.Options) { o.Programs = map[string]string{"corp": path} })
			p, count, class := w.provider(t, config("corp")), 0, fault.Class("")
			f := fault.Of(p.Present(t.Context(), record("value")))
			return func(int) string {
				total := time.Duration(0)
				for paused := true; paused; paused = f.Reason == limit.ReasonPaused {
					if f.Class != class {
						count, class = 0, f.Class
					}
					count++
					wait := acmeflow.Backoff(f, count, chance)
					w.step(wait)
					total += wait
					f = fault.Of(p.Present(t.Context(), record("value")))
				}
				return golden.Text(total)
			}
		})
	}
	for _, c := range []struct {
		name  string
		class wire.Class
	}{
		{"Solver (no class)", ""}, {"Solver (config)", wire.ClassConfig}, {"RateLimited (throttled)", wire.ClassThrottled}, {"Credential (credential)", wire.ClassCredential},
	} {
		add(c.name, func(asked time.Duration) string {
			return listen(t, &refusing{wire.Failure{Class: c.class, RetryAfter: int(asked.Seconds()), Err: errors.New("no")}})
		})
	}
	add("Unavailable (it does not run)", func(time.Duration) string { return "unix:" + filepath.Join(t.TempDir(), "none") })
	waits.Check(t, `A program asks by retryAfter. A wait is that of a Challenge, until the program is called again: it has pauses of the
credential in it, see breaker.`)
}
