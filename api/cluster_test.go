package api_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"chancery.dev/api"
	"chancery.dev/internal/rig"
)

// patience bounds every wait of these tests. The machine may be starved.
const patience = 2 * time.Minute

// clusterOf starts the control plane that all tests of this package share, at the first call.
var clusterOf = sync.OnceValues(func() (*cluster, error) {
	c, err := startCluster()
	started.Store(c)
	return c, err
})

// started is the control plane that TestMain has to end, if there is one.
var started atomic.Pointer[cluster]

// cluster is a control plane with our CRDs and policies.
type cluster struct {
	config *rest.Config
	stop   func()
	ready  sync.Once // policies at work
}

func TestMain(m *testing.M) {
	code := m.Run()
	if c := started.Load(); c != nil {
		c.stop()
	}
	os.Exit(code)
}

// client returns an administrator's client of the shared control plane, once its policies are at work.
func client(t *testing.T) dynamic.Interface {
	t.Helper()
	d := clientAs(t, "")
	c, err := clusterOf()
	if err != nil {
		t.Fatal(err)
	}
	c.ready.Do(func() { waitForPolicies(t, d) })
	return d
}

// clientAs returns a client that acts as a user, or as the administrator.
func clientAs(t *testing.T, user string) dynamic.Interface {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: this test needs an API server")
	}
	c, err := clusterOf()
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(c.config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: user, UID: "uid-of-" + user,
			Groups: []string{"testers", "system:authenticated"},
			Extra:  map[string][]string{"example.com/scopes": {"one", "two"}},
		}
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func startCluster() (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	rc, stop, err := rig.Own(ctx)
	if err != nil {
		return nil, err
	}
	if err := install(ctx, rc); err != nil {
		stop()
		return nil, err
	}
	return &cluster{config: rc, stop: stop}, nil
}

// install applies what this package embeds, and waits until the API server serves it.
func install(ctx context.Context, config *rest.Config) error {
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	crds, err := api.CRDs()
	if err != nil {
		return err
	}
	resource := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	for _, crd := range crds {
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			return err
		}
		if err := apply(ctx, d, resource, &unstructured.Unstructured{Object: o}); err != nil {
			return err
		}
	}
	policies, err := api.Policies()
	if err != nil {
		return err
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": api.ExternalIssuersNamespace},
	}}
	table := &unstructured.Unstructured{Object: map[string]any{ // the controller keeps it
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": api.ExternalIssuersName, "namespace": api.ExternalIssuersNamespace},
		"data": map[string]any{
			"StepIssuer.certmanager.step.sm":        "stepissuers Namespaced",
			"StepClusterIssuer.certmanager.step.sm": "stepclusterissuers Cluster",
		},
	}}
	for _, p := range append([]*unstructured.Unstructured{namespace, table}, policies...) {
		gvr := p.GroupVersionKind().GroupVersion().WithResource(resourceOf(p.GetKind()))
		if err := apply(ctx, d, gvr, p); err != nil {
			return err
		}
	}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, crd := range crds {
			gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: "v1", Resource: crd.Spec.Names.Plural}
			if _, err := d.Resource(gvr).List(ctx, metav1.ListOptions{}); err != nil {
				return false, nil //nolint:nilerr // not served yet
			}
		}
		return true, nil
	})
}

// resourceOf returns the plural of a kind.
func resourceOf(kind string) string {
	plural := strings.ToLower(kind)
	if before, ok := strings.CutSuffix(plural, "y"); ok {
		return before + "ies"
	}
	return plural + "s"
}

func apply(ctx context.Context, d dynamic.Interface, gvr schema.GroupVersionResource, o *unstructured.Unstructured) error {
	unstructured.RemoveNestedField(o.Object, "status")
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	r := dynamic.ResourceInterface(d.Resource(gvr))
	if o.GetNamespace() != "" {
		r = d.Resource(gvr).Namespace(o.GetNamespace())
	}
	_, err := r.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// resourceFor returns the resource of an object, in a namespace if its kind has them.
func resourceFor(d dynamic.Interface, o *unstructured.Unstructured) dynamic.ResourceInterface {
	r := d.Resource(o.GroupVersionKind().GroupVersion().WithResource(resourceOf(o.GetKind())))
	if o.GetKind() == "ClusterIssuer" {
		return r
	}
	return r.Namespace("default")
}
