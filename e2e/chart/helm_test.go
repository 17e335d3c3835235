package chart_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"chancery.dev/e2e/beside"
)

const (
	chartDir = "../../deploy/chart"
	// release is the name of a release, and of its namespace.
	release = "cert-manager"
)

// helm runs helm with a kubeconfig, and returns what it prints; errors is what it says of its failure.
func helm(t *testing.T, kubeconfig string, args ...string) (out, errors string) {
	t.Helper()
	binary := os.Getenv("CHANCERY_HELM_BIN")
	if binary == "" {
		t.Fatal("CHANCERY_HELM_BIN names no program: run make e2e-chart")
	}
	home := filepath.Join(os.TempDir(), "chancery-helm")
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		_, said, _ := strings.Cut(stderr.String(), "Error: ") // the lines before tell of the links in the chart
		return stdout.String(), err.Error() + ": " + said
	}
	return stdout.String(), ""
}

// mustHelm fails the test if helm fails.
func mustHelm(t *testing.T, rc *rest.Config, args ...string) string {
	t.Helper()
	out, errors := helm(t, beside.Kubeconfig(t, t.TempDir(), rc), args...)
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
	out, errors := helm(t, "", append([]string{"template", release, chartDir, "--namespace", release}, args...)...)
	if errors != "" {
		t.Fatalf("helm template %v: %s", args, errors)
	}
	return out
}

// objects reads what was rendered.
func objects(t *testing.T, rendered string) (out []*unstructured.Unstructured) {
	t.Helper()
	for document := range bytes.SplitSeq([]byte(rendered), []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
	return out
}
