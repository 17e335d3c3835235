package stories_test

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
)

// TestSolverTestSurvivesTheController: the controller ends while a test's record is there, and the next one ends the
// test and removes the record.
func TestSolverTestSurvivesTheController(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	w.dns.SetMode(0, dnsserver.NXDomain) // the self check does not see the record
	stop := w.Run(t, w.Config())
	issuer := w.issuer()
	issuer.Annotations = map[string]string{cmmeta.TestSolverAnnotation: "1 www.example.com"}
	w.Create(t, issuer)
	await := func(outcome acmev1.ACMESolverTestOutcome, records int) {
		t.Helper()
		rig.Eventually(t, fmt.Sprintf("the test is %s with %d records", outcome, records), func(ctx context.Context) string {
			now := &certmanagerv1.ClusterIssuer{}
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(issuer), now); err != nil {
				return err.Error()
			}
			if acme, left := now.Status.ACME, w.dns.TXT(); acme == nil || acme.SolverTest == nil || acme.SolverTest.Outcome != outcome || len(left) != records {
				return fmt.Sprintf("%+v, records %s", acme, left)
			}
			return ""
		})
	}
	await(acmev1.SolverTestRunning, 1)
	stop()
	await(acmev1.SolverTestRunning, 1)
	w.dns.SetMode(0, dnsserver.Normal)
	w.Run(t, w.Config())
	await(acmev1.SolverTestPassed, 0)
}
