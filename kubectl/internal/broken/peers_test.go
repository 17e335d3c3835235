package broken_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"chancery.dev/internal/pki"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// installWebhook makes a DNS webhook an API of the API server, as its chart does. It changes the stage's DNS.
func (s *scene) installWebhook(group string) {
	s.t.Helper()
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		s.t.Fatal(err)
	}
	updates, err := rfc2136.New(rfc2136.Config{Nameserver: s.dns.Addr(), Key: key}, rfc2136.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	server := httptest.NewTLSServer(&hook{group, updates})
	s.t.Cleanup(server.Close)
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	number, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	s.create(&corev1.Service{ObjectMeta: named(s.name), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}})
	api := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1alpha1." + group},
		"spec": map[string]any{
			"group": group, "version": "v1alpha1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(15), "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": s.space, "name": s.name, "port": number},
		},
	}}
	s.create(api)
	s.t.Cleanup(func() { _ = s.Client.Delete(context.Background(), api) })
}

// hook is a DNS webhook in front of the stage's DNS.
type hook struct {
	group string
	dns   *rfc2136.Provider
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet { // discovery
		_ = json.NewEncoder(w).Encode(map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": h.group + "/v1alpha1",
			"resources": []any{map[string]any{"name": "mine", "singularName": "mine", "kind": "ChallengePayload", "verbs": []string{"create"}}},
		})
		return
	}
	var in struct {
		Request struct{ UID, Action, Key, ResolvedFQDN, ResolvedZone string }
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	record := dns01.Record{FQDN: in.Request.ResolvedFQDN, Zone: in.Request.ResolvedZone, Value: in.Request.Key, TTL: 60}
	switch {
	case err != nil:
	case in.Request.Action == "Present":
		err = h.dns.Present(r.Context(), record)
	default:
		err = h.dns.CleanUp(r.Context(), record)
	}
	answer := map[string]any{"uid": in.Request.UID, "success": err == nil}
	if err != nil {
		answer["status"] = map[string]any{"message": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ChallengePayload", "apiVersion": "acme.cert-manager.io/v1", "response": answer})
}

// letThrough listens at an address at which nothing listened, and passes all questions to the stage's DNS server.
func (s *scene) letThrough() {
	s.t.Helper()
	outside, err := new(net.ListenConfig).ListenPacket(s.t.Context(), "udp", s.behind.String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = outside.Close() })
	go func() {
		question, answer := make([]byte, 65536), make([]byte, 65536)
		for {
			n, from, err := outside.ReadFrom(question)
			if err != nil {
				return
			}
			inside, err := new(net.Dialer).DialContext(context.Background(), "udp", s.dns.Addr())
			if err != nil {
				return
			}
			_, _ = inside.Write(question[:n])
			_ = inside.SetReadDeadline(time.Now().Add(time.Minute))
			n, _ = inside.Read(answer)
			_, _ = outside.WriteTo(answer[:n], from)
			_ = inside.Close()
		}
	}()
}

// vault is as much of Vault as an issuer hears: its health, and a role that signs.
func (s *scene) vault() (address string) {
	s.t.Helper()
	by := good(s.t, "vault")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ CSR string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		signed, err := sign([]byte(in.CSR), by)
		answer, status := map[string]any{"errors": []string{"no handler for route"}}, http.StatusNotFound
		mount, role, _ := strings.Cut(r.URL.Path, "/sign/")
		switch {
		case r.URL.Path == "/v1/sys/health":
			answer, status = map[string]any{"initialized": true, "sealed": false}, http.StatusOK
		case mount != "/v1/pki":
		case role != "web":
			answer, status = map[string]any{"errors": []string{"unknown role: " + role}}, http.StatusBadRequest
		case err != nil:
			answer, status = map[string]any{"errors": []string{err.Error()}}, http.StatusBadRequest
		default:
			text := string(by.Data["tls.crt"])
			answer, status = map[string]any{"data": map[string]any{"certificate": string(signed), "issuing_ca": text, "ca_chain": []string{text}}}, http.StatusOK
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	s.t.Cleanup(server.Close)
	return server.URL
}

// sign signs a request for a server's certificate with the CA in a Secret, and returns PEM.
func sign(request []byte, by *corev1.Secret) ([]byte, error) {
	csr, err := pki.DecodeCSR(request)
	if err != nil {
		return nil, err
	}
	ca, err := pki.DecodeCertificate(by.Data["tls.crt"])
	if err != nil {
		return nil, err
	}
	key, err := pki.DecodePrivateKey(by.Data["tls.key"])
	if err != nil {
		return nil, err
	}
	usages, err := pki.ParseUsages[string](nil, false, nil)
	if err != nil {
		return nil, err
	}
	template, err := pki.NewTemplate(csr, pki.Issuance{NotBefore: time.Now().Add(-time.Minute), Duration: 24 * time.Hour, Usages: usages})
	if err != nil {
		return nil, err
	}
	cert, err := pki.Sign(template, ca, key)
	if err != nil {
		return nil, err
	}
	return pki.EncodeCertificates(cert), nil
}
