package takeover

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
)

// keeper is the name of a policy that does nothing, and of its binding.
const keeper = "keep-parameters.chancery.dev"

// keepParameters binds a policy that matches nothing, and reads a ConfigMap as the policies of Chancery do. The policy
// stays after a rollback: an API server stops watching ConfigMaps for policies when the last binding goes that names
// one, and does not begin again before it is restarted. The policies of a second takeover would refuse every write,
// because they would not find what they read (https://github.com/kubernetes/kubernetes/issues/130887).
func (c cluster) keepParameters(ctx context.Context) error {
	const version = "admissionregistration.k8s.io/v1"
	for kind, spec := range map[string]map[string]any{
		"ValidatingAdmissionPolicy": {
			"failurePolicy": "Ignore", "paramKind": map[string]any{"apiVersion": "v1", "kind": "ConfigMap"},
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{"chancery.dev"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"nothing"},
			}}},
			"validations": []any{map[string]any{"expression": "true"}},
		},
		"ValidatingAdmissionPolicyBinding": {
			"policyName": keeper, "validationActions": []any{"Warn"},
			"paramRef": map[string]any{"namespace": api.ExternalIssuersNamespace, "name": api.ExternalIssuersName, "parameterNotFoundAction": "Allow"},
		},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": keeper}, "spec": spec}}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership, client.FieldOwner(owner)); err != nil {
			return fmt.Errorf("apply %s %s: %w", kind, keeper, err)
		}
	}
	return nil
}

// admitted waits until the API server admits a Certificate, which it does not store.
func (r *runner) admitted(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, min(r.timeout, time.Minute), true, func(ctx context.Context) (bool, error) {
		crt := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": map[string]any{"generateName": recordName + "-", "namespace": home},
			"spec": map[string]any{"secretName": recordName + "-probe", "dnsNames": []any{"example.com"}, "issuerRef": map[string]any{"name": recordName}},
		}}
		last = r.Create(ctx, crt, client.DryRunAll)
		return last == nil, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("the API server refuses Certificates: %w. If it finds no params, restart kube-apiserver and run apply again; or go back by takeover rollback", last)
	}
	return err
}
