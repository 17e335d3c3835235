package engine

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// statusPatch replaces the status, which is about the generation of old, if the object still has the version of old. A
// merge patch would say the same in less, and cost two encodings of the whole object and three decodings to find out.
func statusPatch(old, changed client.Object) (client.Patch, error) {
	status := statusOf(changed)
	if !status.IsValid() {
		return nil, fmt.Errorf("a %T has no status: please report this as a bug", changed)
	}
	if o, has := changed.(interface{ SetProgress() }); has {
		o.SetProgress()
	}
	if seen := status.FieldByName("ObservedGeneration"); seen.IsValid() {
		seen.SetInt(old.GetGeneration())
	}
	text, err := json.Marshal([]operation{
		{Op: "replace", Path: "/metadata/resourceVersion", Value: old.GetResourceVersion()},
		{Op: "add", Path: "/status", Value: status.Interface()},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the status of %s: %w", changed.GetName(), err)
	}
	return client.RawPatch(types.JSONPatchType, text), nil
}
