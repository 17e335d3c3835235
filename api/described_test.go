package api_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"chancery.dev/api"
)

// TestEveryFieldIsDescribed: kubectl explain has words for each kind and each field.
func TestEveryFieldIsDescribed(t *testing.T) {
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	var walk func(path string, s *apiextensionsv1.JSONSchemaProps)
	walk = func(path string, s *apiextensionsv1.JSONSchemaProps) {
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			field := s.Properties[name]
			ofObject := name == "metadata" && !strings.Contains(path, ".") // the API server describes that
			if fields++; field.Description == "" && !ofObject {
				t.Errorf("%s.%s has no description", path, name)
			}
			walk(path+"."+name, &field)
		}
		if s.Items != nil && s.Items.Schema != nil {
			walk(path+"[]", s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			walk(path+"[]", s.AdditionalProperties.Schema)
		}
	}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			if version.Schema.OpenAPIV3Schema.Description == "" {
				t.Errorf("%s has no description", crd.Spec.Names.Kind)
			}
			walk(crd.Spec.Names.Kind, version.Schema.OpenAPIV3Schema)
		}
	}
	if fields < 1000 {
		t.Errorf("there are %d fields only", fields)
	}
}
