package move

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// fieldManager is under what name the command writes.
const fieldManager = "kubectl-chancery"

// The values of the annotation chancery.dev/paused on the objects of a move; the UID of the other cluster follows. An
// object of the source has movingTo until the target has been verified, and movedTo from then on. An object of the
// target has movingFrom until it is released.
const (
	movingTo   = "moving-to-"
	movedTo    = "moved-to-"
	movingFrom = "moving-from-"
)

// object is an object as the API server gives it, unknown fields included.
type object = unstructured.Unstructured

// item is an object of the source that the target is to have.
type item struct {
	*object

	// key is what the object is called in the target.
	key client.ObjectKey
	// moves says that the object is paused in the source, and deleted there in the end; else it is copied, because
	// something that is moved needs it.
	moves bool
	// users are the items that a Secret is needed by.
	users []*item
	// done says that the target was verified in an earlier run: from then on the target's object is the one that counts.
	done bool
	// kept says that the target had the same object before, lost that it cannot be moved.
	kept, lost bool
}

func (i *item) String() string { return describe(i.object) }

func describe(o *object) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// pausedBy is what the annotation says; empty without it, and "true" for an annotation without a value.
func pausedBy(o client.Object) string {
	value, is := o.GetAnnotations()[cmmeta.PausedAnnotation]
	if is && value == "" {
		return "true"
	}
	return value
}

// typed converts an object.
func typed[T any](o *object) (*T, error) {
	into := new(T)
	return into, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)
}

// content is what of an object is the user's: all but the status, what the API server fills in, owners, finalizers and
// the pause.
func content(o *object) map[string]any {
	c := o.DeepCopy()
	delete(c.Object, "status")
	annotations := c.GetAnnotations()
	delete(annotations, cmmeta.PausedAnnotation)
	if len(annotations) == 0 {
		annotations = nil
	}
	kept := &object{Object: map[string]any{}}
	kept.SetName(c.GetName())
	kept.SetLabels(c.GetLabels())
	kept.SetAnnotations(annotations)
	c.Object["metadata"] = kept.Object["metadata"]
	return c.Object
}

func sameContent(a, b *object) bool { return equality.Semantic.DeepEqual(content(a), content(b)) }

// pauseAs sets the annotation.
func pauseAs(o client.Object, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[cmmeta.PausedAnnotation] = value
	o.SetAnnotations(annotations)
}

// managedFieldsFor returns the managed fields of an object for its copy: owners have other UIDs there. What the move
// itself has written is nobody's.
func managedFieldsFor(o *object, uids map[types.UID]types.UID) ([]metav1.ManagedFieldsEntry, error) {
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range o.GetManagedFields() {
		if entry.Manager != fieldManager {
			kept = append(kept, entry)
		}
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	said := string(text)
	for _, owner := range o.GetOwnerReferences() {
		if uid := uids[owner.UID]; uid != "" {
			said = strings.ReplaceAll(said, string(owner.UID), string(uid))
		}
	}
	kept = nil
	return kept, json.Unmarshal([]byte(said), &kept)
}

// sameFields compares managed fields, but for their times.
func sameFields(a, b []metav1.ManagedFieldsEntry) bool {
	timeless := func(entries []metav1.ManagedFieldsEntry) map[string]string {
		out := map[string]string{}
		for _, e := range entries {
			if e.FieldsV1 != nil {
				out[e.Manager+"/"+string(e.Operation)+"/"+e.Subresource] = string(e.FieldsV1.GetRawBytes())
			}
		}
		return out
	}
	return equality.Semantic.DeepEqual(timeless(a), timeless(b))
}

// statusFor returns the status of an object for its copy of another generation: what was said of the generation of the
// original is said of that of the copy.
func statusFor(o *object, generation int64) map[string]any {
	status, found, err := unstructured.NestedMap(o.Object, "status")
	if !found || err != nil {
		return nil
	}
	conditions, _, err := unstructured.NestedSlice(status, "conditions")
	if err != nil {
		return status
	}
	for _, entry := range conditions {
		c, ok := entry.(map[string]any)
		seen, said := c["observedGeneration"].(int64)
		switch {
		case !ok || !said:
		case seen == o.GetGeneration():
			c["observedGeneration"] = generation
		case generation == 1:
			delete(c, "observedGeneration")
		default:
			c["observedGeneration"] = generation - 1
		}
	}
	if conditions != nil {
		status["conditions"] = conditions
	}
	return status
}

// unfinished reports whether a CertificateRequest may still come to a certificate.
func unfinished(r *certmanagerv1.CertificateRequest) bool {
	for _, c := range r.Status.Conditions {
		final := c.Type == certmanagerv1.CertificateRequestConditionDenied || c.Type == certmanagerv1.CertificateRequestConditionInvalidRequest
		ready := c.Type == certmanagerv1.CertificateRequestConditionReady &&
			(c.Status == cmmeta.ConditionTrue || c.Reason == certmanagerv1.CertificateRequestReasonFailed || c.Reason == certmanagerv1.CertificateRequestReasonDenied)
		if ready || final && c.Status == cmmeta.ConditionTrue {
			return false
		}
	}
	return true
}
