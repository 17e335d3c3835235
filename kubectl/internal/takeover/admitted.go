package takeover

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
