package chart_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/e2e/beside"
	"chancery.dev/internal/rig"
)

// TestNames: the objects of cert-manager's chart are there under their names, with its labels, selectors and ports
// (spec §11.1): dashboards, policies and scripts go by them.
func TestNames(t *testing.T) {
	for _, r := range []struct{ release, fullname string }{{"cert-manager", "cert-manager"}, {"prod", "prod-cert-manager"}} {
		out, errors := beside.Helm(t, "", "template", r.release, chartDir, "--namespace", "certs")
		if errors != "" {
			t.Fatal(errors)
		}
		found := map[string]*unstructured.Unstructured{}
		for _, object := range beside.Objects(t, out) {
			found[object.GetKind()+" "+object.GetName()] = object
			if labels := object.GetLabels(); labels["app.kubernetes.io/instance"] != r.release || labels["app"] != labels["app.kubernetes.io/name"] || labels["helm.sh/chart"] == "" {
				t.Errorf("%s %s has the labels %v", object.GetKind(), object.GetName(), labels)
			}
		}
		for suffix, component := range map[string]string{"": "controller", "-cainjector": "cainjector", "-webhook": "webhook"} {
			for _, kind := range []string{"Deployment", "Service", "ServiceAccount"} {
				if found[kind+" "+r.fullname+suffix] == nil {
					t.Errorf("there is no %s %s", kind, r.fullname+suffix)
				}
			}
			app := component
			if component == "controller" {
				app = "cert-manager"
			}
			want := map[string]any{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": r.release, "app.kubernetes.io/component": component}
			if got := get(found["Deployment "+r.fullname+suffix].Object, []string{"spec", "selector", "matchLabels"}); !reflect.DeepEqual(got, want) {
				t.Errorf("%s selects %v, which cannot be changed, and cert-manager's %v", r.fullname+suffix, got, want)
			}
		}
		for _, name := range []string{
			"Job " + r.fullname + "-startupapicheck", "Role " + r.fullname + "-startupapicheck:create-cert",
			"Role " + r.fullname + ":leaderelection", "Role " + r.fullname + "-cainjector:leaderelection",
			"ClusterRole " + r.fullname + "-view", "ClusterRole " + r.fullname + "-edit", "ClusterRole " + r.fullname + "-cluster-view",
		} {
			if found[name] == nil {
				t.Errorf("there is no %s", name)
			}
		}
		pod := fmt.Sprint(get(found["Deployment "+r.fullname].Object, []string{"spec", "template", "spec", "containers"}))
		for _, want := range []string{
			"name:cert-manager-controller", "containerPort:9402 name:http-metrics", "containerPort:9403 name:http-healthz", "path:/livez",
			"controller --v=2 --cluster-resource-namespace=$(POD_NAMESPACE)", "--leader-election-namespace=kube-system", "--max-concurrent-challenges=60",
		} {
			if !strings.Contains(pod, want) {
				t.Errorf("the controller's container has no %s: %s", want, pod)
			}
		}
	}
}

// TestPolicies: the admission policies and definitions are those of chancery install, with their bindings.
func TestPolicies(t *testing.T) {
	found := map[string]map[string]any{}
	for _, object := range beside.Objects(t, template(t, "--set", "crds.enabled=true")) {
		object.SetLabels(nil)
		annotations := object.GetAnnotations()
		if object.GetKind() == "CustomResourceDefinition" {
			delete(annotations, "helm.sh/resource-policy") // crds.keep
		}
		if len(annotations) == 0 {
			annotations = nil
		}
		object.SetAnnotations(annotations)
		found[object.GetKind()+" "+object.GetName()] = object.Object
	}
	policies, err := api.Policies()
	if err != nil {
		t.Fatal(err)
	}
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			t.Fatal(err)
		}
		name := "CustomResourceDefinition " + crd.Name
		got := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found[name], got); err != nil {
			t.Fatal(name, err)
		}
		rendered, err := runtime.DefaultUnstructuredConverter.ToUnstructured(got)
		if err != nil || !reflect.DeepEqual(rendered, object) {
			t.Errorf("%s is not that of chancery install: %v", name, err)
		}
	}
	for _, policy := range policies {
		if got := found[policy.GetKind()+" "+policy.GetName()]; !reflect.DeepEqual(got, withoutNamespace(policy)) && !reflect.DeepEqual(got, policy.Object) {
			t.Errorf("%s %s is\n%v\nand with chancery install\n%v", policy.GetKind(), policy.GetName(), got, policy.Object)
		}
	}
}

func withoutNamespace(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	object.SetNamespace("")
	return object.Object
}

// TestApply: what values files of real life render is taken by the API server, by server-side apply, in a namespace
// that enforces the restricted Pod Security Standard, and so are the pods.
func TestApply(t *testing.T) {
	rc := rig.BareCluster(t)
	c, err := client.New(rc, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, plural := range []string{"servicemonitors", "podmonitors"} {
		beside.ApplyServerSide(t, c, &unstructured.Unstructured{Object: definition("monitoring.coreos.com", plural)})
	}
	for _, namespace := range []string{release, "monitoring", "team-a", "team-b", "pki"} {
		beside.ApplyServerSide(t, c, namespaceOf(namespace))
	}
	files, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range append([]string{filepath.Join(chartDir, "values.yaml")}, files...) {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			beside.ApplyServerSide(t, c, namespaceOf(name))
			out, errors := beside.Helm(t, "", "template", release, chartDir, "--namespace", name, "--values", file)
			if errors != "" {
				t.Fatal(errors)
			}
			for _, object := range beside.Objects(t, out) {
				if namespaced, err := c.IsObjectNamespaced(object); err == nil && namespaced && object.GetNamespace() == "" {
					object.SetNamespace(name) // as helm does
				}
				beside.ApplyServerSide(t, c, object)
				if template, found, _ := unstructured.NestedMap(object.Object, "spec", "template"); found {
					pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}}
					pod.SetNamespace(name)
					pod.SetName("try")
					if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
						t.Errorf("a pod of %s: %v", object.GetName(), err)
					}
				}
			}
		})
	}
}

// namespaceOf is a namespace that takes restricted pods only.
func namespaceOf(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	object.SetName(name)
	object.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	return object
}

// definition is that of a kind whose objects may have any content.
func definition(group, plural string) map[string]any {
	kind := map[string]string{"servicemonitors": "ServiceMonitor", "podmonitors": "PodMonitor"}[plural]
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}
}

// TestWebhook: before Kubernetes 1.36 the webhook has pods, and its values have an effect. The API server takes what is
// rendered.
func TestWebhook(t *testing.T) {
	c, err := client.New(rig.Cluster(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	beside.ApplyServerSide(t, c, namespaceOf("certs"))
	render := func(set string) string {
		t.Helper()
		out, errors := beside.Helm(t, "", "template", "old", chartDir, "--namespace", "certs", "--kube-version", "1.35", "--set", set)
		if errors != "" {
			t.Fatal(errors)
		}
		return out
	}
	plain := render("")
	for _, set := range []string{
		"webhook.replicaCount=2", "webhook.timeoutSeconds=5", "webhook.config.logging.format=json", "webhook.url.host=certs.example.com",
		"webhook.mutatingWebhookConfiguration.namespaceSelector.matchLabels.a=b", "webhook.mutatingWebhookConfigurationAnnotations.a=b",
		"chancery.webhook.failurePolicy=Fail",
	} {
		if render(set) == plain {
			t.Errorf("%s changes nothing", set)
		}
	}
	for _, object := range beside.Objects(t, plain) {
		if strings.HasPrefix(object.GetKind(), "MutatingAdmissionPolicy") {
			t.Errorf("%s %s: Kubernetes 1.35 does not serve it", object.GetKind(), object.GetName())
		}
		if !strings.Contains(object.GetName(), "webhook") {
			continue
		}
		beside.ApplyServerSide(t, c, object)
		if object.GetKind() == "Deployment" && fmt.Sprint(get(object.Object, []string{"spec", "replicas"})) != "1" {
			t.Errorf("the webhook has %v pods", get(object.Object, []string{"spec", "replicas"}))
		}
		if object.GetKind() == "MutatingWebhookConfiguration" && !strings.Contains(fmt.Sprint(object.Object), "system:serviceaccount:certs:old-cert-manager'") {
			t.Errorf("the webhook is asked about the controller's own requests: %v", object.Object)
		}
	}
}
