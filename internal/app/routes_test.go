package app_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// TestNoResponder: without a responder an issuer is ready, and says that HTTP-01 is not; a Challenge says what to do,
// and nothing is made for it. Both take it back once there is a responder.
func TestNoResponder(t *testing.T) {
	t.Parallel()
	w, p := rig.NewWorld(t), newPeers(t)
	const cure = "run `chancery install --image=IMAGE`"
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "acme"}, Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: p.ca.DirectoryURL, CABundle: p.ca.TLSBundle, PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
		Solvers: []acmev1.ACMEChallengeSolver{{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}}},
	}}}, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "web", DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "acme"},
	}})
	w.Run(t, w.Config())
	said := func(ctx context.Context) (*certmanagerv1.IssuerCondition, string) {
		issuer, list := &certmanagerv1.Issuer{}, &acmev1.ChallengeList{}
		if err := w.Get(ctx, "acme", issuer); err != nil {
			return nil, err.Error()
		}
		if !certmanagerv1.HasIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionReady, cmmeta.ConditionTrue) {
			return nil, fmt.Sprintf("%+v", issuer.Status.Conditions)
		}
		if err := w.Client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil || len(list.Items) != 1 {
			return nil, fmt.Sprintf("%d Challenges, %v", len(list.Items), err)
		}
		return certmanagerv1.FindIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionHTTP01Ready), list.Items[0].Status.Reason
	}
	rig.Eventually(t, "the issuer and the Challenge say what to do", func(ctx context.Context) string {
		issuer, challenge := said(ctx)
		if issuer == nil || issuer.Status != cmmeta.ConditionFalse || !strings.Contains(issuer.Message, cure) || !strings.Contains(challenge, cure) {
			return fmt.Sprint(issuer, challenge)
		}
		return ""
	})
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &networkingv1.IngressList{}} {
		if err := w.Client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil || meta.LenList(list) > 0 {
			t.Errorf("%T: %d, %v", list, meta.LenList(list), err)
		}
	}
	w.Create(t, responderSlice("192.0.2.1"))
	rig.Eventually(t, "neither says so any more", func(ctx context.Context) string {
		if issuer, challenge := said(ctx); issuer != nil || strings.Contains(challenge, cure) {
			return fmt.Sprint(issuer, challenge)
		}
		return ""
	})
}

// responderSlice says that the responder of the world's namespace answers at an address.
func responderSlice(address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "responder", Labels: map[string]string{discoveryv1.LabelServiceName: "chancery-responder"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
}

// TestServiceOfResponder: a controller that starts makes the Service of a Challenge in flight. The Service leads to the
// responder, which the controller finds in its own namespace without being told.
func TestServiceOfResponder(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	c := order(t, w, "www.example.test") // a Challenge without an Order would end at once
	w.Create(t, c, responderSlice("192.0.2.1"))
	c.Status = acmev1.ChallengeStatus{Processing: true, State: acmev1.Pending}
	if err := w.Client.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.Run(t, w.Config())
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
