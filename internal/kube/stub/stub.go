// Package stub replaces an object by a stub if the object is too large for the watch cache. A stub keeps almost nothing
// of the object. Without this, a tenant could fill the memory: the API server accepts objects of a megabyte and more,
// and has no limit for the number of labels and for the length of many lists. The package changes only the copy in
// memory.
package stub

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/limits"
)

// Object is an object of the API, a client.Object: this package is pure.
type Object interface {
	metav1.Object
	runtime.Object
}

// Reason is the reason of events and conditions about an object that is too large.
const Reason = "TooLarge"

// manager is the field manager of a stub's only entry of managed fields. The API server gives each entry an operation,
// and the entry of a stub has none: so nobody can write an object that looks like a stub. The subresource of the entry
// is bare if the status was dropped.
const (
	manager = "chancery.dev/too-large"
	bare    = "bare"
)

// Bound returns a cache.TransformFunc. It lets next, another TransformFunc, transform an object. If the object is still
// larger than its bound, it becomes a stub. A stub keeps the name and the controller. It loses the labels, then the
// spec, then the status and the annotations, until it has room. Caches may pass a result to the function again.
func Bound(next func(any) (any, error)) func(any) (any, error) {
	return func(obj any) (any, error) {
		if object, ok := obj.(Object); ok && Is(object) {
			return obj, nil
		}
		kept, err := next(obj)
		object, ok := kept.(Object)
		if err != nil || !ok {
			return kept, err
		}
		if Size(object) > most(object) {
			reduce(object)
		}
		return kept, nil
	}
}

// Is reports whether an object is a stub.
func Is(obj Object) bool {
	fields := obj.GetManagedFields()
	return len(fields) == 1 && fields[0].Manager == manager && fields[0].Operation == ""
}

// HasStatus reports whether an object of the cache has its status, and may be written: a stub may have lost it.
func HasStatus(obj Object) bool { return !Is(obj) || obj.GetManagedFields()[0].Subresource != bare }

// TooLarge says that an object of the cache is a stub; empty for any other.
func TooLarge(obj Object) string {
	if !Is(obj) {
		return ""
	}
	return fmt.Sprintf("the object takes more than %d bytes of memory, and nothing is done for it: give it fewer or shorter labels and entries, "+
		"or divide it among several", most(obj))
}

// most is how large an object may be, in bytes.
func most(object Object) int {
	if _, is := object.(*acmev1.Order); is {
		return limits.OrderBytes
	}
	return limits.ObjectBytes
}

// reduce makes a stub of an object. What it drops first is what has no bound by Kubernetes itself.
func reduce(object Object) {
	object.SetLabels(nil)
	owners := object.GetOwnerReferences()
	object.SetOwnerReferences(nil)
	for _, owner := range owners {
		if owner.Controller != nil && *owner.Controller {
			object.SetOwnerReferences([]metav1.OwnerReference{owner})
			break
		}
	}
	if Size(object) > most(object) {
		clearBut(object, "Status")
	}
	mark := metav1.ManagedFieldsEntry{Manager: manager}
	if Size(object) > most(object) {
		mark.Subresource = bare
		clearBut(object, "")
		object.SetAnnotations(nil)
	}
	if Size(object) > most(object) {
		object.SetFinalizers(ours(object.GetFinalizers()))
	}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{mark})
}

// ours returns the finalizers that the controller removes, once each: an object that is being deleted waits for that.
func ours(all []string) (kept []string) {
	for _, name := range []string{acmev1.ChallengeFinalizer, acmev1.ChallengeFinalizerLegacy} {
		if slices.Contains(all, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// clearBut clears all fields of an object but its metadata, the named one, and what of the spec others need to know.
func clearBut(object Object, field string) {
	v := reflect.ValueOf(object).Elem()
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "TypeMeta", "ObjectMeta", field:
		case "Spec":
			clearSpec(v.Field(i))
		default:
			v.Field(i).SetZero()
		}
	}
}

// nameBytes is more than a reference to an issuer takes.
const nameBytes = 1 << 10

// clearSpec clears all of a spec but what other objects are told by, where that is short: the Secret of a Certificate,
// the issuer, the name and the type of a Challenge.
func clearSpec(spec reflect.Value) {
	for i := range spec.NumField() {
		switch spec.Type().Field(i).Name {
		case "SecretName", "IssuerRef", "DNSName", "Type":
			if sizeOf(spec.Field(i)) <= nameBytes {
				continue
			}
		}
		spec.Field(i).SetZero()
	}
}

// Size returns how much memory an object takes, in bytes, about.
func Size(object Object) int { return sizeOf(reflect.ValueOf(object)) }

// mapEntry is what an entry of a map takes beside its key and its value.
const mapEntry = 8

// sizeOf returns what a value takes, itself included.
func sizeOf(v reflect.Value) int {
	if !v.IsValid() {
		return 0
	}
	size := int(v.Type().Size())
	switch v.Kind() {
	case reflect.String:
		size += v.Len()
	case reflect.Pointer, reflect.Interface:
		size += sizeOf(v.Elem())
	case reflect.Slice:
		if element := int(v.Type().Elem().Size()); flat(v.Type().Elem()) {
			return size + v.Len()*element
		}
		for i := range v.Len() {
			size += sizeOf(v.Index(i))
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			size += mapEntry + sizeOf(entries.Key()) + sizeOf(entries.Value())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return size
		}
		size = 0
		for i := range v.NumField() {
			size += sizeOf(v.Field(i))
		}
	}
	return size
}

// flat reports whether values of a type refer to nothing.
func flat(t reflect.Type) bool {
	return t.Kind() <= reflect.Complex128 && t.Kind() != reflect.Uintptr
}
