package certificates

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/machine/revocation"
)

// TestInOrderLast: a start looks first at the Certificates that say themselves that they
// are not in order.
func TestInOrderLast(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	for name, tc := range map[string]struct {
		change func(*certmanagerv1.Certificate)
		waits  bool
	}{
		"in order":      {func(*certmanagerv1.Certificate) {}, true},
		"never renewed": {func(c *certmanagerv1.Certificate) { c.Status.RenewalTime = nil }, true},
		"new":           {func(c *certmanagerv1.Certificate) { c.Status = certmanagerv1.CertificateStatus{} }, false},
		"changed":       {func(c *certmanagerv1.Certificate) { c.Generation++ }, false},
		"not ready":     {func(c *certmanagerv1.Certificate) { c.Status.Conditions[0].Status = cmmeta.ConditionFalse }, false},
		"due":           {func(c *certmanagerv1.Certificate) { c.Status.RenewalTime = at(0) }, false},
		"to be revoked": {func(c *certmanagerv1.Certificate) {
			c.Annotations = map[string]string{revocation.Annotation: "superseded"}
		}, false},
		"being revoked": {func(c *certmanagerv1.Certificate) {
			certmanagerv1.SetCertificateCondition(c, certmanagerv1.CertificateCondition{Type: certmanagerv1.CertificateConditionRevoking, Status: cmmeta.ConditionTrue}, now)
		}, false},
		"being issued": {func(c *certmanagerv1.Certificate) { c.Status.Conditions[1].Status = cmmeta.ConditionTrue }, false},
	} {
		t.Run(name, func(t *testing.T) {
			crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "crt", Generation: 3}}
			crt.Status.RenewalTime = at(time.Hour)
			crt.Status.Conditions = []certmanagerv1.CertificateCondition{
				{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue, ObservedGeneration: 3},
				{Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionFalse, ObservedGeneration: 3},
			}
			tc.change(crt)
			synctest.Test(t, func(t *testing.T) {
				queue := controller.NewQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
				defer queue.ShutDown()
				h := &inOrderLast{claims: secrets.NewClaims(), now: func() time.Time { return now }}
				began := time.Now()
				h.Create(t.Context(), event.CreateEvent{Object: crt, IsInInitialList: true}, queue)
				item, _ := queue.Get()
				if waited := time.Since(began) > 0; item.Name != "crt" || waited != tc.waits {
					t.Errorf("%s is queued after %s", item, time.Since(began))
				}
			})
		})
	}
}
