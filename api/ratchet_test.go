package api_test

import (
	"context"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"chancery.dev/api"
)

// TestStoredObjectsStayUpdatable stores, while there are no rules, what the rules refuse: what others
// stored before can still be labelled, given a status, and mended.
func TestStoredObjectsStayUpdatable(t *testing.T) {
	d := client(t)
	bad := base(t, "dns01")
	bad.SetName("")
	bad.SetGenerateName("stored-")
	edit(t, bad, changes{"spec.acme.server": "", "spec.acme.solvers": []any{map[string]any{}, map[string]any{"dns01": map[string]any{}}}})
	accepted := func(ctx context.Context) bool {
		_, err := resourceFor(d, bad).Create(ctx, bad, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	}
	applyIssuers(t, d, false)
	eventually(t, "no rules", accepted)
	o, err := resourceFor(d, bad).Create(t.Context(), bad, metav1.CreateOptions{})
	applyIssuers(t, d, true)
	eventually(t, "rules", func(ctx context.Context) bool { return !accepted(ctx) })
	if err != nil {
		t.Fatal(err)
	}

	r := resourceFor(d, o)
	o.SetLabels(map[string]string{"a": "b"})
	if o, err = r.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("a label: %v", err)
	}
	o.Object["status"] = conditions(condition("Ready", "False"))
	if o, err = r.UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("a status: %v", err)
	}
	edit(t, o, changes{"spec.acme.email": "web@example.com"})
	if o, err = r.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("another field: %v", err)
	}
	edit(t, o, changes{"spec.acme.server": "https://acme.example.com/directory"})
	if o, err = r.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("one mistake mended: %v", err)
	}
	edit(t, o, changes{"spec.acme.server": ""})
	_, err = r.Update(t.Context(), o, metav1.UpdateOptions{})
	check(t, err, "acme.server: must not be empty")
}

// applyIssuers applies the CustomResourceDefinition of Issuers with or without its rules.
func applyIssuers(t *testing.T, d dynamic.Interface, rules bool) {
	t.Helper()
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		if crd.Spec.Names.Kind != "Issuer" {
			continue
		}
		if !rules {
			withoutRules(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		}
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			t.Fatal(err)
		}
		gvr := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
		if err := apply(t.Context(), d, gvr, &unstructured.Unstructured{Object: o}); err != nil {
			t.Fatal(err)
		}
	}
}

// withoutRules removes all rules below a schema.
func withoutRules(s *apiextensionsv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.XValidations = nil
	for name := range s.Properties {
		p := s.Properties[name]
		withoutRules(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		withoutRules(s.Items.Schema)
	}
}
