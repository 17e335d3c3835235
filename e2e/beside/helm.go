package beside

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"chancery.dev/internal/rig"
)

// Helm runs helm with a kubeconfig, and returns what it prints; errors is what it says of its failure.
func Helm(t *testing.T, kubeconfig string, args ...string) (out, errors string) {
	t.Helper()
	binary := os.Getenv("CHANCERY_HELM_BIN")
	if binary == "" {
		t.Fatal("CHANCERY_HELM_BIN names no program: run this test by its make target")
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

// Objects reads what helm has rendered.
func Objects(t *testing.T, rendered string) (out []*unstructured.Unstructured) {
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

// ApplyServerSide applies an object as "kubectl apply --server-side" does. A kind that was defined a moment ago may
// take another moment.
func ApplyServerSide(t *testing.T, c client.Client, object *unstructured.Unstructured) {
	t.Helper()
	rig.Eventually(t, object.GetKind()+" "+object.GetName()+" is applied", func(ctx context.Context) string {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("stranger"))
		if meta.IsNoMatchError(err) {
			return err.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		return ""
	})
}
