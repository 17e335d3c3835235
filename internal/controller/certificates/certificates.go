// Package certificates reconciles Certificates: it walks each through
// lifecycle.Decide. It signs nothing: that is for the CertificateRequests it makes.
package certificates

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/lifecycle"
	"chancery.dev/internal/overlay"
)

// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=get;list;watch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates/status,verbs=patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates/finalizers,verbs=update
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificaterequests,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;patch;delete

// secretNameIndex finds the Certificates that keep a certificate in a Secret.
const secretNameIndex = "chancery.dev/secret-name"

// stepsPerPass bounds how many steps one pass takes: a whole issuance by an
// issuer that answers at once is fewer.
const stepsPerPass = 8

// certificates walks each Certificate through lifecycle.Decide.
type certificates struct {
	*controller.Deps

	events   record.EventRecorder
	requests *requestMemo
}

// Setup adds the reconciler of Certificates. secretMetadata watches
// the metadata of all Secrets.
func Setup(ctx context.Context, d *controller.Deps, secretMetadata cache.Cache) error {
	r := &certificates{Deps: d, events: d.Events("cert-manager-certificates-issuing"), requests: newRequestMemo()}
	indexer := d.Manager.GetFieldIndexer()
	for _, kind := range []client.Object{&certmanagerv1.CertificateRequest{}, &corev1.Secret{}} {
		if err := indexer.IndexField(ctx, kind, overlay.OwnerIndex, overlay.OwnerOf); err != nil {
			return err
		}
	}
	if err := indexer.IndexField(ctx, &certmanagerv1.Certificate{}, secretNameIndex, secretNameOf); err != nil {
		return err
	}
	if err := r.Observed(ctx, &certmanagerv1.Certificate{}, &corev1.Secret{}); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(d.Manager).Named("certificates").
		For(&certmanagerv1.Certificate{}).
		Owns(&certmanagerv1.CertificateRequest{}).
		Owns(&corev1.Secret{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.keeping)).
		WatchesRawSource(controller.SecretSource(secretMetadata, r.keeping, unlabelled())).
		WithOptions(r.Options(time.Second, 30*time.Second)).
		Complete(r)
}

// unlabelled keeps out the Secrets that are watched in full.
func unlabelled() predicate.TypedPredicate[*metav1.PartialObjectMetadata] {
	return predicate.NewTypedPredicateFuncs(func(o *metav1.PartialObjectMetadata) bool {
		return o.Labels[certmanagerv1.ManagedSecretLabel] != certmanagerv1.LabelTrue
	})
}

func secretNameOf(obj client.Object) []string {
	if crt, ok := obj.(*certmanagerv1.Certificate); ok {
		return []string{crt.Spec.SecretName}
	}
	return nil
}

// keeping lists the Certificates that keep their certificate in a Secret.
func (r *certificates) keeping(ctx context.Context, secret client.Object) []reconcile.Request {
	claims, err := r.claims(ctx, secret.GetNamespace(), secret.GetName())
	if err != nil {
		return nil // only before the caches have synced, and then every Certificate is looked at anyway
	}
	out := make([]reconcile.Request, 0, len(claims))
	for _, crt := range claims {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(crt)})
	}
	return out
}

func (r *certificates) claims(ctx context.Context, namespace, secret string) ([]*certmanagerv1.Certificate, error) {
	list := &certmanagerv1.CertificateList{}
	err := r.Manager.GetCache().List(ctx, list, client.InNamespace(namespace),
		client.MatchingFields{secretNameIndex: secret}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	out := make([]*certmanagerv1.Certificate, 0, len(list.Items))
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			out = append(out, &list.Items[i])
		}
	}
	return out, nil
}

// Reconcile takes one Certificate as far as it gets without an event.
func (r *certificates) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	for range stepsPerPass {
		crt := &certmanagerv1.Certificate{}
		if err := r.Client.Get(ctx, req.NamespacedName, crt); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		state, err := r.observe(ctx, crt)
		if err != nil {
			return controller.Settle(err)
		}
		action := lifecycle.Decide(state, r.Now())
		if err := r.act(ctx, crt, state, action); err != nil {
			return controller.Settle(err)
		}
		if action.Step == lifecycle.StepRest && action.Status == nil {
			return r.Wake(action.Wake), nil
		}
	}
	return reconcile.Result{RequeueAfter: time.Second}, nil
}

// observe gathers what Decide wants to know, from the cache alone.
func (r *certificates) observe(ctx context.Context, crt *certmanagerv1.Certificate) (lifecycle.State, error) {
	state := lifecycle.State{Certificate: crt, Backoff: r.Settings.Backoff}
	var err error
	if state.Secret, err = r.Secrets.Facts(ctx, crt.Namespace, crt.Spec.SecretName); err != nil {
		return state, err
	}
	claims, err := r.claims(ctx, crt.Namespace, crt.Spec.SecretName)
	if err != nil {
		return state, err
	}
	if !slices.ContainsFunc(claims, func(c *certmanagerv1.Certificate) bool { return c.UID == crt.UID }) {
		claims = append(claims, crt)
	}
	state.SecretOwner = lifecycle.SecretOwner(claims, state.Secret)
	keys := &corev1.SecretList{}
	if err := r.Client.ListOwned(ctx, keys, crt.Namespace, crt.UID); err != nil {
		return state, err
	}
	for i := range keys.Items {
		if keys.Items[i].Labels[certmanagerv1.NextPrivateKeyLabel] == certmanagerv1.LabelTrue {
			state.Keys = append(state.Keys, lifecycle.KeyFactsOf(&keys.Items[i]))
		}
	}
	requests := &certmanagerv1.CertificateRequestList{}
	if err := r.Client.ListOwned(ctx, requests, crt.Namespace, crt.UID); err != nil {
		return state, err
	}
	for i := range requests.Items {
		state.Requests = append(state.Requests, r.requests.factsOf(crt.UID, &requests.Items[i]))
	}
	r.requests.keep(crt.UID, state.Requests)
	return state, nil
}
