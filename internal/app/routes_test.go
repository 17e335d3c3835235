package app_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// TestServiceOfResponder: a controller that starts makes the Service of a Challenge in flight, and has it lead to the
// responder.
func TestServiceOfResponder(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	c := &acmev1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Name: "in-flight"},
		Spec: acmev1.ChallengeSpec{
			URL: "https://ca.test/1", AuthorizationURL: "https://ca.test/authz/1", DNSName: "www.example.test", Type: acmev1.ChallengeTypeHTTP01,
			Token: "token", Key: "token.key", IssuerRef: cmmeta.IssuerReference{Name: "acme"},
			Solver: acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}},
		},
	}
	w.Create(t, c, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "responder", Labels: map[string]string{discoveryv1.LabelServiceName: "responder"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
	})
	c.Status = acmev1.ChallengeStatus{Processing: true, State: acmev1.Pending}
	if err := w.Client.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	cfg := w.Config()
	cfg.ACME.HTTP01Responder = w.Namespace + "/responder"
	w.Run(t, cfg)
	rig.Eventually(t, "the Service leads to the responder", func(ctx context.Context) string {
		services, slices := &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
		if err := w.Client.List(ctx, services, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		if len(services.Items) != 1 {
			return fmt.Sprintf("%d Services", len(services.Items))
		}
		of := client.MatchingLabels{discoveryv1.LabelServiceName: services.Items[0].Name}
		if err := w.Client.List(ctx, slices, client.InNamespace(w.Namespace), of); err != nil {
			return err.Error()
		}
		if len(slices.Items) != 1 || slices.Items[0].Endpoints[0].Addresses[0] != "192.0.2.1" {
			return fmt.Sprintf("EndpointSlices: %+v", slices.Items)
		}
		return ""
	})
}
