package apiwire

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// decode reads data, which it may overwrite, into the empty obj. Names of fields are case
// sensitive, as everywhere in Kubernetes.
func decode(data []byte, obj client.Object, k kind) error {
	if err := json.Unmarshal(withoutManagedFields(data), obj); err != nil {
		return fmt.Errorf("the API server's answer cannot be read as a %s: %w", k.Kind, err)
	}
	if got := obj.GetObjectKind().GroupVersionKind(); got != k.GroupVersionKind {
		return fmt.Errorf("the API server has answered with %s, not %s", got, k.GroupVersionKind)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // typed objects say it by their type
	return nil
}

// withoutManagedFields overwrites metadata.managedFields of the object data with null.
func withoutManagedFields(data []byte) []byte {
	var from, to int
	members(data, space(data, 0), func(key []byte, metadata, _ int) bool {
		if string(key) != "metadata" {
			return true
		}
		members(data, metadata, func(key []byte, f, t int) bool {
			if string(key) == "managedFields" {
				from, to = f, t
			}
			return to == 0
		})
		return false
	})
	if to-from <= len("null") {
		return data
	}
	return append(append(data[:from], "null"...), data[to:]...)
}

// decodeList reads a list of objects like one.
func decodeList(data []byte, like runtime.Object, k kind) (*internalversion.List, error) {
	list := &internalversion.List{}
	var failed error
	whole := members(data, space(data, 0), func(key []byte, from, to int) bool {
		switch string(key) {
		case "metadata":
			failed = json.Unmarshal(data[from:to], &list.ListMeta)
		case "items":
			failed = decodeItems(data[from:to], list, like, k)
		}
		return failed == nil
	})
	switch {
	case failed != nil:
		return nil, failed
	case !whole:
		return nil, fmt.Errorf("the API server's list of %s is not whole", k.resource)
	default:
		return list, nil
	}
}

func decodeItems(data []byte, list *internalversion.List, like runtime.Object, k kind) error {
	if string(data) == "null" {
		return nil
	}
	var failed error
	whole := elements(data, 0, func(from, to int) bool {
		obj := newOf(like)
		failed = decode(data[from:to:to], obj, k)
		list.Items = append(list.Items, obj)
		return failed == nil
	})
	if failed == nil && !whole {
		failed = fmt.Errorf("the API server's list of %s is not whole", k.resource)
	}
	return failed
}

// decodeEvent reads an event of a watch for objects like one.
func decodeEvent(data []byte, like runtime.Object, k kind) (watch.EventType, runtime.Object, error) {
	var event watch.EventType
	var object []byte
	whole := members(data, space(data, 0), func(key []byte, from, to int) bool {
		switch string(key) {
		case "type":
			event = watch.EventType(data[from+1 : max(from+1, to-1)])
		case "object":
			object = data[from:to:to]
		}
		return true
	})
	if !whole {
		return "", nil, errors.New("the API server has sent an event of a watch that is not whole")
	}
	switch event {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		obj := newOf(like)
		return event, obj, decode(object, obj, k)
	case watch.Error:
		status := &metav1.Status{}
		return event, status, json.Unmarshal(object, status)
	default:
		return "", nil, fmt.Errorf("the API server has sent an event of a watch of no type that there is: %q", event)
	}
}
