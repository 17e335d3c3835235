package ownwrites

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestAnswersAreDecodedIntoNothing: the client of controller-runtime sets an object to zero before it decodes an answer
// into the object. So an object may share slices, maps and pointers with one of the cache: JSON alone would be decoded
// into these.
func TestAnswersAreDecodedIntoNothing(t *testing.T) {
	t.Parallel()
	section, other := gwapiv1.SectionName("https"), gwapiv1.SectionName("http")
	kind, answer := schema.GroupVersionKind{Group: gwapiv1.GroupName, Version: "v1", Kind: "HTTPRoute"}, gwapiv1.HTTPRoute{}
	answer.SetGroupVersionKind(kind)
	answer.Name, answer.Namespace, answer.Labels = "web", "ns", map[string]string{"a": "changed"}
	answer.Spec.ParentRefs = []gwapiv1.ParentReference{{Name: "changed", SectionName: &other}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	if err := gwapiv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind, meta.RESTScopeNamespace)
	api, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(*gwapiv1.HTTPRoute) error{
		"get":    func(o *gwapiv1.HTTPRoute) error { return api.Get(t.Context(), client.ObjectKeyFromObject(o), o) },
		"create": func(o *gwapiv1.HTTPRoute) error { return api.Create(t.Context(), o) },
		"update": func(o *gwapiv1.HTTPRoute) error { return api.Update(t.Context(), o) },
		"patch": func(o *gwapiv1.HTTPRoute) error {
			return api.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte("{}")))
		},
		"patch of the status": func(o *gwapiv1.HTTPRoute) error {
			return api.Status().Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte("{}")))
		},
	} {
		cached := &gwapiv1.HTTPRoute{}
		cached.Labels, cached.Spec.ParentRefs = map[string]string{"a": "b"}, []gwapiv1.ParentReference{{Name: "edge", SectionName: &section}}
		o := &gwapiv1.HTTPRoute{}
		o.Name, o.Namespace, o.Labels, o.Spec.ParentRefs = "web", "ns", cached.Labels, cached.Spec.ParentRefs
		if err := call(o); err != nil || o.Labels["a"] != "changed" || o.Spec.ParentRefs[0].Name != "changed" {
			t.Errorf("%s: %+v, error %v", name, o, err)
		}
		if ref := cached.Spec.ParentRefs[0]; cached.Labels["a"] != "b" || ref.Name != "edge" || section != "https" {
			t.Errorf("%s: the cache has the label %q and the parent %q/%q", name, cached.Labels["a"], ref.Name, section)
		}
	}
}
