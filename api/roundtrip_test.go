package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// requester are the fields of a CertificateRequest that the API server overwrites.
func requester() []string { return []string{"username", "uid", "groups", "extra"} }

func TestServerKeepsEveryField(t *testing.T) {
	roundTrip(t, fullObjects(t))
}

// TestTakeover restores what a live cert-manager 1.21 left behind, which knew no renewalInformationSource.
func TestTakeover(t *testing.T) {
	objects := load(t, "testdata/takeover.yaml")
	for _, o := range objects {
		if _, ok, _ := unstructured.NestedMap(o.Object, "spec", "acme"); ok {
			edit(t, o, changes{"spec.acme.renewalInformationSource": "ARI"})
		}
	}
	roundTrip(t, objects)
}

// roundTrip makes objects with their statuses, and checks that nothing is lost or changed.
func roundTrip(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	d := client(t)
	for _, want := range objects {
		name := strings.ToLower(want.GetKind()) + "-" + want.GetName()
		t.Run(name, func(t *testing.T) {
			o := want.DeepCopy()
			o.SetName("")
			o.SetGenerateName(name + "-")
			o.SetFinalizers(nil)
			r := resourceFor(d, o)
			got, err := r.Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := want.Object["status"]; ok {
				got.Object["status"] = want.Object["status"]
				if got, err = r.UpdateStatus(t.Context(), got, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
					t.Fatal(err)
				}
			}
			got.SetLabels(map[string]string{"example.com/touched": "true"})
			if got, err = r.Update(t.Context(), got, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
				t.Fatalf("it cannot be updated: %v", err)
			}
			expected := want.DeepCopy()
			if _, ok := want.Object["status"]; !ok && slices.Contains([]string{"Certificate", "Issuer", "ClusterIssuer"}, want.GetKind()) {
				expected.Object["status"] = map[string]any{"observedGeneration": int64(0)}
			}
			if want.GetKind() == "CertificateRequest" {
				for _, f := range requester() {
					unstructured.RemoveNestedField(expected.Object, "spec", f)
					unstructured.RemoveNestedField(got.Object, "spec", f)
				}
			}
			for _, part := range []string{"spec", "status"} {
				if diff := cmp.Diff(expected.Object[part], got.Object[part]); diff != "" {
					t.Errorf("%s changes on its way through the API server (-want +got):\n%s", part, diff)
				}
			}
		})
	}
}

func TestServerDefaults(t *testing.T) {
	d := client(t)
	o := base(t, "acme")
	edit(t, o, changes{
		"spec.acme.solvers": []any{
			map[string]any{"http01": map[string]any{"gatewayHTTPRoute": map[string]any{
				"parentRefs": []any{map[string]any{"name": "public"}},
				"podTemplate": map[string]any{"spec": map[string]any{
					"imagePullSecrets": []any{map[string]any{}},
				}},
			}}},
		},
	})
	want := o.DeepCopy()
	edit(t, want, changes{
		"spec.acme.renewalInformationSource":                                                   "ARI",
		"spec.acme.solvers.0.http01.gatewayHTTPRoute.parentRefs.0.group":                       "gateway.networking.k8s.io",
		"spec.acme.solvers.0.http01.gatewayHTTPRoute.parentRefs.0.kind":                        "Gateway",
		"spec.acme.solvers.0.http01.gatewayHTTPRoute.podTemplate.spec.imagePullSecrets.0.name": "",
	})
	got, err := resourceFor(d, o).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}

	ref := base(t, "certificate")
	got, err = resourceFor(d, ref).Create(t.Context(), ref, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ref.Object["spec"], got.Object["spec"]); diff != "" {
		t.Errorf("a Certificate has no stored defaults (-want +got):\n%s", diff)
	}
}
