package ordering

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
)

func TestRouteClass(t *testing.T) {
	class, infra, set := "public", gwapiv1.Namespace("infra"), gwapiv1.Kind("ListenerSet")
	ingress := func(in acmev1.HTTP01IngressSolver) *acmev1.HTTP01Solver { return &acmev1.HTTP01Solver{Ingress: &in} }
	gateway := func(refs ...gwapiv1.ParentReference) *acmev1.HTTP01Solver {
		return &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{ParentRefs: refs}}
	}
	for want, http := range map[string]*acmev1.HTTP01Solver{
		"":                      nil,
		"the default class":     ingress(acmev1.HTTP01IngressSolver{}),
		"class public":          ingress(acmev1.HTTP01IngressSolver{IngressClassName: &class}),
		"Ingress shop/site":     ingress(acmev1.HTTP01IngressSolver{Name: "site"}),
		"Gateway shop/gw":       gateway(gwapiv1.ParentReference{Name: "gw"}),
		"Gateway infra/gw":      gateway(gwapiv1.ParentReference{Name: "gw", Namespace: &infra}, gwapiv1.ParentReference{Name: "other"}),
		"ListenerSet infra/set": gateway(gwapiv1.ParentReference{Name: "set", Namespace: &infra, Kind: &set}),
	} {
		c := &acmev1.Challenge{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop"},
			Spec:       acmev1.ChallengeSpec{Solver: acmev1.ACMEChallengeSolver{HTTP01: http}},
		}
		if got := routeClass(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	older := &acmev1.Challenge{Spec: acmev1.ChallengeSpec{Solver: acmev1.ACMEChallengeSolver{HTTP01: ingress(acmev1.HTTP01IngressSolver{Class: &class})}}}
	if got := routeClass(older); got != "class public" {
		t.Errorf("by annotation: %q", got)
	}
}
