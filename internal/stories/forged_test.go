package stories_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
)

// TestForgedChallengesGetNoCredentials: somebody copies the Challenge of an open authorization, and has it name a
// server of their own beside the Secret of a ClusterIssuer. The server is asked nothing, while the Challenge is there
// and when it goes, whoever it says that it belongs to, and also if somebody puts its finalizer back.
func TestForgedChallengesGetNoCredentials(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			if _, _, err := server.ReadFrom(make([]byte, 1)); err != nil {
				return // it is closed
			}
			asked.Add(1)
		}
	}()
	w := newWatched(t, nil)
	w.run(t)
	w.withIssuer(t, w.dnsSolver())
	w.dns.SetMode(0, dnsserver.NXDomain)
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	genuine := w.awaitChallenge(t, "is presented", func(c *acmev1.Challenge) bool { return c.Status.Presented })
	forge := func(name string, owners []metav1.OwnerReference) *acmev1.Challenge {
		c := &acmev1.Challenge{ObjectMeta: metav1.ObjectMeta{
			Name: name, OwnerReferences: owners, Finalizers: genuine.Finalizers, Annotations: genuine.Annotations,
		}, Spec: *genuine.Spec.DeepCopy()}
		c.Spec.Solver.DNS01.RFC2136.Nameserver = server.LocalAddr().String() // with the key of the issuer
		w.Create(t, c)
		return c
	}
	for name, c := range map[string]*acmev1.Challenge{
		"No Order controls": forge("orphan", nil), "does not give this solver": forge("adopted", genuine.OwnerReferences),
	} {
		rig.Eventually(t, c.Name+" ends", func(ctx context.Context) string {
			if err := w.Get(ctx, c.Name, c); client.IgnoreNotFound(err) != nil || err == nil && (c.Status.State != acmev1.Errored || len(c.Finalizers) > 0 || !strings.Contains(c.Status.Reason, name)) {
				return fmt.Sprint(err, c.Status)
			}
			return ""
		})
		again := c.DeepCopy()
		again.Finalizers = genuine.Finalizers
		if err := errors.Join(client.IgnoreNotFound(w.Client.Patch(t.Context(), again, client.MergeFrom(c))), client.IgnoreNotFound(w.Client.Delete(t.Context(), c))); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, c.Name+" goes", func(ctx context.Context) string {
			if err := w.Get(ctx, c.Name, c); err == nil {
				return "it is there"
			}
			return ""
		})
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the forger's server was asked %d times", n)
	}
	w.dns.SetMode(0, dnsserver.Normal)
	awaitReady(t, w.World, "web")
}

// TestSolverIsReplacedMidway: the solver of a Challenge in flight is taken out of the issuer. The Challenge ends, what
// it has presented is cleaned up with its own solver, and the same Order goes on with the new one.
func TestSolverIsReplacedMidway(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.run(t)
	w.withIssuer(t, w.dnsSolver())
	w.dns.SetMode(0, dnsserver.NXDomain)
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	old := w.awaitChallenge(t, "is presented", func(c *acmev1.Challenge) bool { return c.Status.Presented && len(w.dns.TXT()) > 0 })
	issuer := w.awaitIssuer(t, "acme", cmmeta.ConditionTrue, "")
	amended := issuer.DeepCopy()
	amended.Spec.ACME.Solvers = []acmev1.ACMEChallengeSolver{httpSolver()}
	if err := w.Client.Patch(t.Context(), amended, client.MergeFrom(issuer)); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the record is cleaned up", func(context.Context) string {
		if left := w.dns.TXT(); len(left) > 0 {
			return fmt.Sprint(left)
		}
		return ""
	})
	w.dns.SetMode(0, dnsserver.Normal)
	awaitReady(t, w.World, "web")
	if err := w.Get(t.Context(), old.Name, old); err == nil {
		t.Errorf("the old Challenge is still there: %+v", old.Status)
	}
	if orders := w.orders(t); len(orders) != 1 {
		t.Errorf("there are %d Orders", len(orders))
	}
}
