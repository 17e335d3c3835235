// Package externalissuers writes a table of the kinds of external issuers. The admission policies read this table. For
// each kind, the table has the plural name, and whether the kind is namespaced (spec §11.4). At the start the package
// learns the served kinds by discovery. Later it reads each CustomResourceDefinition that is created or changed, once
// for each change. The package does not change the entries that other writers have added to the table.
package externalissuers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	acv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery"
	informersv1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=cert-manager,resources=configmaps,resourceNames=chancery-external-issuers,verbs=get;list;watch;create;patch

// Owner is the field manager of the entries that are kept.
const Owner = "chancery"

// awayRetry is how soon discovery is tried again that has missed groups.
const awayRetry = 5 * time.Minute

// Options are what a Keeper is made with.
type Options struct {
	// Config and HTTP reach the API server.
	Config *rest.Config
	HTTP   *http.Client
	// Reader reads from the API server, not from a cache.
	Reader client.Reader
	// Namespace holds the table: the bindings of the admission policies name the namespace.
	Namespace string
	// Failed is told what is wrong with a watch.
	Failed toolscache.WatchErrorHandlerWithContext
	Log    logr.Logger
}

// Keeper keeps the table while it runs. It runs on the leader only.
type Keeper struct {
	o       Options
	clients kubernetes.Interface
	queue   workqueue.TypedRateLimitingInterface[string]
	crds    toolscache.SharedIndexInformer
	table   toolscache.SharedIndexInformer

	// entries are what the table is to have; nil before discovery.
	entries map[string]string
	// changed says that the entries, or the table, may have changed since they were compared.
	changed bool
	// belongs are the labels and annotations of the table: who has made it says there that it is theirs.
	belongs metav1.ObjectMeta
	// seen are the definitions that the entries are from.
	seen map[string]version
	// away says that discovery has missed groups.
	away bool
}

// version tells apart the contents of a definition: another one by the same name begins with generation 1 again.
type version struct {
	uid        types.UID
	generation int64
}

func versionOf(definition metav1.Object) version {
	return version{definition.GetUID(), definition.GetGeneration()}
}

// New makes a Keeper.
func New(o Options) (*Keeper, error) {
	clients, err := kubernetes.NewForConfigAndClient(o.Config, o.HTTP)
	if err != nil {
		return nil, err
	}
	names, err := metadata.NewForConfigAndClient(metadata.ConfigFor(o.Config), o.HTTP)
	if err != nil {
		return nil, err
	}
	k := &Keeper{
		o: o, clients: clients, seen: map[string]version{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)),
		crds: metadatainformer.NewFilteredMetadataInformer(names,
			schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
			"", 0, toolscache.Indexers{}, nil).Informer(),
		table: informersv1.NewFilteredConfigMapInformer(clients, o.Namespace, 0, toolscache.Indexers{},
			func(l *metav1.ListOptions) {
				l.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, api.ExternalIssuersName).String()
			}),
	}
	for informer, key := range map[toolscache.SharedIndexInformer]func(any) string{k.crds: nameOf, k.table: func(any) string { return "" }} {
		if err := k.listen(informer, key); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// listen queues what has changed by its key.
func (k *Keeper) listen(informer toolscache.SharedIndexInformer, key func(any) string) error {
	if err := informer.SetTransform(thin); err != nil {
		return err
	}
	if err := informer.SetWatchErrorHandlerWithContext(k.o.Failed); err != nil {
		return err
	}
	add := func(object any) { k.queue.Add(key(object)) }
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, now any) { add(now) }, DeleteFunc: add,
	})
	return err
}

// thin leaves the name and the version of a definition.
func thin(object any) (any, error) {
	if o, is := object.(*metav1.PartialObjectMetadata); is {
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, UID: o.UID, Generation: o.Generation, ResourceVersion: o.ResourceVersion}
	}
	return object, nil
}

func nameOf(object any) string {
	name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return ""
	}
	return name
}

// Start implements manager.Runnable.
func (k *Keeper) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, k.queue.ShutDown)()
	// Without a table, the API server refuses every write of a CertificateRequest's status: there has to be one at
	// once.
	tables := k.clients.CoreV1().ConfigMaps(k.o.Namespace)
	if _, err := tables.Get(ctx, api.ExternalIssuersName, metav1.GetOptions{}); err != nil {
		if err := Write(ctx, tables, Owner+"-table", k.o.Namespace, nil); err != nil {
			k.o.Log.Error(err, "cannot make the table of external issuers: grant the right, or run chancery install again")
		}
	}
	go k.crds.RunWithContext(ctx)
	go k.table.RunWithContext(ctx)
	if !toolscache.WaitForCacheSync(ctx.Done(), k.crds.HasSynced, k.table.HasSynced) {
		return nil
	}
	k.queue.Add("")
	for {
		name, over := k.queue.Get()
		if over {
			return nil
		}
		if err := k.sync(ctx, name); err != nil && ctx.Err() == nil {
			k.o.Log.Error(err, "cannot keep the table of external issuers, trying again")
			k.queue.AddRateLimited(name)
		} else {
			k.queue.Forget(name)
		}
		k.queue.Done(name)
	}
}

// sync looks at the definition of a name, or at the table if there is none.
func (k *Keeper) sync(ctx context.Context, name string) error {
	if stored := k.stored(); stored != nil {
		k.belongs = metav1.ObjectMeta{Labels: stored.Labels, Annotations: stored.Annotations}
	}
	names := []string{name}
	if first := k.entries == nil; first || k.away && name == "" {
		if err := k.discover(); err != nil {
			return err
		}
		if first { // what was made just now is not discovered yet
			names = k.crds.GetStore().ListKeys()
		}
	}
	for _, each := range names {
		if err := k.learn(ctx, each); err != nil {
			return err
		}
	}
	if k.changed = k.changed || name == ""; k.changed && !k.upToDate() {
		if err := k.put(ctx); err != nil {
			return err
		}
	}
	k.changed = false
	return nil
}

// put writes the entries.
func (k *Keeper) put(ctx context.Context) error {
	if k.stored() == nil {
		if err := k.restore(ctx); err != nil {
			return err
		}
	}
	return Write(ctx, k.clients.CoreV1().ConfigMaps(k.o.Namespace), Owner, k.o.Namespace, k.entries)
}

// restore makes a table that was deleted anew, with the labels and annotations that it had: Helm, for example, takes
// only what is marked as its own into a release.
func (k *Keeper) restore(ctx context.Context) error {
	// A field manager of its own: to apply the table by another one would take the labels away again.
	table := acv1.ConfigMap(api.ExternalIssuersName, k.o.Namespace).WithLabels(k.belongs.Labels).WithAnnotations(k.belongs.Annotations)
	_, err := k.clients.CoreV1().ConfigMaps(k.o.Namespace).Apply(ctx, table, metav1.ApplyOptions{FieldManager: Owner + "-restored"})
	if err != nil && len(Conflicts(err)) == 0 { // a conflict: somebody else has made it
		return fmt.Errorf("make the ConfigMap %s anew: %w", api.ExternalIssuersName, err)
	}
	return nil
}

// Write applies entries to the table of a namespace, as those of a field manager. An entry that somebody else has set
// to another value stays: whoever keeps it in a repository would set it again.
func Write(ctx context.Context, tables corev1client.ConfigMapInterface, owner, namespace string, entries map[string]string) error {
	entries = maps.Clone(entries)
	for {
		table := acv1.ConfigMap(api.ExternalIssuersName, namespace).WithData(entries)
		_, err := tables.Apply(ctx, table, metav1.ApplyOptions{FieldManager: owner})
		left := len(entries)
		for _, conflict := range Conflicts(err) {
			delete(entries, strings.TrimPrefix(conflict.Field, ".data."))
		}
		if len(entries) == left {
			return err
		}
	}
}

// Conflicts returns the fields because of which a server-side apply has failed: others manage them.
func Conflicts(err error) []metav1.StatusCause {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(status.Status().Details.Causes), func(c metav1.StatusCause) bool {
		return c.Type != metav1.CauseTypeFieldManagerConflict
	})
}

// stored is the table as the watch shows it; nil if there is none.
func (k *Keeper) stored() *corev1.ConfigMap {
	stored, _, _ := k.table.GetStore().GetByKey(k.o.Namespace + "/" + api.ExternalIssuersName)
	table, _ := stored.(*corev1.ConfigMap)
	return table
}

// upToDate reports whether the entries of the table that are ours are what they are to be. Those that others have set
// to another value are not ours.
func (k *Keeper) upToDate() bool {
	stored := k.stored()
	if stored == nil {
		return false
	}
	ours, others := owned(stored)
	wanted := maps.Clone(k.entries)
	maps.DeleteFunc(wanted, func(kind, entry string) bool { return others[kind] && stored.Data[kind] != entry })
	return maps.Equal(ours, wanted)
}

// owned returns the entries of a table that Owner has applied, and which entries others have set. Whoever else writes
// the table may have removed some of Owner's since, or added some: chancery install applies as Owner, too.
func owned(table *corev1.ConfigMap) (ours map[string]string, others map[string]bool) {
	ours, others = map[string]string{}, map[string]bool{}
	for _, by := range table.ManagedFields {
		var fields struct {
			Data map[string]struct{} `json:"f:data"`
		}
		if by.FieldsV1 == nil || json.Unmarshal(by.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for field := range fields.Data {
			kind, is := strings.CutPrefix(field, "f:")
			switch {
			case !is: // that there are data at all
			case by.Manager == Owner && by.Operation == metav1.ManagedFieldsOperationApply:
				ours[kind] = table.Data[kind]
			default:
				others[kind] = true
			}
		}
	}
	return ours, others
}

// discover asks what is served. What is known of a group whose own API server is away stays, and discovery is tried
// again.
func (k *Keeper) discover() error {
	entries, away, err := Discover(k.clients.Discovery())
	if err != nil {
		return err
	}
	before, again := k.entries, k.entries != nil
	if table := k.stored(); !again && table != nil {
		before, _ = owned(table)
	}
	for kind, entry := range before {
		_, group, _ := strings.Cut(kind, ".")
		if _, served := entries[kind]; !served && (again || slices.Contains(away, group)) {
			entries[kind] = entry
		}
	}
	k.entries, k.away = entries, len(away) > 0
	if k.away {
		k.queue.AddAfter("", awayRetry)
	}
	return nil
}

// Discover returns the entries of what is served, and the groups whose own API servers are away.
func Discover(from discovery.DiscoveryInterface) (entries map[string]string, away []string, err error) {
	_, lists, err := from.ServerGroupsAndResources()
	failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partly {
		return nil, nil, fmt.Errorf("discover the kinds that are served: %w", err)
	}
	for gv := range failed {
		if mayHaveIssuers(gv.Group) {
			away = append(away, gv.Group)
		}
	}
	entries = map[string]string{}
	for _, list := range lists {
		group, _, _ := strings.Cut(list.GroupVersion, "/")
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				add(entries, group, r.Kind, r.Name, r.Namespaced)
			}
		}
	}
	return entries, away, nil
}

// mayHaveIssuers reports whether a group may have external issuers: Kubernetes' own groups, and those of cert-manager,
// have none.
func mayHaveIssuers(group string) bool {
	ours := group == "cert-manager.io" || group == "acme.cert-manager.io"
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") && !ours
}

// add notes a kind.
func add(entries map[string]string, group, kind, plural string, namespaced bool) {
	key, scope := kind+"."+group, "Cluster"
	if namespaced {
		scope = "Namespaced"
	}
	if mayHaveIssuers(group) && len(validation.IsConfigMapKey(key)) == 0 {
		entries[key] = plural + " " + scope
	}
}

// learn notes what the definition of a name says, if there is a name. One that was discovered is not read, and neither
// is one of a group without external issuers.
func (k *Keeper) learn(ctx context.Context, name string) error {
	if _, group, _ := strings.Cut(name, "."); !mayHaveIssuers(group) { // the name is <plural>.<group>
		return nil
	}
	object, exists, err := k.crds.GetStore().GetByKey(name)
	if err != nil {
		return err
	}
	if !exists {
		delete(k.seen, name)
		k.changed = k.forget(name) || k.changed
		return nil
	}
	found, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	before, known := k.seen[name]
	if known && before == versionOf(found) || !known && k.has(name) {
		k.seen[name] = versionOf(found)
		return nil
	}
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := k.o.Reader.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return client.IgnoreNotFound(err) // its end is an event too
	}
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(crd.Object, append([]string{"spec"}, path...)...)
		return value
	}
	k.forget(name) // the kind may have been renamed
	add(k.entries, text("group"), text("names", "kind"), text("names", "plural"), text("scope") == "Namespaced")
	k.seen[name], k.changed = versionOf(crd), true
	return nil
}

// has reports whether there is an entry of a definition: its name is <plural>.<group>.
func (k *Keeper) has(name string) bool {
	for range k.of(name) {
		return true
	}
	return false
}

// forget removes the entries of a definition, and reports whether there were any.
func (k *Keeper) forget(name string) bool {
	had := k.has(name)
	for kind := range k.of(name) {
		delete(k.entries, kind)
	}
	return had
}

// of yields the entries of a definition.
func (k *Keeper) of(name string) func(yield func(kind string) bool) {
	plural, group, _ := strings.Cut(name, ".")
	return func(yield func(string) bool) {
		for kind, entry := range k.entries {
			if strings.HasPrefix(entry, plural+" ") && strings.HasSuffix(kind, "."+group) && len(kind) > len(group) &&
				!strings.Contains(strings.TrimSuffix(kind, "."+group), ".") && !yield(kind) {
				return
			}
		}
	}
}
