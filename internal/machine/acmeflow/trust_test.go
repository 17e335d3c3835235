package acmeflow_test

import (
	"strings"
	"testing"

	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/rig/flows"
)

// TestGHSA_8rvj_mm4h_c258: a Challenge that somebody else than the controller has made is not solved, whichever of its
// fields is not what the Order and the issuer have.
func TestGHSA_8rvj_mm4h_c258(t *testing.T) {
	t.Parallel()
	genuine := flows.NewOrderState().Stored(acmev1.Pending, "pending").Owning("")
	wildcard := true
	for name, c := range map[string]struct {
		forge func(*flows.OrderState, *acmev1.Challenge)
		want  string
	}{
		"genuine": {func(*flows.OrderState, *acmev1.Challenge) {}, ""},
		"genuine, fields filled in": {func(_ *flows.OrderState, c *acmev1.Challenge) {
			c.Spec.IssuerRef.Kind, c.Spec.IssuerRef.Group = "Issuer", "cert-manager.io"
		}, ""},
		"genuine, issuer missing": {func(s *flows.OrderState, _ *acmev1.Challenge) {
			s.Issuer = acmeflow.Issuer{Readiness: acmeflow.IssuerMissing}
		}, ""},
		"no Order":              {func(s *flows.OrderState, _ *acmev1.Challenge) { s.Order = nil }, "No Order controls"},
		"nothing listed":        {func(s *flows.OrderState, _ *acmev1.Challenge) { s.Order.Status.Authorizations = nil }, "does not list"},
		"another authorization": {func(_ *flows.OrderState, c *acmev1.Challenge) { c.Spec.AuthorizationURL = "ca/authz/2" }, "does not list"},
		"another address":       {func(_ *flows.OrderState, c *acmev1.Challenge) { c.Spec.URL = "https://elsewhere.example.net" }, "does not list"},
		"another token":         {func(_ *flows.OrderState, c *acmev1.Challenge) { c.Spec.Token = "other" }, "does not list"},
		"another type":          {func(_ *flows.OrderState, c *acmev1.Challenge) { c.Spec.Type = acmev1.ChallengeTypeHTTP01 }, "does not list"},
		"another name":          {func(_ *flows.OrderState, c *acmev1.Challenge) { c.Spec.DNSName = "bank.example.com" }, "does not list"},
		"a wildcard":            {func(_ *flows.OrderState, c *acmev1.Challenge) { c.Spec.Wildcard = true }, "does not list"},
		"no wildcard":           {func(s *flows.OrderState, _ *acmev1.Challenge) { s.Order.Status.Authorizations[0].Wildcard = &wildcard }, "does not list"},
		"another issuer":        {func(_ *flows.OrderState, c *acmev1.Challenge) { c.Spec.IssuerRef.Kind = "ClusterIssuer" }, "for another issuer"},
		"a server of their own": {func(_ *flows.OrderState, c *acmev1.Challenge) {
			c.Spec.Solver.DNS01.AcmeDNS.Host = "elsewhere.example.net"
		}, "does not give this solver"},
		"the solver was changed": {func(s *flows.OrderState, _ *acmev1.Challenge) {
			s.Issuer.Solvers[0].DNS01.AcmeDNS.Host = "new.example.net"
		}, "does not give this solver"},
		"the solver is gone": {func(s *flows.OrderState, _ *acmev1.Challenge) { s.Issuer.Solvers = nil }, "does not give this solver"},
		"another kind goes first": {func(s *flows.OrderState, _ *acmev1.Challenge) {
			s.Issuer.Solvers = append([]acmev1.ACMEChallengeSolver{flows.HTTP01()}, s.Issuer.Solvers...)
		}, "does not give this solver"},
		"a check that is left out": {func(_ *flows.OrderState, c *acmev1.Challenge) {
			c.Spec.Solver.SelfCheckDeadline = &acmev1.SelfCheckDeadline{Then: acmev1.SelfCheckDeadlineAccept}
		}, "does not give this solver"},
		"changed, issuer is missing": {func(s *flows.OrderState, c *acmev1.Challenge) {
			s.Issuer, c.Spec.Token = acmeflow.Issuer{Readiness: acmeflow.IssuerMissing}, "other"
		}, "does not list"},
	} {
		s := genuine
		s.Order, s.Issuer.Solvers = s.Order.DeepCopy(), []acmev1.ACMEChallengeSolver{flows.DNS01()}
		challenge := s.Challenges[0].DeepCopy()
		c.forge(&s, challenge)
		if got := acmeflow.Untrusted(s.Order, s.Issuer, challenge); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestVouchesForOverrides: a Challenge is compared with what the Order's annotations make of the solver, as the API
// server stores it.
func TestVouchesForOverrides(t *testing.T) {
	t.Parallel()
	group, kind := gwapiv1.Group(gwapiv1.GroupName), gwapiv1.Kind("Gateway")
	for name, c := range map[string]struct {
		solver      acmev1.ACMEChallengeSolver
		annotations map[string]string
		stored      func(*acmev1.HTTP01Solver)
	}{
		"class": {flows.HTTP01(), map[string]string{acmev1.OverrideIngressClassNameAnnotation: "inner"}, func(*acmev1.HTTP01Solver) {}},
		"parent": {
			acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{}}},
			map[string]string{acmev1.ParentRefNameAnnotation: "public", acmev1.ParentRefKindAnnotation: "Gateway"},
			func(s *acmev1.HTTP01Solver) {
				s.GatewayHTTPRoute.ParentRefs[0].Group, s.GatewayHTTPRoute.ParentRefs[0].Kind = &group, &kind
			},
		},
	} {
		s := flows.NewOrderState().Stored(acmev1.Pending, "pending")
		s.Order.Annotations, s.Issuer.Solvers = c.annotations, []acmev1.ACMEChallengeSolver{c.solver}
		made := s.Owning("").Challenges[0]
		c.stored(made.Spec.Solver.HTTP01)
		if why := acmeflow.Untrusted(s.Order, s.Issuer, made); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		s.Order.Annotations = nil
		if acmeflow.Untrusted(s.Order, s.Issuer, made) == "" {
			t.Errorf("%s: it is vouched for without the annotations too", name)
		}
	}
}
