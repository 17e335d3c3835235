package certificates

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/machine/revocation"
)

// startInterval is the time between two Certificates that are in order at the start: passes over them leave most of a
// core free.
const startInterval = 500 * time.Microsecond

// inOrderLast queues a Certificate that has changed, as builder.For does. Of the Certificates that are there at the
// start, those that say themselves that they are in order are queued one after the other: ten thousand of them tell
// nothing new, and whatever happens meanwhile does not wait behind them.
type inOrderLast struct {
	handler.EnqueueRequestForObject

	now func() time.Time
	// claims is told of all, before any of them is looked at.
	claims *secrets.Claims
	// inOrder counts them. One goroutine tells of all that are there at the start.
	inOrder int
}

// Create implements handler.EventHandler.
func (h *inOrderLast) Create(ctx context.Context, e event.CreateEvent, queue controller.Queue) {
	crt, ok := e.Object.(*certmanagerv1.Certificate)
	if ok {
		h.claims.Note(crt)
	}
	if ok && e.IsInInitialList && inOrder(crt, h.now()) {
		h.inOrder++
		queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(crt)}, time.Duration(h.inOrder)*startInterval)
		return
	}
	h.EnqueueRequestForObject.Create(ctx, e, queue)
}

// Update implements handler.EventHandler.
func (h *inOrderLast) Update(ctx context.Context, e event.UpdateEvent, queue controller.Queue) {
	if crt, ok := e.ObjectNew.(*certmanagerv1.Certificate); ok {
		h.claims.Note(crt)
	}
	h.EnqueueRequestForObject.Update(ctx, e, queue)
}

// Delete implements handler.EventHandler.
func (h *inOrderLast) Delete(ctx context.Context, e event.DeleteEvent, queue controller.Queue) {
	h.claims.Forget(client.ObjectKeyFromObject(e.Object))
	h.EnqueueRequestForObject.Delete(ctx, e, queue)
}

// inOrder reports whether a Certificate is in order by its own status: its spec is the one that
// was ready when last looked at, nothing is under way and nothing is due.
func inOrder(crt *certmanagerv1.Certificate, now time.Time) bool {
	ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
	issuing := certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing, cmmeta.ConditionTrue)
	due := crt.Status.RenewalTime != nil && !now.Before(crt.Status.RenewalTime.Time)
	revoking := certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking, cmmeta.ConditionTrue)
	if _, asked := crt.Annotations[revocation.Annotation]; asked || revoking {
		return false
	}
	return ready != nil && ready.Status == cmmeta.ConditionTrue && ready.ObservedGeneration == crt.Generation && !issuing && !due
}
