package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"

	"chancery.dev/internal/app"
	"chancery.dev/internal/rig"
)

// TestLivezOutlivesTheAPIServer: while the API server cannot be reached, the controller stays alive: a new process
// would know less.
func TestLivezOutlivesTheAPIServer(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	cfg, address := w.Config(), rig.FreeAddress(t).String()
	cfg.HealthAddress = address
	var away atomic.Bool
	var refused atomic.Int32
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if away.Load() {
				refused.Add(1)
				return nil, errors.New("no route to host")
			}
			return next.RoundTrip(r)
		})
	})
	w.RunAs(t, cfg, rc)
	live := func(ctx context.Context) string {
		status, body := get(ctx, address, "controller", "/livez")
		if status != http.StatusOK {
			return fmt.Sprint(status, body)
		}
		return ""
	}
	smallCA(t, w)
	certificateReady(t, w, "web")
	rig.Eventually(t, "it is alive", live)
	away.Store(true)
	w.Create(t, selfSigner(w))
	rig.Eventually(t, "the outage is noticed", func(context.Context) string {
		if refused.Load() == 0 {
			return "nothing was asked"
		}
		return ""
	})
	if said := live(t.Context()); said != "" {
		t.Error(said)
	}
	away.Store(false)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestStoppedAtOnce: a controller that is stopped before it has read anything ends without an error.
func TestStoppedAtOnce(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	a, err := app.New(ctx, w.Config(), w.Admin, logr.Discard())
	cancel()
	if err = errors.Join(err, a.Run(ctx)); err != nil {
		t.Error(err)
	}
}
