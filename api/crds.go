package api

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// crdFiles holds what controller-gen makes of the types.
//
//go:embed crds/*.yaml
var crdFiles embed.FS

// policyFiles holds the rules that a schema cannot say.
//
//go:embed policies/*.yaml
var policyFiles embed.FS

// CRDs returns the CustomResourceDefinitions of all kinds, in a fixed order.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	decoded, err := decodedCRDs()
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(decoded))
	for _, crd := range decoded {
		crds = append(crds, crd.DeepCopy())
	}
	return crds, err
}

// decodedCRDs are decoded once: they have a megabyte of YAML.
var decodedCRDs = sync.OnceValues(func() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	err := eachFile(crdFiles, "crds/*.yaml", func(data []byte) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return err
		}
		crds = append(crds, crd)
		return nil
	})
	return crds, err
})

// DefinitionAnnotation is on each CustomResourceDefinition of Chancery's, of whatever version. Where it is missing,
// somebody else has made the definition. The value counts the changes that an older controller does not work with.
const DefinitionAnnotation = "chancery.dev/definition"

// ExternalIssuers names the ConfigMap that says how kinds of external issuers are called, and whether they are
// namespaced: what a policy cannot discover. Operators add to it.
const (
	ExternalIssuersNamespace = "cert-manager"
	ExternalIssuersName      = "chancery-external-issuers"
)

// AdmissionSettingsName names the ConfigMap, in the same namespace, with what operators set of the policies.
const AdmissionSettingsName = "chancery-admission"

// KeptPolicyName names the policy that stays, with its binding, when everything else is removed: without it, the API
// server would refuse every Certificate once Chancery is installed again.
const KeptPolicyName = "keep-parameters.chancery.dev"

// readsAnnotation names, on a policy, the ConfigMap that the policy reads, if that is not the one of external issuers.
const readsAnnotation = "chancery.dev/reads"

// keepAnnotation has Helm keep an object that a release no longer has.
const keepAnnotation = "helm.sh/resource-policy"

// Policies returns the admission policies and their bindings, each policy before its binding, and what they
// read, in an order in which they can be applied. The namespace cert-manager must be there. Those of kind
// MutatingAdmissionPolicy and MutatingAdmissionPolicyBinding need Kubernetes 1.36. Where the API server serves
// admissionregistration.k8s.io/v1beta1 of them alone, apply them by that version; where it serves neither, leave
// them out.
func Policies() ([]*unstructured.Unstructured, error) {
	var policies []*unstructured.Unstructured
	err := eachFile(policyFiles, "policies/*.yaml", func(data []byte) error {
		policy := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &policy.Object); err != nil {
			return err
		}
		policies = append(policies, policy)
		if policy.GetKind() != "ConfigMap" {
			policies = append(policies, bindingOf(policy))
		}
		return nil
	})
	return policies, err
}

// bindingOf binds a policy to all that it matches: a violation of a ValidatingAdmissionPolicy is denied, and so
// is all that a policy matches which does not find the ConfigMap that it reads.
func bindingOf(policy *unstructured.Unstructured) *unstructured.Unstructured {
	spec := map[string]any{"policyName": policy.GetName()}
	if policy.GetKind() == "ValidatingAdmissionPolicy" {
		spec["validationActions"] = []any{"Deny"}
	}
	if _, reads, _ := unstructured.NestedMap(policy.Object, "spec", "paramKind"); reads {
		spec["paramRef"] = map[string]any{
			"namespace": ExternalIssuersNamespace, "parameterNotFoundAction": "Deny",
			"name": cmp.Or(policy.GetAnnotations()[readsAnnotation], ExternalIssuersName),
		}
	}
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": policy.GetAPIVersion(),
		"kind":       policy.GetKind() + "Binding",
		"metadata":   map[string]any{"name": policy.GetName()},
		"spec":       spec,
	}}
	if keep, is := policy.GetAnnotations()[keepAnnotation]; is {
		binding.SetAnnotations(map[string]string{keepAnnotation: keep})
	}
	return binding
}

// eachFile calls do with each file that matches, in the order of their names.
func eachFile(files fs.FS, pattern string, do func(data []byte) error) error {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return fmt.Errorf("embedded %s: %w", pattern, err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return fmt.Errorf("embedded %s: %w", name, err)
		}
		if err := do(data); err != nil {
			return fmt.Errorf("embedded %s: %w", name, err)
		}
	}
	return nil
}
