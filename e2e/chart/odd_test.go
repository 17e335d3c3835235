package chart_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"chancery.dev/e2e/beside"
)

// TestLeaseNamespace: without a namespace for the leases, their Roles stay Roles in the namespace by default. A grant
// without a namespace would be one for the leases of the whole cluster.
func TestLeaseNamespace(t *testing.T) {
	for _, object := range beside.Objects(t, template(t, "--set", "global.leaderElection.namespace=")) {
		if strings.HasSuffix(object.GetName(), ":leaderelection") && (strings.HasPrefix(object.GetKind(), "Cluster") || object.GetNamespace() != "kube-system") {
			t.Errorf("%s %s is in the namespace %q", object.GetKind(), object.GetName(), object.GetNamespace())
		}
		if object.GetKind() != "Deployment" {
			continue
		}
		if text := fmt.Sprint(object.Object); strings.Contains(text, "--leader-election-namespace= ") {
			t.Errorf("%s has no namespace for its lease: %s", object.GetName(), text)
		}
	}
}

// TestResponderBudget: a budget has minAvailable or maxUnavailable. The API server takes none with both.
func TestResponderBudget(t *testing.T) {
	for set, want := range map[string]string{
		"replicaCount=2": "maxUnavailable:1", "podDisruptionBudget.minAvailable=": "maxUnavailable:1", "podDisruptionBudget.minAvailable=0": "minAvailable:0",
		"podDisruptionBudget.minAvailable=1": "minAvailable:1", "podDisruptionBudget.maxUnavailable=50%": "maxUnavailable:50%",
	} {
		for _, object := range beside.Objects(t, template(t, "--set", "chancery.responder."+set)) {
			if object.GetKind() != "PodDisruptionBudget" {
				continue
			}
			spec, _ := object.Object["spec"].(map[string]any)
			delete(spec, "selector")
			if got := fmt.Sprint(spec); got != "map["+want+"]" {
				t.Errorf("%s: the budget of %s is %s", set, object.GetName(), got)
			}
		}
	}
}

// TestMonitorLabels: a label of the values is there, also the one that has a default, and no labels are no error.
func TestMonitorLabels(t *testing.T) {
	for set, want := range map[string]string{"labels.prometheus=mine": "mine", "labels=null": "default", "prometheusInstance=mine": "mine"} {
		for _, kind := range []string{"ServiceMonitor", "PodMonitor"} {
			of := "prometheus." + strings.ToLower(kind) + "."
			found := ""
			for _, object := range beside.Objects(t, template(t, "--set", of+"enabled=true,"+of+set)) {
				if object.GetKind() == kind {
					found = object.GetLabels()["prometheus"]
				}
			}
			if found != want {
				t.Errorf("%s%s: the label is %q, want %q", of, set, found, want)
			}
		}
	}
}

// TestPodAnnotations: an annotation of the values is there once, and wins over the one that has Prometheus scrape the
// pods.
func TestPodAnnotations(t *testing.T) {
	out := template(t, "--set-string", `podAnnotations.prometheus\.io/scrape=false,podAnnotations.a=b`)
	for _, object := range beside.Objects(t, out) {
		if object.GetKind() != "Deployment" || object.GetName() != release {
			continue
		}
		want := map[string]any{"a": "b", "prometheus.io/path": "/metrics", "prometheus.io/port": "9402", "prometheus.io/scrape": "false"}
		if got := get(object.Object, []string{"spec", "template", "metadata", "annotations"}); !reflect.DeepEqual(got, want) {
			t.Errorf("the annotations of the pods are %v", got)
		}
	}
	if n := strings.Count(out, "prometheus.io/scrape"); n != strings.Count(out, "prometheus.io/path") {
		t.Errorf("a key is there twice: %d", n)
	}
}

// TestSettings: a setting that the admission policies do not have is refused. It would be ignored otherwise, and the
// check that somebody counts on would be off.
func TestSettings(t *testing.T) {
	settings := "chancery.admissionPolicies.settings."
	for set, want := range map[string]string{"caCertificate=reference": "'caCertificate' not allowed", "caCertificates=refer": "caCertificates"} {
		if _, errors := beside.Helm(t, "", "template", release, chartDir, "--set", settings+set); !strings.Contains(errors, want) {
			t.Errorf("%s: %q", set, errors)
		}
	}
	if out := template(t, "--set", settings+"caCertificates=reference"); !strings.Contains(out, "\n  caCertificates: reference\n") {
		t.Error("the setting is not rendered")
	}
}

// TestNoSigners: without a signer to approve for, every request would wait without a word.
func TestNoSigners(t *testing.T) {
	if _, errors := beside.Helm(t, "", "template", release, chartDir, "--set-json", "approveSignerNames=[]"); !strings.Contains(errors, "\napproveSignerNames: ") {
		t.Errorf("an empty list is not refused by its name: %q", errors)
	}
	template(t, "--set-json", "approveSignerNames=[]", "--set", "disableAutoApproval=true")
}

// TestReusedValues: with --reuse-values, helm puts the defaults of the older chart in the place of this chart's. The
// schema says which values are missing, before a template fails.
func TestReusedValues(t *testing.T) {
	for _, key := range []string{"admissionPolicies", "dns", "responder", "webhook"} {
		_, errors := beside.Helm(t, "", "template", release, chartDir, "--set", "chancery.image=x,chancery."+key+"=null")
		if !strings.Contains(errors, "'/chancery': missing property '"+key+"'") {
			t.Errorf("without chancery.%s: %q", key, errors)
		}
	}
}

// TestSolverImage: an argument that names the image of the solvers leads to cert-manager's program, as a value does.
func TestSolverImage(t *testing.T) {
	set := "extraArgs={--acme-http01-solver-image=quay.io/jetstack/cert-manager-acmesolver:v1.21.0}"
	if _, errors := beside.Helm(t, "", "template", release, chartDir, "--set", set); !strings.Contains(errors, "\nextraArgs: ") {
		t.Errorf("it is not refused by its name: %q", errors)
	}
	template(t, "--set", set+",chancery.image=registry.example.com/chancery:v1")
}

// TestSolverImageOfConfig: so does the field of the controller's configuration. With an image of Chancery, the field is
// honoured: an argument would win over it.
func TestSolverImageOfConfig(t *testing.T) {
	set := "config.acmeHTTP01Config.solverImage=registry.example.com/solver:v1"
	if _, errors := beside.Helm(t, "", "template", release, chartDir, "--set", set); !strings.Contains(errors, "\nconfig.acmeHTTP01Config.solverImage: ") {
		t.Errorf("it is not refused by its name: %q", errors)
	}
	if out := template(t, "--set", set+",chancery.image=registry.example.com/chancery:v1"); strings.Contains(out, "--acme-http01-solver-image") {
		t.Error("an argument wins over the configuration")
	}
}

// TestNulls: null, as after a key without a value, takes a default away. The schema names the key where something would
// be missing that the chart needs, or that makes something weaker; without all others, the chart renders.
func TestNulls(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	schema, own := map[string]any{}, map[string]any{}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile(filepath.Join(chartDir, "values.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &own); err != nil {
		t.Fatal(err)
	}
	optional := []string{"enabled", "podDisruptionBudget", "networkPolicy", "podSecurityPolicy", "validatingWebhookConfiguration", "automountServiceAccountToken"}
	nulls := map[string]any{"prometheus": map[string]any{"servicemonitor": map[string]any{"enabled": true}, "podmonitor": map[string]any{"enabled": true}}}
	var walk func(values, schema map[string]any, path []string)
	walk = func(values, schema map[string]any, path []string) {
		required, _ := schema["required"].([]any)
		for key, value := range values {
			at := append(slices.Clone(path), key)
			of, _ := get(schema, []string{"properties", key}).(map[string]any)
			inner, _ := value.(map[string]any)
			switch {
			case slices.Contains(required, any(key)):
				walk(inner, of, at)
			case (value == true || of["properties"] != nil && len(inner) > 0) && (len(path) > 0 && key == "enabled" || !slices.Contains(optional, key)):
				t.Errorf("%s may be null", strings.Join(at, "."))
			case key != "approveSignerNames" && get(nulls, at) == nil:
				set(nulls, at, nil)
			}
		}
	}
	walk(own, schema, nil)
	for _, object := range beside.Objects(t, template(t, "--set", "crds.enabled=true,chancery.dns.enabled=true", "--values", valuesFile(t, nulls))) {
		for line := range strings.SplitSeq(fmt.Sprint(object.Object), " ") {
			if strings.HasPrefix(line, "--") && strings.HasSuffix(line, "=") {
				t.Errorf("%s %s has %s", object.GetKind(), object.GetName(), line)
			}
		}
	}
	for _, key := range []string{"webhook", "global", "image"} {
		if _, errors := beside.Helm(t, "", "template", release, chartDir, "--set", key+"=null"); !strings.Contains(errors, "missing property '"+key+"'") {
			t.Errorf("%s=null: %q", key, errors)
		}
	}
	if _, errors := beside.Helm(t, "", "template", release, chartDir, "--set", "crds.keep=null"); !strings.Contains(errors, "'/crds': missing property 'keep'") {
		t.Errorf("crds.keep=null: %q", errors)
	}
}

// TestNamespaceTwice: a namespace that is named twice would get its Roles twice, which helm finds out half-way.
func TestNamespaceTwice(t *testing.T) {
	if _, errors := beside.Helm(t, "", "template", release, chartDir, "--set", "chancery.namespaces={a,a}"); !strings.Contains(errors, "'/chancery/namespaces'") {
		t.Errorf("it is not refused by its name: %q", errors)
	}
}

// TestNumericRelease: a release and its namespace may be called by numbers. Both are strings all the same.
func TestNumericRelease(t *testing.T) {
	out, errors := beside.Helm(t, "", "template", "123", chartDir, "--namespace", "456",
		"--set", "prometheus.servicemonitor.enabled=true,prometheus.servicemonitor.namespace=monitoring")
	if errors != "" {
		t.Fatal(errors)
	}
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasSuffix(line, ": 123") || strings.Contains(line, "[123]") || strings.HasSuffix(line, ": 456") || strings.Contains(line, "[456]") {
			t.Errorf("a name is a number, which the API server refuses: %s", line)
		}
	}
}

// TestDefinitionLabels: the definitions have the labels that everything of cert-manager's chart has (spec §11.1).
func TestDefinitionLabels(t *testing.T) {
	for _, object := range beside.Objects(t, template(t, "--set", "crds.enabled=true")) {
		if labels := object.GetLabels(); object.GetKind() == "CustomResourceDefinition" && labels["app"] != "cert-manager" {
			t.Errorf("%s has the labels %v", object.GetName(), labels)
		}
	}
}
