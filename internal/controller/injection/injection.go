// Package injection is the CA injector. With internal/engine, it reconciles injectables: webhook configurations,
// APIServices and CustomResourceDefinitions whose annotations name a source of CA certificates.
// internal/machine/injection decides which CA bundles an injectable must have, and this package writes the CA bundles.
//
// The package watches only the metadata of an injectable. When the injectable or its source has changed, the package
// reads the whole injectable. If a CA bundle has to change, the package writes all changes in one patch.
package injection

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/machine/injection"
)

// The injector has a role of its own: with these rights anybody could take over the cluster.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,verbs=get;list;watch;patch,roleName=chancery-cainjector
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,verbs=get;list;watch;patch,roleName=chancery-cainjector
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch;patch,roleName=chancery-cainjector
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=get;list;watch,roleName=chancery-cainjector
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch,roleName=chancery-cainjector
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch,roleName=chancery-cainjector

// certificateIndex finds the injectables of a kind by the Certificate that they name.
const certificateIndex = "chancery.dev/ca-certificate"

// Kinds are the injectables.
func Kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: injection.KindValidatingWebhook},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: injection.KindMutatingWebhook},
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: injection.KindAPIService},
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: injection.KindDefinition},
	}
}

// Options configure the injector.
type Options struct {
	// Skips says whether a kind of injectable is left alone.
	Skips func(kind string) bool
	// Certificates says whether Certificates may be sources.
	Certificates bool
	// Ignores says whether sources in a namespace are left out.
	Ignores func(namespace string) bool
	// APIServerCA returns the CA of the API server in PEM; empty if none is known.
	APIServerCA func() ([]byte, error)
	// Written is called after a bundle was written into an object of a kind.
	Written func(kind string)
}

// injectables are those of one kind.
type injectables struct {
	*controller.Deps

	o   Options
	gvk schema.GroupVersionKind
	// following knows which Secret each got its CA from when it was last looked at.
	following *informers.Following
	runner    *engine.Runner[*metav1.PartialObjectMetadata, memory, injection.State, injection.Action]
}

// memory is what is remembered of an injectable.
type memory struct {
	// settled is the fingerprint of what it was found in order with.
	settled [sha256.Size]byte
	since   time.Time
	said    string
	// live is the injectable as it was just read.
	live *live
}

type live struct {
	target injection.Target
	// resourceVersion is its own, version what versionOf says.
	resourceVersion, version string
}

type pass = engine.Pass[*metav1.PartialObjectMetadata, memory]

// Setup adds the controllers of all kinds of injectables that the API server serves, now or later. The manager's cache
// MUST use Transform.
func Setup(ctx context.Context, d *controller.Deps, o Options) error {
	var all []*injectables
	for _, gvk := range Kinds() {
		if o.Skips(gvk.Kind) {
			continue
		}
		r := &injectables{Deps: d, o: o, gvk: gvk, following: informers.NewFollowing()}
		r.runner = engine.Run(d.Engine, engine.Kind[*metav1.PartialObjectMetadata, memory, injection.State, injection.Action]{
			Name: gvk.Kind, New: r.empty, Events: d.Events(injection.FieldManager),
			Observe: r.observe, Decide: injection.Decide, Plan: r.plan, Refused: refused,
			Gone: func(name types.NamespacedName, _ types.UID) { r.following.Leave(name) },
		})
		if err := d.WhenServed(ctx, r.setup, gvk); err != nil {
			return err
		}
		all = append(all, r)
	}
	if !o.Certificates {
		return nil
	}
	return d.WhenServed(ctx, func(ctx context.Context) error { return watchCertificates(ctx, d, all) },
		certmanagerv1.SchemeGroupVersion().WithKind(certmanagerv1.CertificateKind))
}

// watchCertificates queues injectables whose Certificates come, change and go.
func watchCertificates(ctx context.Context, d *controller.Deps, all []*injectables) error {
	informer, err := d.Manager.GetCache().GetInformer(ctx, &certmanagerv1.Certificate{})
	if err != nil {
		return err
	}
	changed := func(obj any) {
		crt, ok := informers.LastOf[*certmanagerv1.Certificate](obj)
		if !ok {
			return
		}
		for _, r := range all {
			for _, req := range r.naming(ctx, crt) {
				r.runner.Ring(req.NamespacedName)
			}
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed,
	})
	return err
}

func (r *injectables) setup(ctx context.Context) error {
	if err := r.Manager.GetFieldIndexer().IndexField(ctx, r.empty(), certificateIndex, r.certificateOf); err != nil {
		return err
	}
	if err := r.Observed(ctx, r.empty()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(r.Manager).Named("cainjector-"+strings.ToLower(r.gvk.Kind)).
		For(r.empty(), builder.WithPredicates(r.annotated())).
		WithOptions(r.Options(time.Second, 5*time.Minute)).
		WatchesRawSource(r.OnSecret(r.followers)).
		WatchesRawSource(r.runner).
		Complete(r.runner)
}

// certificateOf is what certificateIndex has of an injectable.
func (r *injectables) certificateOf(obj client.Object) []string {
	source, err := injection.SourceOf(obj.GetAnnotations())
	if err != nil || !source.IsCertificate() || !r.Scope.Holds(obj.GetName()) {
		return nil
	}
	return []string{source.Name.String()}
}

// naming lists the injectables that name a Certificate.
func (r *injectables) naming(ctx context.Context, crt client.Object) []reconcile.Request {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(r.gvk.GroupVersion().WithKind(r.gvk.Kind + "List"))
	return r.Indexed(ctx, list, certificateIndex, client.ObjectKeyFromObject(crt).String())
}

// followers lists the injectables to look at again after a Secret has changed.
func (r *injectables) followers(_ context.Context, secret client.Object) []reconcile.Request {
	return r.following.Followers(client.ObjectKeyFromObject(secret))
}

func (r *injectables) empty() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(r.gvk)
	return m
}

// annotated lets only injectables through that have an annotation, or have lost it.
func (r *injectables) annotated() predicate.Predicate {
	has := func(o client.Object) bool {
		return r.Scope.Holds(o.GetName()) && injection.Keep(o.GetAnnotations()) != nil
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return has(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return has(e.ObjectOld) || has(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return has(e.Object) },
	}
}

// observe looks at what the source of an injectable has.
func (r *injectables) observe(ctx context.Context, p *pass) (injection.State, error) {
	s := injection.State{Annotations: p.Object.Annotations, Deleting: p.Object.DeletionTimestamp != nil, Since: p.Memory.since}
	source, _ := injection.SourceOf(s.Annotations) // the decision says what is wrong with the annotations
	r.following.Leave(client.ObjectKeyFromObject(p.Object))
	if source == (injection.Source{}) || s.Deleting {
		return s, nil
	}
	var err error
	if s.Given, err = r.given(ctx, client.ObjectKeyFromObject(p.Object), source); err != nil {
		return s, err
	}
	s.Settled = p.Memory.settled == fingerprint(versionOf(p.Object), source, s.Annotations, s.Given)
	if p.Memory.live != nil {
		s.Target = &p.Memory.live.target
	}
	return s, nil
}

// given returns what the source of an injectable has.
func (r *injectables) given(ctx context.Context, of types.NamespacedName, source injection.Source) (injection.Given, error) {
	switch {
	case source.IsAPIServer():
		ca, err := r.o.APIServerCA()
		if len(ca) == 0 {
			return injection.Given{Missing: "the injector connects to the API server without a CA: give its kubeconfig a certificate-authority"}, err
		}
		return injection.Given{CA: ca}, err
	case r.o.Ignores(source.Name.Namespace), source.IsCertificate() && !r.o.Certificates:
		return injection.Given{Ignored: true}, nil
	}
	name := source.Name
	if source.IsCertificate() {
		crt := &certmanagerv1.Certificate{}
		err := r.Client.Get(ctx, name, crt)
		switch {
		case meta.IsNoMatchError(err):
			return injection.Given{Missing: fmt.Sprintf("%s cannot be read, because the API server does not serve its kind: run chancery install", source)}, nil
		case err != nil:
			return injection.Given{Missing: fmt.Sprintf("%s does not exist: create it, or name another", source)}, client.IgnoreNotFound(err)
		}
		name.Name = crt.Spec.SecretName
	}
	r.following.Follow(of, name) // before it is read: whatever changes later is heard of
	secret, err := r.Secrets.Secret(ctx, name.Namespace, name.Name)
	if client.IgnoreNotFound(err) != nil {
		return injection.Given{}, err
	}
	return injection.GivenBySecret(source, name.Name, secret), nil
}

// fingerprint tells apart what an injectable was found in order with.
func fingerprint(version string, source injection.Source, annotations map[string]string, given injection.Given) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", version, source, annotations[certmanagerv1.DropOldCAsAfterAnnotation],
		annotations[certmanagerv1.OldCAsAnnotation], given.CA))
}

// versionOf tells apart the contents of an injectable. Changes of a status do not count where the kind has generations.
func versionOf(o client.Object) string {
	if g := o.GetGeneration(); g > 0 {
		return fmt.Sprintf("%s/%d", o.GetUID(), g)
	}
	return o.GetResourceVersion()
}

// plan says what a decision means.
func (r *injectables) plan(_ context.Context, p *pass, s injection.State, a injection.Action) (engine.Plan, error) {
	was := p.Memory.live
	p.Memory.live, p.Memory.since = nil, a.Since
	if a.Read {
		return engine.Plan{First: func(ctx context.Context) error { return r.read(ctx, p) }, Again: true}, nil
	}
	plan, said := engine.Plan{Wake: a.Wake}, ""
	if a.Say != nil {
		if said = a.Say.Message; said != p.Memory.said {
			plan.Events = []engine.Event{{Warning: !a.Say.Notice, Reason: a.Say.Reason, Message: said}}
		}
	}
	p.Memory.said = said
	if a.Waits != "" {
		plan.Waits = engine.For{What: engine.WaitEvent, Detail: a.Waits}
		return plan, nil
	}
	if was != nil {
		plan.First = func(ctx context.Context) error { return r.writeBundles(ctx, p, s, a, was) }
	}
	return plan, nil
}

// read reads an injectable for the next decision.
func (r *injectables) read(ctx context.Context, p *pass) error {
	full := &unstructured.Unstructured{}
	full.SetGroupVersionKind(r.gvk)
	if err := r.Manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(p.Object), full); err != nil {
		return err
	}
	p.Memory.live = &live{injection.Read(r.gvk.Kind, full.Object), full.GetResourceVersion(), versionOf(full)}
	return nil
}

// writeBundles writes the bundles, and what is known of old CAs, if any changes, and notes with what the injectable is
// in order.
func (r *injectables) writeBundles(ctx context.Context, p *pass, s injection.State, a injection.Action, was *live) error {
	source, err := injection.SourceOf(s.Annotations)
	if err != nil {
		return err
	}
	version, annotations := was.version, s.Annotations
	if len(a.Write) > 0 || a.Old != nil {
		body, err := json.Marshal(injection.Patch(&was.target, a, was.resourceVersion))
		if err != nil {
			return err
		}
		written := r.empty()
		written.Name = p.Object.Name
		if err := r.Client.Patch(ctx, written, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(injection.FieldManager)); err != nil {
			return err
		}
		version, annotations = versionOf(written), written.Annotations
		if len(a.Write) > 0 {
			r.o.Written(r.gvk.Kind)
		}
	}
	p.Memory.settled = fingerprint(version, source, annotations, s.Given)
	return nil
}

func refused(_ *pass, err error) engine.Event {
	help := "see which field it names"
	if apierrors.IsForbidden(err) {
		help = "give the role chancery-cainjector to the service account of the CA injector, by chancery install --cainjector"
	}
	return engine.Event{Warning: true, Reason: injection.ReasonRefused, Message: fmt.Sprintf("the API server refuses the CA bundle: %v: %s", err, help)}
}
