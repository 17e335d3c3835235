package certificates

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/revocation"
)

// unsettledFirst queues a Certificate that has changed, as builder.For does. What is there
// at the start waits behind everything else, for ten thousand Certificates that are in
// order tell nothing new; but not one that itself says that it is not.
type unsettledFirst struct {
	handler.EnqueueRequestForObject

	now func() time.Time
}

// Create implements handler.EventHandler.
func (h *unsettledFirst) Create(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if crt, ok := e.Object.(*certmanagerv1.Certificate); ok && !settled(crt, h.now()) {
		e.IsInInitialList = false
	}
	h.EnqueueRequestForObject.Create(ctx, e, queue)
}

// settled reports whether a Certificate looks as it does in order: its spec is the one that
// was ready when last looked at, nothing is under way and nothing is due.
func settled(crt *certmanagerv1.Certificate, now time.Time) bool {
	ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
	issuing := certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing, cmmeta.ConditionTrue)
	due := crt.Status.RenewalTime != nil && !now.Before(crt.Status.RenewalTime.Time)
	revoking := certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking, cmmeta.ConditionTrue)
	if _, asked := crt.Annotations[revocation.Annotation]; asked || revoking {
		return false
	}
	return ready != nil && ready.Status == cmmeta.ConditionTrue && ready.ObservedGeneration == crt.Generation && !issuing && !due
}
