package api_test

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"chancery.dev/api"
	"chancery.dev/internal/limits"
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
	applyDefinition(t, d, "Issuer", false)
	eventually(t, "no rules", accepted)
	o, err := resourceFor(d, bad).Create(t.Context(), bad, metav1.CreateOptions{})
	applyDefinition(t, d, "Issuer", true)
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

// TestStoredLargeObjectsStayUpdatable stores a Certificate with more names than it may have: it can still be labelled,
// given a status, changed elsewhere and made smaller, and no other like it is taken.
func TestStoredLargeObjectsStayUpdatable(t *testing.T) {
	d := client(t)
	names := make([]any, limits.CertificateNames+1)
	for i := range names {
		names[i] = fmt.Sprintf("host-%d.example.com", i)
	}
	large := base(t, "certificate")
	large.SetName("")
	large.SetGenerateName("stored-")
	edit(t, large, changes{"spec.dnsNames": names})
	refusal := func(ctx context.Context) error {
		_, err := resourceFor(d, large).Create(ctx, large, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	check(t, refusal(t.Context()), "spec.dnsNames: Too many: 1001: must have at most 1000 items")
	applyDefinition(t, d, "Certificate", false)
	eventually(t, "no bounds", func(ctx context.Context) bool { return refusal(ctx) == nil })
	o, err := resourceFor(d, large).Create(t.Context(), large, metav1.CreateOptions{})
	applyDefinition(t, d, "Certificate", true)
	eventually(t, "bounds", func(ctx context.Context) bool { return refusal(ctx) != nil })
	if err != nil {
		t.Fatal(err)
	}

	r := resourceFor(d, o)
	o.SetLabels(map[string]string{"a": "b"})
	if o, err = r.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("a label: %v", err)
	}
	o.Object["status"] = conditions(condition("Ready", "True"))
	if o, err = r.UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("a status: %v", err)
	}
	edit(t, o, changes{"spec.duration": "100h"})
	if o, err = r.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("another field: %v", err)
	}
	edit(t, o, changes{"spec.dnsNames": names[1:]})
	if _, err = r.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("fewer names: %v", err)
	}
}

// applyDefinition applies the CustomResourceDefinition of a kind with or without its rules and bounds.
func applyDefinition(t *testing.T, d dynamic.Interface, kind string, rules bool) {
	t.Helper()
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		if crd.Spec.Names.Kind != kind {
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

// withoutRules removes all rules and bounds below a schema.
func withoutRules(s *apiextensionsv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.XValidations, s.MaxItems, s.MaxLength = nil, nil, nil
	for name := range s.Properties {
		p := s.Properties[name]
		withoutRules(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		withoutRules(s.Items.Schema)
	}
}
