package externalissuers

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"chancery.dev/api"
)

// TestServerIsAway: while the API server of a group is away, the entries of the group stay; those of a group that is
// not served go. Once it is back, what it serves counts.
func TestServerIsAway(t *testing.T) {
	group := func(name string, freshness apidiscoveryv2.DiscoveryFreshness, kind, plural string) apidiscoveryv2.APIGroupDiscovery {
		version := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: freshness}
		if kind != "" {
			version.Resources = []apidiscoveryv2.APIResourceDiscovery{{
				Resource: plural, ResponseKind: &metav1.GroupVersionKind{Kind: kind}, Scope: apidiscoveryv2.ScopeCluster,
			}}
		}
		return apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: []apidiscoveryv2.APIVersionDiscovery{version}}
	}
	served := group("away.example.com", apidiscoveryv2.DiscoveryFreshnessStale, "", "")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		list := &apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"}}
		if req.URL.Path == "/apis" {
			list.Items = []apidiscoveryv2.APIGroupDiscovery{group("here.example.com", apidiscoveryv2.DiscoveryFreshnessCurrent, "Ox", "oxen"), served}
		}
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	k, err := New(Options{Config: &rest.Config{Host: server.URL}, HTTP: server.Client(), Namespace: api.ExternalIssuersNamespace})
	if err != nil {
		t.Fatal(err)
	}
	err = k.table.GetStore().Add(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ExternalIssuersNamespace, Name: api.ExternalIssuersName},
		Data:       map[string]string{"Cow.away.example.com": "kine Namespaced", "Old.gone.example.com": "oldies Cluster"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what string
		do   func()
		want map[string]string
	}{
		{"away", func() {}, map[string]string{"Ox.here.example.com": "oxen Cluster", "Cow.away.example.com": "kine Namespaced"}},
		{"a definition is made", func() { k.entries["Goose.new.example.com"] = "geese Cluster" }, map[string]string{
			"Ox.here.example.com": "oxen Cluster", "Cow.away.example.com": "kine Namespaced", "Goose.new.example.com": "geese Cluster",
		}},
		{"back", func() { served = group("away.example.com", apidiscoveryv2.DiscoveryFreshnessCurrent, "Cow", "cattle") }, map[string]string{
			"Ox.here.example.com": "oxen Cluster", "Cow.away.example.com": "cattle Cluster", "Goose.new.example.com": "geese Cluster",
		}},
	} {
		step.do()
		if err := k.discover(); err != nil || !maps.Equal(k.entries, step.want) || k.away != (step.what != "back") {
			t.Errorf("%s: %v, %q, away %t", step.what, err, k.entries, k.away)
		}
	}
}

// TestDefinitionMadeAnew: a definition that was deleted and made anew by the same name is read again, though no event
// has told of its end and its generation is the same.
func TestDefinitionMadeAnew(t *testing.T) {
	const name = "oxen.new.example.com"
	scope := ""
	reader := interceptor.NewClient(nil, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			crd := obj.(*unstructured.Unstructured)
			crd.SetUID(types.UID(scope))
			crd.SetGeneration(1)
			crd.Object["spec"] = map[string]any{
				"group": "new.example.com", "scope": scope, "names": map[string]any{"kind": "Ox", "plural": "oxen"},
			}
			return nil
		},
	})
	k, err := New(Options{Config: &rest.Config{Host: "http://unused.invalid"}, HTTP: http.DefaultClient, Reader: reader})
	if err != nil {
		t.Fatal(err)
	}
	k.entries = map[string]string{}
	for _, scope = range []string{"Namespaced", "Cluster"} {
		object, err := thin(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(scope), Generation: 1}})
		if err == nil {
			err = k.crds.GetStore().Add(object)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.learn(t.Context(), name); err != nil || k.entries["Ox.new.example.com"] != "oxen "+scope {
			t.Errorf("%s: %v, %q", scope, err, k.entries)
		}
	}
}
