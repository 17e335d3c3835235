package podrequests

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/metrics"
)

// measured is plan, and tells the metrics what the request waits for, and its verdict once that is written.
func (r *requests) measured(ctx context.Context, p *pass, o *observation, a podrequest.Action) (engine.Plan, error) {
	p.Memory.waits = metrics.PodWait{Since: p.Object.CreationTimestamp.Time}
	if o.issuer != nil {
		p.Memory.waits.Issuer = client.ObjectKeyFromObject(o.issuer)
	}
	plan, err := r.plan(ctx, p, o, a)
	if err != nil {
		p.Memory.first = time.Time{} // how long this replica could not act tells nothing of the other one
	}
	finished, has := plan.Status.(*podCertificateRequest)
	if !has && plan.Done {
		return plan, err
	}
	r.metrics.Waits(p.Object.UID, p.Memory.waits)
	if has {
		issuer, verdict := p.Memory.waits.Issuer, finished.Status.Conditions[len(finished.Status.Conditions)-1]
		if verdict.Type == certificatesv1.PodCertificateRequestConditionTypeIssued {
			verdict.Reason = ""
		}
		plan.Then = func(context.Context) error {
			r.metrics.Finished(issuer, verdict.Reason)
			return nil
		}
	}
	return plan, err
}

func (r *requests) gone(_ types.NamespacedName, uid types.UID) { r.metrics.Gone(uid) }

// followIssuers makes the metrics count for the issuers that sign for Pods, as long as they exist.
func (r *requests) followIssuers(ctx context.Context) error {
	r.metrics.AddIssuer(types.NamespacedName{})
	key := func(obj any) types.NamespacedName {
		issuer, _ := informers.LastOf[client.Object](obj) // the filter has looked
		return client.ObjectKeyFromObject(issuer)
	}
	handler := toolscache.FilteringResourceEventHandler{
		FilterFunc: func(obj any) bool {
			issuer, is := informers.LastOf[client.Object](obj)
			if !is || issuer.GetNamespace() == "" && !r.Scope.Holds(issuer.GetName()) {
				return false
			}
			_, signs := issuer.GetAnnotations()[certmanagerv1.PodCertificatesAnnotation]
			return signs
		},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { r.metrics.AddIssuer(key(obj)) },
			DeleteFunc: func(obj any) {
				issuer, _ := informers.LastOf[client.Object](obj)
				r.metrics.RemoveIssuer(key(obj))
				r.ForgetIssuer(issuer.GetUID()) // in a replica that does not lead, nobody else does
			},
		},
	}
	for _, kind := range r.Scope.IssuerKinds() {
		informer, err := r.Manager.GetCache().GetInformer(ctx, kind)
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	return nil
}
