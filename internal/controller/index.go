package controller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
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

// Waiting returns a function that lists the objects of a kind that wait for an issuer.
func (d *Deps) Waiting(list client.ObjectList) handler.MapFunc {
	return func(ctx context.Context, issuer client.Object) []reconcile.Request {
		return d.Indexed(ctx, list, IssuerIndex, IssuerKey(issuer.GetNamespace(), issuer.GetName()))
	}
}

// Indexed lists the objects of a kind that an index has under a value, in all namespaces unless the options name one.
func (d *Deps) Indexed(ctx context.Context, list client.ObjectList, index, value string, in ...client.ListOption) []reconcile.Request {
	var out []reconcile.Request
	for _, o := range d.Find(ctx, list, index, value, in...) {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return out
}

// Find returns the objects of a kind that an index has under a value. The caller MUST NOT change them.
func (d *Deps) Find(ctx context.Context, list client.ObjectList, index, value string, in ...client.ListOption) []client.Object {
	out, _ := d.find(ctx, list, index, value, in...) // before the caches have synced it fails, and then every object is looked at anyway
	return out
}

func (d *Deps) find(ctx context.Context, list client.ObjectList, index, value string, in ...client.ListOption) (out []client.Object, err error) {
	found := list.DeepCopyObject().(client.ObjectList) //nolint:forcetypeassert // a copy is of the same type
	in = append(in, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy)
	if err := d.Manager.GetCache().List(ctx, found, in...); err != nil {
		return nil, err
	}
	items, _ := meta.ExtractList(found) // a list always has items
	for _, item := range items {
		out = append(out, item.(client.Object)) //nolint:forcetypeassert // every API object is one
	}
	return out, nil
}

// WatchIssuers makes a controller watch issuers: when an issuer changes, the controller queues the objects of its kind
// that wait for the issuer.
func (d *Deps) WatchIssuers(b *builder.Builder, list client.ObjectList) *builder.Builder {
	on := handler.EnqueueRequestsFromMapFunc(d.Waiting(list))
	for _, kind := range d.Scope.IssuerKinds() {
		b = b.Watches(kind, on)
	}
	return b
}

// IssuerOf reads the issuer that a reference from within a namespace names; nil if there is none that is ours.
func (d *Deps) IssuerOf(ctx context.Context, namespace string, ref cmmeta.IssuerReference) (certmanagerv1.GenericIssuer, error) {
	if d.Scope.Reach(ref) != WithinReach {
		return nil, nil //nolint:nilnil // as it says
	}
	issuer := certmanagerv1.NewIssuer(ref, namespace)
	err := d.Client.Get(ctx, client.ObjectKeyFromObject(issuer), issuer)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as it says
	}
	return issuer, err
}

// OfSigner is what IssuerIndex has for the issuer of a signer name; nil if the name is none of ours.
func OfSigner(signerName string) []string {
	named, ours := request.ParseSignerName(signerName)
	if !ours {
		return nil
	}
	return []string{IssuerKey(named.Namespace, named.Name)}
}

// SecretIndex finds the issuers that name a Secret, by namespace/name.
const SecretIndex = "chancery.dev/issuer-secrets"

// OnIssuerSecret queues the objects that depend on an issuer whenever a Secret changes that the issuer names. A watch
// of issuers is not enough: the status of the issuer may stay as it is.
func (d *Deps) OnIssuerSecret(dependents handler.MapFunc) source.Source {
	return d.OnSecret(func(ctx context.Context, secret client.Object) (out []reconcile.Request) {
		issuers, _ := d.IssuersOf(ctx, client.ObjectKeyFromObject(secret)) // as Find
		for _, issuer := range issuers {
			out = append(out, dependents(ctx, issuer)...)
		}
		return out
	})
}

// IssuersOf returns the issuers that name a Secret. The caller MUST NOT change them.
func (d *Deps) IssuersOf(ctx context.Context, secret client.ObjectKey) (out []certmanagerv1.GenericIssuer, err error) {
	kinds := []client.ObjectList{&certmanagerv1.IssuerList{}}
	if !d.Scope.NamespacedOnly {
		kinds = append(kinds, &certmanagerv1.ClusterIssuerList{})
	}
	for _, issuers := range kinds {
		found, err := d.find(ctx, issuers, SecretIndex, secret.Namespace+"/"+secret.Name)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			out = append(out, o.(certmanagerv1.GenericIssuer)) //nolint:forcetypeassert // both kinds are
		}
	}
	return out, nil
}

// IndexIssuers adds the index SecretIndex, which the controllers of issuers, requests and Certificates use.
func (d *Deps) IndexIssuers(ctx context.Context) error {
	for _, kind := range d.Scope.IssuerKinds() {
		if err := d.Manager.GetFieldIndexer().IndexField(ctx, kind, SecretIndex, d.secretsOf); err != nil {
			return err
		}
	}
	return nil
}

// secretsOf lists the Secrets that an issuer names, as namespace/name.
func (d *Deps) secretsOf(obj client.Object) (out []string) {
	issuer, ok := obj.(certmanagerv1.GenericIssuer)
	if !ok {
		return nil
	}
	ns := signer.ResourceNamespace(issuer, d.Settings.ClusterResourceNamespace)
	for _, name := range signer.SecretNames(issuer.GetSpec()) {
		out = append(out, ns+"/"+name)
	}
	return out
}

// ProbeCall is the engine's name for the call that checks whether an issuer can be used.
const ProbeCall = "probe"

// KeyCall is the call of the engine that makes a private key: an RSA key takes up to minutes of CPU, and a few of them
// would keep all other objects waiting.
func KeyCall(spec pki.KeySpec) engine.Call {
	return engine.Call{
		Name: "make a private key", Inputs: fmt.Sprintf("%+v", spec),
		// One namespace has half of the processors, so that other namespaces get keys meanwhile.
		Lane: engine.Lane{Name: "private keys", Limit: max(runtime.GOMAXPROCS(0)/2, 1)},
		Run:  func(context.Context) (any, error) { return pki.GenerateKey(spec) },
	}
}

// IssuerInputs is a digest of what the calls for an issuer are made with: the issuer's spec, the annotations that
// Signers read, and the versions of the Secrets that the spec names.
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

// RetryKey is a text of the issuer's state that calls to its server depend on: since when the condition Ready has
// its status, and the ACME account. When the text changes, a call that has failed is repeated.
func RetryKey(issuer certmanagerv1.GenericIssuer) (out string) {
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

// OnOwned queues the owner of an object that has changed, if the owner is of the kind and controls the object. It works
// like builder.Owns, but does not look up the REST mapping of the owner's kind at every event. The objects that exist
// at the start make no event: every owner is looked at then anyway.
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

// IndexWithin adds an index of a kind to the cache. Only a list of one namespace may use the index. The cache's own
// FieldIndexer would index each object a second time, for lists of all namespaces, and an index whose values are all
// different takes much memory: a map for each value.
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
