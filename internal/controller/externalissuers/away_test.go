package externalissuers

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
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

// applied says that somebody has applied these entries.
func applied(manager string, kinds ...string) metav1.ManagedFieldsEntry {
	fields := []string{`".":{}`}
	for _, kind := range kinds {
		fields = append(fields, `"f:`+kind+`":{}`)
	}
	set := metav1.NewFieldsV1(`{"f:data":{` + strings.Join(fields, ",") + `}}`)
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: set}
}

// TestUpToDate: the table is written if and only if an entry that is ours is not what it is to be.
func TestUpToDate(t *testing.T) {
	t.Parallel()
	k, err := New(Options{Config: &rest.Config{Host: "http://unused.invalid"}, HTTP: http.DefaultClient, Namespace: api.ExternalIssuersNamespace})
	if err != nil {
		t.Fatal(err)
	}
	k.entries = map[string]string{"Ox.x.example.com": "oxen Cluster", "Cow.x.example.com": "kine Cluster"}
	const ox, cow, old = "Ox.x.example.com", "Cow.x.example.com", "Old.x.example.com"
	for what, table := range map[string]struct {
		ours, theirs []string
		data         map[string]string
		want         bool
	}{
		"as it should be":                       {[]string{ox, cow}, nil, k.entries, true},
		"another's entry beside ours":           {[]string{ox, cow}, []string{old}, map[string]string{ox: "oxen Cluster", cow: "kine Cluster", old: "x"}, true},
		"another has set one otherwise":         {[]string{ox}, []string{cow}, map[string]string{ox: "oxen Cluster", cow: "cattle Cluster"}, true},
		"another has set one as we would":       {[]string{ox}, []string{cow}, k.entries, false},
		"one is missing":                        {[]string{ox}, nil, map[string]string{ox: "oxen Cluster"}, false},
		"one is over":                           {[]string{ox, cow, old}, nil, map[string]string{ox: "oxen Cluster", cow: "kine Cluster", old: "x"}, false},
		"one has another value":                 {[]string{ox, cow}, nil, map[string]string{ox: "oxen Cluster", cow: "kine Namespaced"}, false},
		"one is nobody's and has another value": {[]string{ox}, nil, map[string]string{ox: "oxen Cluster", cow: "kine Namespaced"}, false},
	} {
		err := k.table.GetStore().Replace([]any{&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: api.ExternalIssuersNamespace, Name: api.ExternalIssuersName, ManagedFields: []metav1.ManagedFieldsEntry{
				applied("somebody", table.theirs...), applied(Owner, table.ours...), {Manager: "no fields"},
			}},
			Data: table.data,
		}}, "")
		if got := k.upToDate(); err != nil || got != table.want {
			t.Errorf("%s: %v, %t", what, err, got)
		}
	}
}

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
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ExternalIssuersNamespace, Name: api.ExternalIssuersName, ManagedFields: []metav1.ManagedFieldsEntry{
			applied(Owner, "Cow.away.example.com", "Old.gone.example.com"), applied("somebody", "Policy.away.example.com"),
		}},
		Data: map[string]string{
			"Cow.away.example.com": "kine Namespaced", "Old.gone.example.com": "oldies Cluster", "Policy.away.example.com": "policies Cluster",
		},
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
		if err := k.learn(t.Context(), name); err != nil || k.entries["Ox.new.example.com"] != "oxen "+scope {
			t.Errorf("%s: %v, %q", scope, err, k.entries)
		}
	}
}
