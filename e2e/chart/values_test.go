package chart_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"chancery.dev/e2e/beside"
	"chancery.dev/internal/rig"
)

// What becomes of a value. Every key of cert-manager's chart that is in neither table changes what is rendered.
var (
	// refused are keys without which something would silently become weaker, or run another program.
	refused = []string{
		"image.name", "image.repository", "image.tag", "image.digest",
		"webhook.image.name", "webhook.image.repository", "webhook.image.tag", "webhook.image.digest",
		"cainjector.image.name", "cainjector.image.repository", "cainjector.image.tag", "cainjector.image.digest",
		"acmesolver.image.name", "acmesolver.image.repository", "acmesolver.image.tag", "acmesolver.image.digest",
		"startupapicheck.image.name", "startupapicheck.image.repository", "startupapicheck.image.tag", "startupapicheck.image.digest",
	}
	// noted are keys that have no meaning here.
	noted = []string{
		"enabled", "global.podSecurityPolicy.enabled", "global.podSecurityPolicy.useAppArmor", "acmesolver.image.pullPolicy",
		"webhook.replicaCount", "webhook.timeoutSeconds", "webhook.config", "webhook.url",
		"webhook.validatingWebhookConfiguration.namespaceSelector.matchExpressions",
		"webhook.mutatingWebhookConfiguration.namespaceSelector",
		"webhook.mutatingWebhookConfigurationAnnotations", "webhook.validatingWebhookConfigurationAnnotations",
		"webhook.enableClientVerification", "webhook.clientCAFile", "webhook.apiserverClientCertSubjects",
	}
	// values are those that cannot be made up from the default.
	values = map[string]any{
		"webhook.url": map[string]any{"host": "changed"}, "ingressShim": map[string]any{"defaultIssuerName": "changed"},
		"extraObjects": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "changed"}}},
	}
	// lists are the items of lists, by the last word of the key.
	lists = map[string]any{
		"extraArgs": "--changed", "imagePullSecrets": map[string]any{"name": "changed"}, "approveSignerNames": "changed.example.com/*",
		"serviceIPFamilies": "IPv6",
	}
)

// defaults reads the keys and defaults of cert-manager's chart from the specification, and the keys without a default.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("../../docs/spec/11-installation.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## 11.2")
	_, block, _ := strings.Cut(section, "```\n")
	block, _, _ = strings.Cut(block, "\n```")
	out := map[string]any{}
	for line := range strings.SplitSeq(strings.ReplaceAll(block, "\n    ", " "), "\n") {
		key, value, _ := strings.Cut(line, "=")
		var parsed any
		if err := json.Unmarshal([]byte(value), &parsed); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out[key] = parsed
	}
	if len(out) < 200 {
		t.Fatalf("the specification has %d keys only", len(out))
	}
	return out
}

// withoutDefault are the keys that the specification names in a sentence, with a value each.
func withoutDefault() map[string]any {
	named := map[string]any{"a.example.com/b": "changed"}
	out := map[string]any{
		"global.revisionHistoryLimit": 1, "global.hostUsers": false, "fullnameOverride": "changed", "nameOverride": "changed",
		"global.leaderElection.leaseDuration": "5m", "global.leaderElection.renewDeadline": "3m", "global.leaderElection.retryPeriod": "1m",
		"podDnsPolicy": "None", "podDnsConfig": map[string]any{"nameservers": []any{"192.0.2.1"}},
		"ingressShim.defaultIssuerName": "changed", "ingressShim.defaultIssuerKind": "changed", "ingressShim.defaultIssuerGroup": "changed",
		"http_proxy": "changed", "https_proxy": "changed", "no_proxy": "changed",
		"prometheus.servicemonitor.namespace": "changed", "prometheus.podmonitor.namespace": "changed",
		"webhook.mutatingWebhookConfigurationAnnotations": named, "webhook.validatingWebhookConfigurationAnnotations": named,
		"webhook.loadBalancerIP": "192.0.2.1", "startupapicheck.ttlSecondsAfterFinished": 1,
	}
	for _, component := range []string{"", "webhook.", "cainjector.", "startupapicheck.", "acmesolver."} {
		for _, key := range []string{"registry", "tag", "digest"} {
			out[component+"image."+key] = "changed"
		}
		if component == "acmesolver." {
			continue
		}
		out[component+"serviceAccount.name"], out[component+"automountServiceAccountToken"] = "changed", false
		for _, key := range []string{"serviceAccount.annotations", "serviceAccount.labels", "podAnnotations"} {
			out[component+key] = named
		}
		if component == "startupapicheck." {
			continue
		}
		out[component+"podDisruptionBudget.minAvailable"], out[component+"podDisruptionBudget.maxUnavailable"] = 2, "50%"
		out[component+"podDisruptionBudget.unhealthyPodEvictionPolicy"] = "AlwaysAllow"
		out[component+"serviceIPFamilyPolicy"], out[component+"serviceIPFamilies"] = "PreferDualStack", []any{"IPv6"}
		for _, key := range []string{"deploymentAnnotations", "serviceAnnotations", "serviceLabels"} {
			out[component+key] = named
		}
	}
	return out
}

// path splits a key where its dots are no part of a label or an annotation.
func path(key string) []string {
	for _, domain := range []string{"kubernetes.io/", "helm.sh/"} {
		if before, after, found := strings.Cut(key, "."+domain); found {
			return append(strings.Split(before, "."), domain+after)
		}
	}
	return strings.Split(key, ".")
}

// set puts a value at a path.
func set(into map[string]any, path []string, value any) {
	for _, word := range path[:len(path)-1] {
		next, is := into[word].(map[string]any)
		if !is {
			next = map[string]any{}
			into[word] = next
		}
		into = next
	}
	into[path[len(path)-1]] = value
}

// get returns the value at a path.
func get(from map[string]any, path []string) any {
	var value any = from
	for _, word := range path {
		m, _ := value.(map[string]any)
		value = m[word]
	}
	return value
}

// changed is another value than the default.
func changed(key string, value any) any {
	if value, is := values[key]; is {
		return value
	}
	switch value := value.(type) {
	case bool:
		return !value
	case float64:
		return value + 1
	case []any:
		if item, is := lists[path(key)[len(path(key))-1]]; is {
			return []any{item}
		}
		return []any{map[string]any{"name": "changed", "key": "changed"}}
	case map[string]any:
		return map[string]any{"a.example.com/b": "changed"}
	}
	if strings.HasSuffix(key, "Policy") || strings.HasSuffix(key, "erviceType") {
		return "Changed"
	}
	return "changed"
}

// TestValues: each key of cert-manager's chart is known, has its default, and changes what is rendered, or NOTES says
// that it has no effect, or it is refused by its name.
func TestValues(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]any{}
	if err := yaml.Unmarshal(text, &own); err != nil {
		t.Fatal(err)
	}
	keys := withoutDefault()
	for key, want := range defaults(t) {
		if got := get(own, path(key)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v by default, and %v in cert-manager's chart", key, got, want)
		}
		keys[key] = changed(key, want)
	}
	kubeconfig := beside.Kubeconfig(t, t.TempDir(), rig.Cluster(t))
	install := func(t *testing.T, values any) string {
		t.Helper()
		out, errors := beside.Helm(t, kubeconfig, "install", release, chartDir, "--namespace", release, "--dry-run=client", "--take-ownership", "--values", valuesFile(t, values))
		_, notes, _ := strings.Cut(out, "\nNOTES:\n")
		return notes + errors
	}
	var plain sync.Map // what is rendered without a key
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			with := map[string]any{}
			words := path(key)
			for i := range words { // what the key belongs to is switched on
				enabled := append(slices.Clone(words[:i]), "enabled")
				if is, found := get(own, enabled).(bool); found && !is && !slices.Equal(enabled, words) {
					set(with, enabled, true)
				}
			}
			before, known := plain.Load(fmt.Sprint(with))
			if !known {
				before = template(t, "--values", valuesFile(t, with))
				plain.Store(fmt.Sprint(with), before)
			}
			set(with, words, keys[key])
			after, errors := beside.Helm(t, "", "template", release, chartDir, "--namespace", release, "--values", valuesFile(t, with))
			switch {
			case slices.Contains(refused, key):
				if !strings.Contains(errors, "\n"+key+": ") {
					t.Errorf("%s=%v is not refused by its name: %s", key, keys[key], errors)
				}
			case errors != "":
				t.Errorf("%s=%v: %s", key, keys[key], errors)
			case slices.Contains(noted, key):
				short := strings.TrimSuffix(key, ".matchExpressions")
				if said := install(t, with); !strings.Contains(said, "\n"+short+" has no effect: ") {
					t.Errorf("%s=%v: NOTES say nothing of it: %s", key, keys[key], said)
				}
				if after != before {
					t.Errorf("%s=%v changes what is rendered, and NOTES say that it has no effect", key, keys[key])
				}
			case after == before:
				t.Errorf("%s=%v changes nothing, and NOTES do not say so", key, keys[key])
			}
		})
	}
	for _, key := range slices.Concat(refused, noted) {
		if _, known := keys[key]; !known {
			t.Errorf("%s is no key of cert-manager's chart", key)
		}
	}
}

// TestUnknownValues: a key that neither chart has is refused, as cert-manager's chart does; keys of the parent chart in
// global are not.
func TestUnknownValues(t *testing.T) {
	for _, key := range []string{"replicas", "webhook.replicas", "prometheus.servicemonitor.period", "chancery.images", "ingressShim.defaultIssuer"} {
		with := map[string]any{}
		set(with, path(key), "changed")
		last := path(key)[len(path(key))-1]
		if _, errors := beside.Helm(t, "", "template", release, chartDir, "--values", valuesFile(t, with)); !strings.Contains(errors, "'"+last+"' not allowed") {
			t.Errorf("%s: %q", key, errors)
		}
	}
	template(t, "--set", "global.ofTheParent=1")
}

// TestImages: the image is Chancery's wherever a values file leads.
func TestImages(t *testing.T) {
	version := "latest"
	for _, c := range []struct{ set, want string }{
		{"", "localhost/chancery:" + version},
		{"imageRegistry=registry.example.com", "registry.example.com/jetstack/chancery:" + version},
		{"imageRegistry=registry.example.com,imageNamespace=", "registry.example.com/chancery:" + version},
		{"imageNamespace=mirror/certs", "quay.io/mirror/certs/chancery:" + version},
		{"image.registry=registry.example.com", "registry.example.com/jetstack/chancery:" + version},
		{"chancery.image=registry.example.com/chancery@sha256:0,image.repository=quay.io/jetstack/cert-manager-controller,image.tag=v1.21.0", "registry.example.com/chancery@sha256:0"},
	} {
		for _, object := range beside.Objects(t, template(t, "--set", c.set)) {
			if object.GetKind() != "Deployment" || object.GetName() != release {
				continue
			}
			containers := get(object.Object, []string{"spec", "template", "spec", "containers"}).([]any)
			container := containers[0].(map[string]any)
			args := fmt.Sprint(container["args"])
			if !strings.HasPrefix(c.set, "image.registry") && !strings.Contains(args, "--acme-http01-solver-image="+c.want+" ") || container["image"] != c.want {
				t.Errorf("%s: the image is %s, the arguments are %s, want %s", c.set, container["image"], args, c.want)
			}
		}
	}
}
