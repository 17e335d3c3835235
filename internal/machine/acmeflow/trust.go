package acmeflow

import (
	"fmt"
	"slices"
	"strings"

	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/selection"
)

// Untrusted says why a Challenge must not be solved; empty if it may be. The Order that controls the Challenge has to
// list it, and the issuer has to yield its solver: a Challenge carries its solver, so whoever creates one could send
// the credentials of a ClusterIssuer to any server. The Order is nil if there is none. If the issuer is missing, its
// solvers are not checked.
func Untrusted(o *acmev1.Order, issuer Issuer, c *acmev1.Challenge) string {
	if o == nil {
		return "No Order controls this Challenge: Challenges are made by the controller, for the Orders of CertificateRequests"
	}
	i := slices.IndexFunc(o.Status.Authorizations, func(a acmev1.ACMEAuthorization) bool { return a.URL == c.Spec.AuthorizationURL })
	var a acmev1.ACMEAuthorization // lists nothing
	if i >= 0 {
		a = o.Status.Authorizations[i]
	}
	return UntrustedFor(o, a, issuer, selection.For(o.Labels, issuer.Solvers), c)
}

// UntrustedFor is Untrusted with the Order's authorization of the Challenge, and the issuer's solvers.
func UntrustedFor(o *acmev1.Order, a acmev1.ACMEAuthorization, issuer Issuer, solvers *selection.Solvers, c *acmev1.Challenge) string {
	spec := c.Spec
	if !lists(a, spec) {
		return fmt.Sprintf("The Order %q does not list this Challenge in its status.authorizations", o.Name)
	}
	if !o.Spec.IssuerRef.Equivalent(spec.IssuerRef) {
		return fmt.Sprintf("The Order %q is for another issuer than this Challenge", o.Name)
	}
	if issuer.Readiness == IssuerMissing {
		return ""
	}
	chosen, solver, err := ChooseSolver(o, a, solvers.Choose)
	if err != nil || chosen.Type != spec.Type || !sameSolver(solver, spec.Solver) {
		return fmt.Sprintf("Issuer %q does not give this solver for %q, or not any more: the Order makes a Challenge for the solver that it gives", spec.IssuerRef.Name, spec.DNSName)
	}
	return ""
}

// lists reports whether an authorization has what a Challenge is for.
func lists(a acmev1.ACMEAuthorization, spec acmev1.ChallengeSpec) bool {
	wildcard := a.Wildcard != nil && *a.Wildcard
	return a.Identifier == spec.DNSName && wildcard == spec.Wildcard && slices.ContainsFunc(a.Challenges, func(c acmev1.ACMEChallenge) bool {
		return c.URL == spec.URL && c.Token == spec.Token && strings.EqualFold(c.Type, string(spec.Type))
	})
}

// ChooseSolver is the best of the issuer's solvers for an authorization, with the Order's annotations applied.
func ChooseSolver(o *acmev1.Order, a acmev1.ACMEAuthorization, choose func(acmev1.ACMEAuthorization) (selection.Selection, error)) (
	selection.Selection, acmev1.ACMEChallengeSolver, error,
) {
	chosen, err := choose(a)
	if err != nil {
		return selection.Selection{}, acmev1.ACMEChallengeSolver{}, fmt.Errorf("issuer %q: %w", o.Spec.IssuerRef.Name, err)
	}
	solver, err := selection.ApplyOverrides(o, chosen.Solver)
	return chosen, solver, err
}

// sameSolver compares solvers as the API server stores them: it fills in what a parentRef leaves out.
func sameSolver(a, b acmev1.ACMEChallengeSolver) bool {
	return cmmeta.Equal(filledIn(a), filledIn(b))
}

func filledIn(s acmev1.ACMEChallengeSolver) acmev1.ACMEChallengeSolver {
	if s.HTTP01 == nil || s.HTTP01.GatewayHTTPRoute == nil {
		return s
	}
	s = *s.DeepCopy()
	for i := range s.HTTP01.GatewayHTTPRoute.ParentRefs {
		parent := &s.HTTP01.GatewayHTTPRoute.ParentRefs[i]
		group, kind := gwapiv1.Group(gwapiv1.GroupName), gwapiv1.Kind("Gateway")
		if parent.Group == nil {
			parent.Group = &group
		}
		if parent.Kind == nil {
			parent.Kind = &kind
		}
	}
	return s
}
