package stories_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// corp is the API that the program of docs/dns-providers.md calls, in front of the
// test's DNS server.
type corp struct {
	t   *testing.T
	dns *rfc2136.Provider
}

func (c *corp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fqdn, value, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	record := dns01.Record{FQDN: fqdn, Zone: "example.com.", Value: value, TTL: 60}
	do := map[string]func() error{
		http.MethodPut:    func() error { return c.dns.Present(r.Context(), record) },
		http.MethodDelete: func() error { return c.dns.CleanUp(r.Context(), record) },
	}[r.Method]
	if r.Header.Get("X-Key") != "s3cret" || do == nil {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if sum := sha256.Sum256([]byte(r.Header.Get("X-Auth"))); base64.RawURLEncoding.EncodeToString(sum[:]) != value {
		c.t.Errorf("the value %s is not that of the key authorization", value)
	}
	if err := do(); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// TestDNSByProgram issues through a program that the operator has listed, from a
// ClusterIssuer; an Issuer may not use it unless the operator says so.
func TestDNSByProgram(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"jq", "curl"} {
		tool.Path(t, name)
	}
	doc, err := os.ReadFile("../../docs/dns-providers.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```sh\n(#!/bin/sh\n.*?)```").FindStringSubmatch(string(doc))
	text := strings.ReplaceAll(example[1], `-H "X-Key: $key"`, `-H "X-Key: $key" -H "X-Auth: $(get keyAuthorization)"`)
	script := tool.Script(t, text)
	w := newACMEWorld(t, nil)
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	updates, err := rfc2136.New(rfc2136.Config{Nameserver: w.dns.Addr(), Key: key}, rfc2136.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&corp{t: t, dns: updates})
	t.Cleanup(server.Close)
	cfg := w.Config()
	cfg.ACME.DNS01.Programs = []string{"corp=" + script}
	w.Run(t, cfg)

	spec := w.issuer().Spec
	spec.ACME.Solvers = []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{Exec: &acmev1.ExecProvider{
		Name: "corp", Config: map[string]string{"url": server.URL}, SecretRef: &cmmeta.LocalObjectReference{Name: "corp"},
	}}}}
	w.Create(t, &corev1.Secret{ObjectMeta: named("corp"), StringData: map[string]string{"key": "s3cret"}})
	w.forClusterIssuersOnly(t, spec, "--dns01-exec-in-issuers")
}

// forClusterIssuersOnly issues a wildcard certificate by a ClusterIssuer, while the Challenge of an Issuer
// with the same spec names the flag that would allow it.
func (w *acmeWorld) forClusterIssuersOnly(t *testing.T, spec certmanagerv1.IssuerSpec, flag string) {
	t.Helper()
	tenant := certificate(w.World, "tenant", "tenant", "tenant.example.com")
	tenant.Spec.IssuerRef = cmmeta.IssuerReference{Name: "tenant", Kind: certmanagerv1.IssuerKind}
	w.Create(t, clusterIssuer(w.World, "acme", spec), &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "tenant", Namespace: w.Namespace}, Spec: spec},
		certificate(w.World, "wild", "acme", "wild.example.com", "*.wild.example.com"), tenant)
	awaitReady(t, w.World, "wild")
	rig.Eventually(t, "the tenant's Challenge says what is not allowed", func(ctx context.Context) string {
		challenges := &acmev1.ChallengeList{}
		if err := w.Client.List(ctx, challenges, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		said := ""
		for _, c := range challenges.Items {
			if said += c.Status.Reason + "; "; strings.Contains(c.Status.Reason, flag) {
				return ""
			}
		}
		return said
	})
}
