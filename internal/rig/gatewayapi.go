package rig

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// GatewayAPI returns the definitions of kinds of the Gateway API, by their plurals, as they come with the library.
func GatewayAPI(t testing.TB, plurals ...string) []*unstructured.Unstructured {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	crds := []*unstructured.Unstructured{}
	for _, plural := range plurals {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "standard", "gateway.networking.k8s.io_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			t.Fatal(err)
		}
		crds = append(crds, crd)
	}
	return crds
}

// InstallGatewayAPI applies the definitions of kinds of the Gateway API, by their plurals, and waits until they are
// served.
func (w *World) InstallGatewayAPI(t testing.TB, plurals ...string) {
	t.Helper()
	for _, crd := range GatewayAPI(t, plurals...) {
		kind, _, err := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Client.Create(t.Context(), crd); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		Eventually(t, crd.GetName()+" is served", func(ctx context.Context) string {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: kind + "List"})
			if err := w.Client.List(ctx, list); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}
