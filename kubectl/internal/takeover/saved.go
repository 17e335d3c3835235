package takeover

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/internal/limits"
)

const (
	// owner is the field manager of what a takeover writes beside what chancery install applies.
	owner = "chancery-takeover"
	// recordName is the Secret that says how far a takeover, or a rollback, has come.
	recordName = "chancery-takeover"
	recordKey  = "record"
	// savedLabel marks the Secrets that hold what was there before, one for each object. Secrets, because Deployments may
	// have passwords in their environment.
	savedLabel = "chancery.dev/takeover-saved"
	// savedOf names the object, and savedKey holds the object as compressed JSON; it is missing where there was none.
	savedOf  = "chancery.dev/takeover-of"
	savedKey = "object.json.gz"
)

// record says how far a takeover has come.
type record struct {
	Begun time.Time `json:"begun"`
	// Image, DNSImage and KeepInjector are the user's choices.
	Image        string `json:"image"`
	DNSImage     string `json:"dnsImage,omitempty"`
	KeepInjector bool   `json:"keepInjector,omitempty"`
	// Saved is how many objects were saved, each in a Secret.
	Saved int `json:"saved,omitempty"`
	// Done are the steps of apply that are done, and Undone those of rollback.
	Done   []string `json:"done,omitempty"`
	Undone []string `json:"undone,omitempty"`
	// Holder held the lease before apply replaced the controller, Replaced before rollback did.
	Holder   string `json:"holder,omitempty"`
	Replaced string `json:"replaced,omitempty"`

	secret *corev1.Secret
}

// recorded reads the record; nil if there is none.
func (c cluster) recorded(ctx context.Context) (*record, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: home, Name: recordName}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as it says
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", home, recordName, err)
	}
	r := &record{secret: secret}
	if err := json.Unmarshal(secret.Data[recordKey], r); err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", home, recordName, err)
	}
	return r, nil
}

// write stores the record. Of two commands that run at once, one fails.
func (r *record) write(ctx context.Context, c cluster) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if r.secret == nil {
		r.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: recordName}, Data: map[string][]byte{recordKey: text}}
		err = c.Create(ctx, r.secret, client.FieldOwner(owner))
	} else {
		r.secret.Data = map[string][]byte{recordKey: text}
		err = c.Update(ctx, r.secret, client.FieldOwner(owner))
	}
	if err != nil {
		return fmt.Errorf("write down how far the takeover has come (does another one run?): %w", err)
	}
	return nil
}

// object is one that a takeover changes, as it was before.
type object struct {
	gvk  schema.GroupVersionKind
	key  client.ObjectKey
	body *unstructured.Unstructured // nil if there was none
}

func (o object) String() string {
	return strings.Join([]string{o.gvk.Group, o.gvk.Version, o.gvk.Kind, o.key.Namespace, o.key.Name}, "/")
}

// is reports whether two are of one name, whatever version of its API each was read by.
func (o object) is(other object) bool {
	return o.gvk.GroupKind() == other.gvk.GroupKind() && o.key == other.key
}

// changed are the objects that a takeover changes or makes, in the order in which they are saved. If the user keeps the
// injector of cert-manager, the objects of the injector are not among them.
func (c cluster) changed(keepInjector bool) ([]object, error) {
	installed, err := chancery("", !keepInjector).Objects()
	if err != nil {
		return nil, err
	}
	var out []object
	for _, o := range installed {
		if o.GetName() == api.KeptPolicyName {
			continue // it stays after a rollback
		}
		gvk := o.GroupVersionKind()
		if mapping, err := c.RESTMapper().RESTMapping(gvk.GroupKind()); err == nil {
			gvk = mapping.GroupVersionKind // a policy may be served as a beta
		} else if meta.IsNoMatchError(err) {
			continue // what is not served is not applied
		} else {
			return nil, err
		}
		out = append(out, object{gvk: gvk, key: client.ObjectKeyFromObject(o)})
	}
	for _, kind := range []string{injectedValidating, injectedMutating} {
		out = append(out, object{gvk: kindOf("admissionregistration.k8s.io", kind), key: client.ObjectKey{Name: webhookName}})
	}
	deployments := []string{controllerName, webhookName}
	if !keepInjector {
		deployments = append(deployments, injectorName)
	}
	for _, name := range deployments {
		out = append(out, object{gvk: kindOf("apps", "Deployment"), key: client.ObjectKey{Namespace: home, Name: name}})
	}
	return out, nil
}

// save stores every object that is going to change. First it drops the objects that an earlier try has saved: since
// then only others have changed anything.
func (r *runner) save(ctx context.Context) error {
	if err := r.forget(ctx); err != nil {
		return err
	}
	objects, err := r.changed(r.KeepInjector)
	if err != nil {
		return err
	}
	r.Saved = len(objects)
	for _, o := range objects {
		sum := sha256.Sum256([]byte(o.String()))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: home, Name: recordName + "-" + hex.EncodeToString(sum[:8]),
			Labels: map[string]string{savedLabel: "true"}, Annotations: map[string]string{savedOf: o.String()},
		}}
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(o.gvk)
		switch err := r.Get(ctx, o.key, found); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("read %s: %w", o, err)
		default:
			body, err := packed(found)
			if err != nil {
				return err
			}
			secret.Data = map[string][]byte{savedKey: body}
		}
		if err := r.Create(ctx, secret, client.FieldOwner(owner)); err != nil {
			return fmt.Errorf("save %s: %w", o, err)
		}
	}
	return nil
}

func packed(o *unstructured.Unstructured) ([]byte, error) {
	b := &bytes.Buffer{}
	z := gzip.NewWriter(b)
	if err := json.NewEncoder(z).Encode(o); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// saved reads what was saved.
func (c cluster) saved(ctx context.Context) ([]object, error) {
	list := &corev1.SecretList{}
	var out []object
	var errs error
	err := c.pages(ctx, list, func() {
		for i := range list.Items {
			o, err := unpacked(&list.Items[i])
			if err != nil && errs == nil {
				errs = fmt.Errorf("read Secret %s: %w", nameOf(&list.Items[i]), err)
			}
			out = append(out, o)
		}
	}, client.InNamespace(home), client.HasLabels{savedLabel})
	if err == nil {
		err = errs
	}
	slices.SortFunc(out, func(a, b object) int { return strings.Compare(a.String(), b.String()) })
	return out, err
}

// maxSaved bounds an object, in bytes.
const maxSaved = limits.SavedObject

func unpacked(secret *corev1.Secret) (object, error) {
	parts := strings.Split(secret.Annotations[savedOf], "/")
	if len(parts) != 5 {
		return object{}, fmt.Errorf("its annotation %s is %q", savedOf, secret.Annotations[savedOf])
	}
	o := object{
		gvk: schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: parts[2]}, key: client.ObjectKey{Namespace: parts[3], Name: parts[4]},
	}
	body := secret.Data[savedKey]
	if len(body) == 0 {
		return o, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return o, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxSaved+1))
	switch {
	case err != nil:
		return o, err
	case len(text) > maxSaved:
		return o, fmt.Errorf("what was saved of the object is longer than %d MiB: it is no object of the API server", maxSaved>>20)
	}
	o.body = &unstructured.Unstructured{}
	if err := o.body.UnmarshalJSON(text); err != nil {
		return o, err
	}
	if in := (object{gvk: o.body.GroupVersionKind(), key: client.ObjectKeyFromObject(o.body)}); !in.is(o) {
		return o, fmt.Errorf("its annotation %s is %q, but it holds %s", savedOf, o, in)
	}
	return o, nil
}

// stranger returns the first saved object that no takeover changes; nil if there is none. Whoever may write Secrets in
// the namespace of cert-manager may write one that looks like those that apply makes, and the user who rolls back may
// write everything.
func stranger(saved, changed []object) *object {
	for i, o := range saved {
		if !slices.ContainsFunc(changed, o.is) {
			return &saved[i]
		}
	}
	return nil
}

// forget deletes what was saved.
func (c cluster) forget(ctx context.Context) error {
	err := c.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(home), client.HasLabels{savedLabel})
	if err != nil {
		return fmt.Errorf("delete what was saved: %w", err)
	}
	return nil
}

// restore makes an object what it was, with the fields of each manager; or deletes an object that was not there.
// Definitions and namespaces are never deleted: their objects would go with them.
func (c cluster) restore(ctx context.Context, o object) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return c.restoreOnce(ctx, o) })
}

func (c cluster) restoreOnce(ctx context.Context, o object) error {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(o.gvk)
	err := c.Get(ctx, o.key, found)
	gone := apierrors.IsNotFound(err)
	switch {
	case err != nil && !gone:
		return fmt.Errorf("read %s: %w", o, err)
	case o.body == nil && (gone || o.gvk.Kind == "CustomResourceDefinition" || o.gvk.Kind == "Namespace"):
		return nil
	case o.body == nil:
		if err := client.IgnoreNotFound(c.Delete(ctx, found, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			return fmt.Errorf("delete %s: %w", o, err)
		}
		return nil
	case gone:
		was := o.body.DeepCopy()
		was.SetUID("")
		was.SetResourceVersion("")
		was.SetManagedFields(nil)
		if err := c.Create(ctx, was, client.FieldOwner(owner)); err != nil {
			return fmt.Errorf("create %s again: %w", o, err)
		}
		found = was
	}
	// First what it says, then who says so: the API server takes over the managers of a write that changes nothing else.
	for _, managers := range [][]metav1.ManagedFieldsEntry{found.GetManagedFields(), o.body.GetManagedFields()} {
		was := o.body.DeepCopy()
		was.SetUID(found.GetUID())
		was.SetResourceVersion(found.GetResourceVersion())
		was.SetManagedFields(managers)
		if status, there := found.Object["status"]; there {
			was.Object["status"] = status
		}
		if same(was, found) && equality.Semantic.DeepEqual(found.GetManagedFields(), managers) {
			continue
		}
		if err := c.Update(ctx, was, client.FieldOwner(owner)); err != nil {
			return fmt.Errorf("restore %s: %w", o, err)
		}
		found = was
	}
	return nil
}

// same reports whether two objects are equal but for the fields that the API server writes.
func same(a, b *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(bare(a).Object, bare(b).Object)
}

// bare is an object without the fields that the API server and controllers write.
func bare(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := o.DeepCopy()
	delete(out.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	return out
}
