package broken_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

const (
	tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0"
	// refusing is the zone that the key of the stage may not change at first.
	refusing = "example.net."
	// failing is the zone that no resolver answers for at first.
	failing = "example.info."
	// bindingKey is the MAC key of the account binding that the stage's second CA wants.
	bindingKey = "YWNjb3VudC1iaW5kaW5nLWtleS1vZi10aGUtc3RvcnktMDEyMzQ1Njc4OQ"
)

// The addresses that hosts lead to: the answers to HTTP-01 are at the first, and nothing is at the others until a cure.
const (
	served    = "127.0.0.1"
	closedAt  = "127.0.5.1"
	anotherAt = "127.0.5.2"
	unseenAt  = "127.0.5.3"
	// forbiddenAt is of the name whose CAA record forbids the CA: Pebble knows no such record, and fails because of
	// this.
	forbiddenAt = "127.0.5.4"
)

// stage is a set of namespaces with controllers, two ACME servers and a DNS server, and a user who may view it.
type stage struct {
	*rig.World

	ca, bound  *pebble.Server
	dns        *dnsserver.Server
	web        netip.AddrPort // where the answers to HTTP-01 are
	cfg        app.Config
	kubeconfig string
	viewer     string
	// user is who the controllers are.
	user string
	// behind is an address of the DNS server that nothing gets through to at first.
	behind netip.AddrPort
	// program is the socket of chancery-dns, which does not run at first.
	program string
	// mended makes anotherAt lead to the cluster, allows makes the CAA record name the CA.
	mended, allows atomic.Bool
}

func newStage(t *testing.T) *stage {
	t.Helper()
	w := &stage{World: rig.NewWorld(t)}
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	zones := []dnsserver.Zone{
		{Name: "example.com.", Wildcard: netip.MustParseAddr(served), Records: []string{
			"port.example.com. 60 IN A " + closedAt, "page.example.com. 60 IN A " + anotherAt, "unseen.example.com. 60 IN A " + unseenAt,
			caaForbids + ". 60 IN A " + forbiddenAt, "_acme-challenge.alias.example.com. 60 IN CNAME alias.aliases.test.",
		}},
		{Name: refusing, Wildcard: netip.MustParseAddr(served)},
		{Name: failing, Wildcard: netip.MustParseAddr(served)},
		{Name: "aliases.test."},
	}
	if w.dns, err = dnsserver.Start(t.Context(), dnsserver.Config{Zones: zones, Key: key}); err != nil {
		t.Fatal(err)
	}
	w.dns.Forbid(refusing, true)
	w.dns.Fail(failing, true)
	w.web, w.behind = rig.FreeAddress(t), rig.FreeAddress(t)
	options := pebble.Options{
		DNSServer: w.dns.Addr(), HTTPPort: int(w.web.Port()), Wrap: w.trouble, Blocklist: []string{"blocked.example.com"},
		Profiles: map[string]ca.Profile{"short": {Description: "short", ValidityPeriod: 7 * 24 * 3600}},
	}
	if w.ca, err = pebble.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	options.RequireEAB, options.EABKeys = true, map[string]string{"kid": bindingKey}
	if w.bound, err = pebble.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	w.cfg = w.World.Config()
	w.cfg.ACME.RecursiveNameservers = []string{w.dns.Addr()}
	w.cfg.ACME.AuthoritativePort = w.dns.Port()
	w.cfg.ACME.HTTP01Port, w.cfg.ACME.HTTP01Address = int(w.web.Port()), w.web.String()
	w.cfg.ACME.HTTP01Nameservers = []string{w.dns.Addr()}
	w.cfg.ACME.AccountKeyAlgorithm = pki.ECDSA
	w.cfg.ACME.CheckRetryPeriod = time.Second
	programs, err := os.MkdirTemp("", "dns") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(programs) })
	w.program = filepath.Join(programs, "dns.sock")
	w.cfg.ACME.DNS01.Programs = []string{"*=unix:" + w.program}
	w.cfg.ApproveSigners = request.SignerPatterns{"issuers.cert-manager.io/*"}
	for _, name := range []string{"kind", "moved", "program", "namespace"} {
		w.cfg.ApproveSigners = append(w.cfg.ApproveSigners, "clusterissuers.cert-manager.io/"+w.ClusterName(name))
	}
	w.kubeconfig, w.viewer = rig.Kubeconfig(t, w.Admin, w.Namespace), "viewer-of-"+w.Namespace
	for _, role := range []string{"view", "cert-manager-cluster-view"} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: named(w.ClusterName(role)), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.viewer}},
		}
		w.Create(t, binding)
		t.Cleanup(func() { _ = w.Client.Delete(context.Background(), binding) })
	}
	return w
}

// acme is an issuer at the stage's CA.
func (w *stage) acme(solvers ...acmev1.ACMEChallengeSolver) certmanagerv1.IssuerSpec {
	return certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: w.ca.DirectoryURL, CABundle: w.ca.TLSBundle, Email: "ops@example.com", Solvers: solvers,
	}}
}

// byDNS updates the stage's DNS with the TSIG key in a Secret.
func (w *stage) byDNS(secret string) acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
		Nameserver: w.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256",
		TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: secret, Key: "key"},
	}}}
}

// byHTTP proves by HTTP-01; without a check, the CA is the first that looks.
func byHTTP(check bool) acmev1.ACMEChallengeSolver {
	s := acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}}
	if !check {
		s.WaitInsteadOfSelfCheck = &metav1.Duration{}
	}
	return s
}

// lead has an address serve what the responder answers, as a load balancer does that was put right.
// Until when says so, another page is there; nil is at once.
func (w *stage) lead(t *testing.T, address string, when *atomic.Bool) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(address), w.web.Port()).String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if when != nil && !when.Load() {
			_, _ = io.WriteString(out, "another page")
			return
		}
		request, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+w.web.String()+r.URL.Path, http.NoBody)
		request.Host = r.Host
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = answer.Body.Close() }()
		out.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(out, answer.Body)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// caaForbids are the names whose CAA record forbids the CA.
const caaForbids = "caa.example.com"

// front is the address of the page for people at the CA.
func (w *stage) front() string {
	return w.ca.DirectoryURL[:strings.LastIndex(w.ca.DirectoryURL, "/")+1]
}

// trouble has the ACME server show a page for people at its front, and refuse what Pebble knows no reason to refuse, in
// the words of Let's Encrypt: names that begin with "limited." because of a limit, caaForbids because of a CAA record
// until w.allows, and a key of the curve P-384 for key.example.com.
func (w *stage) trouble(next http.Handler) http.Handler {
	types := regexp.MustCompile(`"type": *"urn:ietf:params:acme:error:[a-zA-Z]+",\s*"detail": *"(?:[^"\\]|\\.)*"`)
	const caa = `"type":"urn:ietf:params:acme:error:caa","detail":"While processing CAA for caa.example.com: CAA record for example.com prevents issuance"`
	refuse := func(answer *httptest.ResponseRecorder, status int, problem string) {
		answer.Header().Set("Content-Type", "application/problem+json")
		answer.WriteHeader(status)
		_, _ = answer.WriteString(problem)
	}
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var jws struct{ Payload string }
		_ = json.Unmarshal(body, &jws)
		payload, _ := base64.RawURLEncoding.DecodeString(jws.Payload)
		answer := httptest.NewRecorder()
		switch {
		case r.URL.Path == "/":
			answer.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(answer, "<html><title>Our CA</title></html>")
		case bytes.Contains(payload, []byte(`"limited.`)):
			answer.Header().Set("Retry-After", "3600")
			refuse(answer, http.StatusTooManyRequests, `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many certificates already issued for example.com"}`)
		case badKey(payload):
			refuse(answer, http.StatusBadRequest, `{"type":"urn:ietf:params:acme:error:badCSR","detail":"ECDSA curve P-384 not allowed"}`)
		default:
			next.ServeHTTP(answer, r)
		}
		said := answer.Body.Bytes()
		if bytes.Contains(said, []byte(caaForbids)) && !w.allows.Load() {
			said = types.ReplaceAll(said, []byte(caa))
		}
		for name, values := range answer.Header() {
			if name != "Content-Length" {
				out.Header()[name] = values
			}
		}
		out.WriteHeader(answer.Code)
		_, _ = out.Write(said)
	})
}

// badKey reports whether a payload asks for a key that the CA does not take.
func badKey(payload []byte) bool {
	var finalize struct{ CSR string }
	_ = json.Unmarshal(payload, &finalize)
	der, _ := base64.RawURLEncoding.DecodeString(finalize.CSR)
	csr, err := x509.ParseCertificateRequest(der)
	return err == nil && len(csr.DNSNames) > 0 && csr.DNSNames[0] == "key.example.com" && csr.SignatureAlgorithm == x509.ECDSAWithSHA384
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// authority is a CA issuer's Secret, valid until a time; the key is that of the certificate or not.
func authority(t *testing.T, name string, ends time.Time, matching bool, limits ...func(*x509.Certificate)) *corev1.Secret {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: ends.Add(-365 * 24 * time.Hour), NotAfter: ends,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	for _, limit := range limits {
		limit(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if !matching {
		if key, err = pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: named(name), Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "tls.key": text,
	}}
}
