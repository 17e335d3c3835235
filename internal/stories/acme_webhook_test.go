package stories_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// hook is a webhook in front of the test's DNS server, which knows nothing of us but the
// documented payload.
type hook struct{ dns *rfc2136.Provider }

func (h hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Request struct{ UID, Action, Key, ResolvedFQDN, ResolvedZone string }
	}
	type answer struct {
		UID     string            `json:"uid"`
		Success bool              `json:"success"`
		Status  map[string]string `json:"status,omitempty"`
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	if err == nil {
		record := dns01.Record{FQDN: in.Request.ResolvedFQDN, Zone: in.Request.ResolvedZone, Value: in.Request.Key, TTL: 60}
		if in.Request.Action == "Present" {
			err = h.dns.Present(r.Context(), record)
		} else {
			err = h.dns.CleanUp(r.Context(), record)
		}
	}
	out := answer{UID: in.Request.UID, Success: err == nil}
	if err != nil {
		out.Status = map[string]string{"message": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(map[string]answer{"response": out}) // a client that is gone does not want it
}

// TestDNSByHTTPSWebhook issues through a webhook that is an HTTPS server, from a
// ClusterIssuer, with a client certificate that the controller itself has issued. An Issuer
// may not name an address unless the operator says so.
func TestDNSByHTTPSWebhook(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	w.Run(t, w.Config())
	withCA(t, w.World)
	own := certificate(w.World, "hook-client", "ca", "chancery.example.com")
	own.Spec.Usages = []certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth, certmanagerv1.UsageDigitalSignature}
	w.Create(t, own)
	awaitReady(t, w.World, "hook-client")
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), "hook-client", secret); err != nil {
		t.Fatal(err)
	}
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	updates, err := rfc2136.New(rfc2136.Config{Nameserver: w.dns.Addr(), Key: key}, rfc2136.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(hook{updates})
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	server.TLS.ClientCAs.AppendCertsFromPEM(secret.Data["ca.crt"])
	server.StartTLS()
	t.Cleanup(server.Close)

	spec := w.issuer().Spec
	spec.ACME.Solvers = []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{
		URL:                        server.URL + "/challenge",
		CABundle:                   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		ClientCertificateSecretRef: &cmmeta.LocalObjectReference{Name: "hook-client"},
	}}}}
	w.forClusterIssuersOnly(t, spec, "--dns01-webhook-urls-in-issuers")
}
