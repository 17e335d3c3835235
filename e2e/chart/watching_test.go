package chart_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"chancery.dev/e2e/beside"
)

// TestWatching: the alerts and the dashboard come to Prometheus and Grafana as they are in the files, with the labels
// of the values, and only where they are wanted.
func TestWatching(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(chartDir, "files", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const at = "https://wiki.example.com/chancery.html"
	var alerts map[string]any
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(read("alerts.yaml"), "https://chancery.dev/docs/alerts", at)), &alerts); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, object := range beside.Objects(t, template(t, "--set", "chancery.prometheusRule.enabled=true,chancery.prometheusRule.labels.release=mine",
		"--set", "chancery.prometheusRule.runbook="+at+",chancery.grafanaDashboard.enabled=true")) {
		switch name := object.GetName(); {
		case object.GetKind() == "PrometheusRule":
			found[name] = object.GetLabels()["release"]
			if !reflect.DeepEqual(get(object.Object, []string{"spec"}), any(alerts)) {
				t.Errorf("the PrometheusRule has other rules than the file: %v", object.Object["spec"])
			}
		case name == "chancery-dashboard":
			found[name] = object.GetLabels()["grafana_dashboard"]
			if data, _ := get(object.Object, []string{"data", "chancery.json"}).(string); strings.TrimSpace(data) != strings.TrimSpace(read("dashboard.json")) {
				t.Error("the ConfigMap has another dashboard than the file")
			}
		}
	}
	if want := map[string]string{"cert-manager": "mine", "chancery-dashboard": "1"}; !reflect.DeepEqual(found, want) {
		t.Errorf("the objects and their labels are %v, not %v", found, want)
	}
	if out := template(t); strings.Contains(out, "PrometheusRule") || strings.Contains(out, "chancery-dashboard") {
		t.Error("they are there unasked")
	}
}
