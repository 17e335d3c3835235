package shims

import (
	"context"
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/listeners"
	"chancery.dev/internal/machine/shim"
)

// parentIndex finds the ListenerSets of a Gateway.
const parentIndex = "chancery.dev/shim-parent"

func (o *Options) kinds() []kind {
	var out []kind
	if o.Ingresses {
		out = append(out, kind{
			name: shim.KindIngress, component: "cert-manager-ingress-shim", object: &networkingv1.Ingress{}, list: &networkingv1.IngressList{}, reduce: reduce,
		})
	}
	if o.Gateways {
		out = append(out, kind{
			name: shim.KindGateway, component: "cert-manager-gateway-shim", object: &gwapiv1.Gateway{}, list: &gwapiv1.GatewayList{}, reduce: reduce,
		})
	}
	if o.Gateways && o.ListenerSets {
		out = append(out, kind{
			name: shim.KindListenerSet, component: "cert-manager-listenerset-shim", object: &gwapiv1.ListenerSet{}, list: &gwapiv1.ListenerSetList{},
			needs: []client.Object{&gwapiv1.Gateway{}}, reduce: reduceListenerSet,
		})
	}
	return out
}

// startOnceServed starts the controller of the kind: now, or when the cluster serves the kind, and those that it needs.
func (r *shims) startOnceServed(ctx context.Context) error {
	var kinds []schema.GroupVersionKind
	for _, object := range append(slices.Clone(r.kind.needs), r.kind.object) {
		gvk, err := apiutil.GVKForObject(object, r.Manager.GetScheme())
		if err != nil {
			return err
		}
		kinds = append(kinds, gvk)
	}
	return r.WhenServed(ctx, r.start, kinds...)
}

// partsOf reduces an object, without looking at others.
func partsOf(o client.Object, s shim.Settings) shim.Object {
	switch o := o.(type) {
	case *networkingv1.Ingress:
		return shim.FromIngress(o)
	case *gwapiv1.Gateway:
		return shim.FromGateway(o, s)
	case *gwapiv1.ListenerSet:
		return shim.FromListenerSet(o, &gwapiv1.Gateway{}, s)
	default:
		return shim.Object{Idle: true}
	}
}

func reduce(_ context.Context, r *shims, o client.Object) (shim.Object, error) {
	return partsOf(o, r.o.Settings), nil
}

// reduceListenerSet reduces a ListenerSet and its Gateway. A Gateway of a namespace that is not watched is none.
func reduceListenerSet(ctx context.Context, r *shims, o client.Object) (shim.Object, error) {
	set, ok := o.(*gwapiv1.ListenerSet)
	if !ok {
		return shim.Object{Idle: true}, nil
	}
	var parent *gwapiv1.Gateway
	if key := parentKey(set); r.Scope.Covers(key.Namespace) {
		parent = &gwapiv1.Gateway{}
		if err := r.Client.Get(ctx, key, parent); apierrors.IsNotFound(err) {
			parent = nil
		} else if err != nil {
			return shim.Object{}, err
		}
	}
	return shim.FromListenerSet(set, parent, r.o.Settings), nil
}

// parentKey names the Gateway of a ListenerSet; it is empty if the parent is of another kind.
func parentKey(set *gwapiv1.ListenerSet) client.ObjectKey {
	of := set.Spec.ParentRef
	ref := gwapiv1.ParentReference{Group: of.Group, Kind: of.Kind, Namespace: of.Namespace, Name: of.Name}
	if kind, key := listeners.Target(ref, set.Namespace); kind == shim.KindGateway && !listeners.Named(ref) {
		return key
	}
	return client.ObjectKey{}
}

// parentOf is parentKey for an index.
func parentOf(o client.Object) []string {
	if set, ok := o.(*gwapiv1.ListenerSet); ok {
		return []string{parentKey(set).String()}
	}
	return nil
}

// children lists the ListenerSets of a Gateway.
func (r *shims) children(ctx context.Context, gateway client.Object) []reconcile.Request {
	return r.Indexed(ctx, r.kind.list, parentIndex, client.ObjectKeyFromObject(gateway).String())
}

// Thin is the cache.TransformFunc of the three kinds, and of all kinds without one of their own. For an object of the
// three kinds it keeps only what decisions need: next to nothing if the object asks for no certificate.
func Thin(s shim.Settings) toolscache.TransformFunc {
	others := cache.TransformStripManagedFields()
	return func(obj any) (any, error) {
		switch o := obj.(type) {
		case *networkingv1.Ingress:
			asks := shim.Triggered(o.Annotations, s.AutoAnnotations)
			thin(&o.ObjectMeta, asks, s)
			o.Spec = networkingv1.IngressSpec{TLS: thinTLS(o, asks)}
			o.Status = networkingv1.IngressStatus{}
		case *gwapiv1.Gateway:
			thin(&o.ObjectMeta, shim.Triggered(o.Annotations, nil), s)
			o.Spec = gwapiv1.GatewaySpec{Listeners: o.Spec.Listeners}
			o.Status = gwapiv1.GatewayStatus{}
		case *gwapiv1.ListenerSet:
			thin(&o.ObjectMeta, true, s) // its Gateway may have the annotations
			o.Status = gwapiv1.ListenerSetStatus{}
		default:
			return others(obj)
		}
		return obj, nil
	}
}

func thin(m *metav1.ObjectMeta, asks bool, s shim.Settings) {
	m.ManagedFields, m.OwnerReferences = nil, nil
	if !asks {
		m.Labels = nil
	}
	maps.DeleteFunc(m.Annotations, func(key, _ string) bool { return key != cmmeta.PausedAnnotation && (!asks || !s.Reads(key)) })
}

// thinTLS returns what is kept of spec.tls: of an Ingress above a bound, no more than that it is, and of one that asks
// for no certificate, the Secrets.
func thinTLS(in *networkingv1.Ingress, asks bool) []networkingv1.IngressTLS {
	entries := in.Spec.TLS
	switch {
	case len(entries) > limits.ShimEntries:
		return make([]networkingv1.IngressTLS, limits.ShimEntries+1)
	case shim.FromIngress(in).TooLarge != "":
		return []networkingv1.IngressTLS{{Hosts: make([]string, limits.ShimHosts+1)}}
	case !asks:
		for i := range entries {
			entries[i].Hosts = nil
		}
	}
	return entries
}
