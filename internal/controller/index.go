package controller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/signer"
)

// IssuerIndex finds the unfinished requests that wait for an issuer.
const IssuerIndex = "chancery.dev/issuer"

// IssuerKey is the value of IssuerIndex: a ClusterIssuer has no namespace.
func IssuerKey(namespace, name string) string { return namespace + "/" + name }

// IssuerKeyOf is IssuerKey for a reference from within a namespace.
func IssuerKeyOf(ref cmmeta.IssuerReference, namespace string) string {
	return IssuerKey(ref.NamespaceFrom(namespace), ref.Name)
}

// Waiting returns what lists the objects of a kind that wait for an issuer.
func (d *Deps) Waiting(list client.ObjectList) handler.MapFunc {
	return func(ctx context.Context, issuer client.Object) []reconcile.Request {
		return d.Indexed(ctx, list, IssuerIndex, IssuerKey(issuer.GetNamespace(), issuer.GetName()))
	}
}

// Indexed lists the objects of a kind that an index has by a value, in any namespace or in those of the options.
func (d *Deps) Indexed(ctx context.Context, list client.ObjectList, index, value string, in ...client.ListOption) []reconcile.Request {
	var out []reconcile.Request
	for _, o := range d.Find(ctx, list, index, value, in...) {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return out
}

// Find returns the objects of a kind that an index has by a value. They MUST NOT be changed.
func (d *Deps) Find(ctx context.Context, list client.ObjectList, index, value string, in ...client.ListOption) (out []client.Object) {
	found := list.DeepCopyObject().(client.ObjectList) //nolint:forcetypeassert // a copy is of the same type
	in = append(in, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy)
	if err := d.Manager.GetCache().List(ctx, found, in...); err != nil {
		return nil // only before the caches have synced, and then every object is looked at anyway
	}
	items, _ := meta.ExtractList(found) // a list always has items
	for _, item := range items {
		out = append(out, item.(client.Object)) //nolint:forcetypeassert // every API object is one
	}
	return out
}

// WatchIssuers has a controller queue the objects of its kind that wait for an issuer
// that has changed.
func (d *Deps) WatchIssuers(b *builder.Builder, list client.ObjectList) *builder.Builder {
	on := handler.EnqueueRequestsFromMapFunc(d.Waiting(list))
	for _, kind := range d.Scope.IssuerKinds() {
		b = b.Watches(kind, on)
	}
	return b
}

// SecretIndex finds the issuers that name a Secret, by namespace/name.
const SecretIndex = "chancery.dev/issuer-secrets"

// OnIssuerSecret queues the objects that depend on an issuer whenever a Secret that the issuer names has changed: the
// status of the issuer may stay as it is.
func (d *Deps) OnIssuerSecret(dependents handler.MapFunc) source.Source {
	return d.OnSecret(func(ctx context.Context, secret client.Object) (out []reconcile.Request) {
		kinds := []client.ObjectList{&certmanagerv1.IssuerList{}}
		if !d.Scope.NamespacedOnly {
			kinds = append(kinds, &certmanagerv1.ClusterIssuerList{})
		}
		for _, issuers := range kinds {
			for _, issuer := range d.Find(ctx, issuers, SecretIndex, secret.GetNamespace()+"/"+secret.GetName()) {
				out = append(out, dependents(ctx, issuer)...)
			}
		}
		return out
	})
}

// ProbeCall names the call of the engine that looks whether an issuer can be used.
const ProbeCall = "probe"

// IssuerInputs is a digest of what the calls for an issuer are made with: its spec, its annotations that Signers read,
// and the versions of the Secrets that the spec names.
func (d *Deps) IssuerInputs(ctx context.Context, issuer certmanagerv1.GenericIssuer) (string, error) {
	inputs := sha256.New() // never fails
	_, _ = fmt.Fprintf(inputs, "%s/%d %q", issuer.GetUID(), issuer.GetGeneration(), signer.Annotations(issuer))
	namespace := signer.ResourceNamespace(issuer, d.Settings.ClusterResourceNamespace)
	for _, name := range signer.SecretNames(issuer.GetSpec()) {
		version, err := d.Secrets.Version(ctx, namespace, name)
		if err != nil {
			return "", fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
		}
		_, _ = fmt.Fprintf(inputs, " %q %s", name, version)
	}
	return fmt.Sprintf("%x", inputs.Sum(nil)), nil
}

// StandingOf says how an issuer stands, as far as calls to its other side depend on that: since when the issuer is
// ready, and its ACME account. A call that has failed is repeated once that changes.
func StandingOf(issuer certmanagerv1.GenericIssuer) (out string) {
	status := issuer.GetStatus()
	ready := certmanagerv1.FindIssuerCondition(status.Conditions, certmanagerv1.IssuerConditionReady)
	if ready != nil && ready.LastTransitionTime != nil {
		out = fmt.Sprint(ready.LastTransitionTime.Unix()) // in seconds, as the API server stores the time
	}
	if status.ACME != nil {
		out += " " + status.ACME.URI + " " + status.ACME.LastPrivateKeyHash
	}
	return out
}

// OnOwned queues the object of a kind that controls what has changed. It does what
// builder.Owns does, without asking for the mapping of every owner's kind at every event.
// What is there at the start makes no event: every owner is then looked at anyway.
func OnOwned(group, kind string) handler.EventHandler {
	return afterStart{handler.EnqueueRequestsFromMapFunc(func(_ context.Context, owned client.Object) []reconcile.Request {
		owner := metav1.GetControllerOfNoCopy(owned)
		if owner == nil || owner.Kind != kind || !strings.HasPrefix(owner.APIVersion, group+"/") {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: owned.GetNamespace(), Name: owner.Name}}}
	})}
}

// afterStart leaves out the objects that are there at the start.
type afterStart struct{ handler.EventHandler }

// Create implements handler.EventHandler.
func (h afterStart) Create(ctx context.Context, e event.CreateEvent, queue Queue) {
	if !e.IsInInitialList {
		h.EventHandler.Create(ctx, e, queue)
	}
}

// IndexWithin adds an index of a kind to the cache that only lists of one namespace
// may use. Its FieldIndexer would index each object a second time for lists of all
// namespaces, and an index of names that are all different is memory: a map for each.
func (d *Deps) IndexWithin(ctx context.Context, kind client.Object, name string, of client.IndexerFunc) error {
	informer, err := d.Manager.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	// The cache's reader looks for MatchingFields{name: value} in this index, by this key.
	return informer.AddIndexers(toolscache.Indexers{"field:" + name: func(obj any) ([]string, error) {
		object, ok := obj.(client.Object)
		if !ok {
			return nil, nil
		}
		values := of(object)
		for i := range values {
			values[i] = object.GetNamespace() + "/" + values[i]
		}
		return values, nil
	}})
}
