package install

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// probeRequest looks enough like a PEM request to get past the schema; it is never stored.
const probeRequest = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg=="

// newProbe returns a CertificateRequest that is created without being stored.
func newProbe(namespace, request string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "CertificateRequest",
		"metadata": map[string]any{"generateName": "chancery-probe-", "namespace": namespace},
		"spec":     map[string]any{"issuerRef": map[string]any{"name": "cmapichecker"}, "request": request},
	}}
}

// CheckAPI reports whether CertificateRequests are served and validated (spec §11.5): the API server has to admit a
// valid one, and to refuse one whose spec.request is not PEM. It stores neither.
func CheckAPI(ctx context.Context, rc *rest.Config, namespace string) error {
	c, err := client.New(rc, client.Options{})
	if err != nil {
		return err
	}
	if err := c.Create(ctx, newProbe(namespace, probeRequest), client.DryRunAll); err != nil {
		return fmt.Errorf("create a CertificateRequest, to try: %w", err)
	}
	const notPEM = "Tm90IFBFTQ=="
	err = c.Create(ctx, newProbe(namespace, notPEM), client.DryRunAll)
	if err == nil {
		return errors.New("a CertificateRequest without a request in PEM form is admitted: the custom resource definitions are not those of Chancery")
	}
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("create a CertificateRequest that is wrong, to try: %w", err)
	}
	return nil
}
