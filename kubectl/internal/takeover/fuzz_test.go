package takeover

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FuzzSaved: what is restored is the object that its annotation names, of a bounded size, and packs to the same again.
func FuzzSaved(f *testing.F) {
	body, err := packed(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "ns", "name": "name"},
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("/v1/ConfigMap/ns/name", body)
	f.Add("/v1/ConfigMap/ns/other", body)
	f.Add("/v1/ConfigMap/ns/name", []byte{})
	f.Fuzz(func(t *testing.T, of string, body []byte) {
		saved := func(body []byte) *corev1.Secret {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{savedOf: of}}, Data: map[string][]byte{savedKey: body}}
		}
		o, err := unpacked(saved(body))
		if err != nil || o.body == nil {
			return
		}
		if o.body.GetKind() != o.gvk.Kind || o.body.GetName() != o.key.Name || o.body.GetNamespace() != o.key.Namespace {
			t.Errorf("%q holds %s %s/%s", of, o.body.GetKind(), o.body.GetNamespace(), o.body.GetName())
		}
		again, err := packed(o.body)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := unpacked(saved(again)); err != nil || !same(back.body, o.body) {
			t.Errorf("%v is restored as %v, %v", o.body, back.body, err)
		}
	})
}
