package stories_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/rig"
)

// TestCALeavesUsageOut: Pebble issues for servers only, whatever was asked for, as public CAs do. The Certificate is
// ready, says what is missing, and is not issued again: not by a process that starts later either.
func TestCALeavesUsageOut(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	stop := w.Run(t, w.Config())
	both := certificate(w.World, "both", "acme", "both.example.com")
	both.Spec.Usages = []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageServerAuth, certmanagerv1.UsageClientAuth}
	w.Create(t, w.issuer(), both)
	awaitReady(t, w.World, "both")
	says := func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, "both", crt); err != nil {
			return err.Error()
		}
		c := crt.Status.Cause
		if c == nil || c.Class != string(cause.UsageLeftOut) || !strings.Contains(c.Message, `["client auth"]`) || !strings.Contains(fmt.Sprint(crt.Status.Conditions), c.Message) {
			return fmt.Sprintf("cause %+v, conditions %+v", c, crt.Status.Conditions)
		}
		return ""
	}
	rig.Eventually(t, "the Certificate says what was left out", says)
	stop()
	w.Run(t, w.Config())
	w.Create(t, certificate(w.World, "servers", "acme", "servers.example.com"))
	awaitReady(t, w.World, "servers")
	if problem := says(t.Context()); problem != "" {
		t.Error(problem)
	}
	if orders := w.orders(t); len(orders) != 2 {
		t.Errorf("%d Orders for two Certificates", len(orders))
	}
	crt := &certmanagerv1.Certificate{}
	if err := w.Get(t.Context(), "servers", crt); err != nil || crt.Status.Cause != nil {
		t.Errorf("%v, cause %+v", err, crt.Status.Cause)
	}
}

// TestACMETakesNoMLDSA: a request with an ML-DSA key to an issuer where another program signs fails at once, in words.
func TestACMETakesNoMLDSA(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	w.Run(t, w.Config())
	crt := certificate(w.World, "web", "acme", "web.example.com")
	crt.Spec.PrivateKey.Algorithm = certmanagerv1.MLDSA44KeyAlgorithm
	w.Create(t, w.issuer(), crt)
	rig.Eventually(t, "the Certificate says why", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil {
			return err.Error()
		}
		if c := crt.Status.Cause; c == nil || !strings.Contains(c.Message, "an issuer of the type acme takes no ML-DSA keys") {
			return fmt.Sprintf("cause %+v", c)
		}
		return ""
	})
	if orders := w.orders(t); len(orders) > 0 {
		t.Errorf("%d Orders were made", len(orders))
	}
}
