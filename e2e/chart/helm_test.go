package chart_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"

	"chancery.dev/e2e/beside"
)

const (
	chartDir = "../../deploy/chart"
	// release is the name of a release, and of its namespace.
	release = "cert-manager"
)

// mustHelm fails the test if helm fails.
func mustHelm(t *testing.T, rc *rest.Config, args ...string) string {
	t.Helper()
	out, errors := beside.Helm(t, beside.Kubeconfig(t, t.TempDir(), rc), args...)
	if errors != "" {
		t.Fatalf("helm %v: %s", args, errors)
	}
	return out
}

// valuesFile writes values into a file.
func valuesFile(t *testing.T, values any) string {
	t.Helper()
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "values.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// template renders the chart as the release in its namespace.
func template(t *testing.T, args ...string) string {
	t.Helper()
	out, errors := beside.Helm(t, "", append([]string{"template", release, chartDir, "--namespace", release}, args...)...)
	if errors != "" {
		t.Fatalf("helm template %v: %s", args, errors)
	}
	return out
}
