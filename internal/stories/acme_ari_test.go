package stories_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"chancery.dev/internal/rig"
)

// TestRenewalInformationIsAskedFor: not right after the issuance, whose writes are
// counted, but hours later the ACME server is asked when to renew, and what it says
// decides.
func TestRenewalInformationIsAskedFor(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	cfg := w.Config()
	stop := w.Run(t, cfg)
	w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "ari.example.com"))
	crt := awaitReady(t, w.World, "web")
	if crt.Status.ACME != nil {
		t.Errorf("asked at once: %+v", crt.Status.ACME)
	}
	stop()
	ahead := func() time.Time { return time.Now().Add(8 * time.Hour) }
	cfg.Now = ahead
	w.Run(t, cfg)
	rig.Eventually(t, "the ACME server was asked when to renew", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil {
			return err.Error()
		}
		if crt.Status.ACME == nil || crt.Status.ACME.ARI == nil || crt.Status.ACME.ARI.SuggestedWindow == nil {
			return fmt.Sprintf("%+v", crt.Status.ACME)
		}
		return ""
	})
	ari := crt.Status.ACME.ARI
	if at := crt.Status.RenewalTime; at == nil || at.Before(&ari.SuggestedWindow.Start) || !at.Before(&ari.SuggestedWindow.End) {
		t.Errorf("renewal at %v, suggested from %s to %s", at, ari.SuggestedWindow.Start, ari.SuggestedWindow.End)
	}
	if wait := ari.NextCheck.Sub(ahead()); wait < 50*time.Minute || wait > 8*24*time.Hour {
		t.Errorf("asked again in %s", wait)
	}
}
