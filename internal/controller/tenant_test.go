package controller_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// tenantIssuer is an Issuer at the world's CA: any tenant can have a CA of its own.
func (w *watched) tenantIssuer(name string, solvers ...acmev1.ACMEChallengeSolver) *certmanagerv1.Issuer {
	spec := w.spec(solvers...)
	spec.ACME.PrivateKey.Name = name + "-account"
	return &certmanagerv1.Issuer{ObjectMeta: named(name), Spec: spec}
}

// by has a Certificate signed by an Issuer of the namespace.
func by(issuer string, crt *certmanagerv1.Certificate) *certmanagerv1.Certificate {
	crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: issuer}
	return crt
}

// TestTenantsHaveNoAnswersForOthersHosts: a tenant with a CA of its own asks for a certificate for a host that
// is not its own. All hosts lead to the responder. The CA gets no answer, for the Challenge is never started.
// The host that the operator lets the tenant have is proved, and so are all hosts for ClusterIssuers.
func TestTenantsHaveNoAnswersForOthersHosts(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.cfg.ACME.TLSALPN01Address = rig.FreeAddress(t).String()
	w.cfg.ACME.HTTP01Hosts, w.cfg.ACME.TLSALPN01Hosts = []string{w.Namespace + "=*.tenant.example.com"}, nil
	history := w.record(t)
	w.run(t)
	w.withIssuer(t, httpSolver())
	w.Create(t, w.tenantIssuer("http", httpSolver()), w.tenantIssuer("tls", tlsSolver()),
		by("http", certificate(w.World, "relayed", "", "bank.example.com")),
		by("tls", certificate(w.World, "shown", "", "bank.example.com")),
		by("http", certificate(w.World, "own", "", "www.tenant.example.com")))
	for kind, flag := range map[acmev1.ACMEChallengeType]string{acmev1.ChallengeTypeHTTP01: "--http01-hosts ", acmev1.ChallengeTypeTLSALPN01: "--tlsalpn01-hosts "} {
		c := w.awaitChallenge(t, "by "+string(kind)+" is refused", func(c *acmev1.Challenge) bool {
			return c.Spec.Type == kind && c.Status.State == acmev1.Errored && strings.Contains(c.Status.Reason, flag+w.Namespace+"=bank.example.com")
		})
		if code := w.askResponder(t, c); kind == acmev1.ChallengeTypeHTTP01 && code != http.StatusNotFound {
			t.Errorf("the responder answers %d", code)
		}
	}
	awaitReady(t, w.World, "own")
	w.Create(t, certificate(w.World, "operators", "acme", "bank.example.com"))
	awaitReady(t, w.World, "operators")
	history.each(func(_, now *acmev1.Challenge, _ bool) {
		if now.Status.Processing && now.Spec.DNSName == "bank.example.com" && now.Spec.IssuerRef.Kind != cmmeta.ClusterIssuerKind {
			t.Errorf("Challenge %s was started", now.Name)
		}
	})
}

// askResponder asks for an answer as a CA does, and returns the status.
func (w *watched) askResponder(t *testing.T, c *acmev1.Challenge) int {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+w.http.String()+"/.well-known/acme-challenge/"+c.Spec.Token, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = c.Spec.DNSName
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
