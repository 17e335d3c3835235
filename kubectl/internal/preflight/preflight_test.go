package preflight

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/kubectl/internal/plugin"
)

// manifest is a Certificate in YAML, and another kind that is passed over.
func manifest(name, issuer, rest string) string {
	return `{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: ` + name + `}
spec: {secretName: ` + name + `, issuerRef: {name: ` + issuer + `}, ` + rest + `}
`
}

// lineOf finds what the command says of a check.
func lineOf(out, outcome, check string) string {
	for line := range strings.Lines(out) {
		if rest, is := strings.CutPrefix(strings.TrimSpace(line), outcome+" "); is && strings.HasPrefix(strings.TrimSpace(rest), check) {
			return line
		}
	}
	return ""
}

// TestChecks: each check once as it should be, and once with something in the way.
func TestChecks(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.issuer(t, "dns", w.acme("dns", "short", w.byDNS("tsig")))
	w.issuer(t, "http", w.acme("http", "long", byHTTP()))
	w.issuer(t, "tls", w.acme("tls", "", tlsALPN()))
	follow := w.byDNS("tsig")
	follow.DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow
	w.issuer(t, "follow", w.acme("follow", "", follow))
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "accounts"}, StringData: map[string]string{"json": "{}"}})
	w.issuer(t, "acmedns", w.acme("acmedns", "", acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{
		Host: "https://acme-dns.example.net", AccountSecretRef: cmmeta.SecretKeySelector{Name: "accounts", Key: "json"},
	}}}))
	w.issuer(t, "persist", w.acme("persist", "", acmev1.ACMEChallengeSolver{DNSPersist01: &acmev1.DNSPersist01Solver{}}))
	w.persist(t, "persist.example.com", "persist")
	w.issuer(t, "self", certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}})
	w.issuer(t, "ca", w.authority(t))
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "nowhere"}}},
		&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "there"}, Spec: certmanagerv1.CertificateSpec{
			SecretName: "taken", DNSNames: []string{"there.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "self"},
		}})
	odd := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Server", "odd") }))
	t.Cleanup(odd.Close)
	noALPN := httptest.NewUnstartedServer(http.NotFoundHandler())
	noALPN.Config.ErrorLog = log.New(io.Discard, "", 0)
	noALPN.StartTLS()
	t.Cleanup(noALPN.Close)
	good, closed := ports{http: w.open, tls: w.responder}, int(rig.FreeAddress(t).Port())
	for name, c := range map[string]struct {
		issuer, rest string
		at           ports
		// want are outcome, check and a part of the line.
		want [][3]string
	}{
		"all is well": {"dns", `dnsNames: [www.example.com, "*.example.com"], privateKey: {rotationPolicy: Always}`, good, [][3]string{
			{"ok", "manifest", "dry run"}, {"ok", "secret", ""}, {"ok", "issuer", "is ready"}, {"ok", "names", "all names"},
			{"ok", "solver www.example.com", "DNS-01 by solvers[0]"}, {"ok", "solver *.example.com", "DNS-01"}, {"ok", "profile", "short"},
			{"ok", "zone www.example.com", "is in the zone example.com. according to " + w.dns.Addr()},
			{"ok", "delegation example.com.", "ns1.example.com., ns2.example.com."}, {"ok", "CAA www.example.com", "every CA"}, {"ok", "account", ""},
			{"not checked", "limits", "Let's Encrypt"},
		}},
		"a CNAME is not followed": {"dns", `dnsNames: [alias.example.com]`, good, [][3]string{{"warning", "CNAME _acme-challenge.alias.example.com", "alias.dns.example.net"}}},
		"a CNAME is followed":     {"follow", `dnsNames: [alias.example.com]`, good, [][3]string{{"ok", "CNAME", "the solver writes there"}, {"ok", "zone alias", "dns.example.net."}}},
		"acme-dns":                {"acmedns", `dnsNames: [alias.example.com]`, good, [][3]string{{"ok", "CNAME", "the solver writes there"}}},
		"no acme-dns":             {"acmedns", `dnsNames: [www.example.com]`, good, [][3]string{{"failed", "CNAME", "no CNAME leads to the acme-dns server"}}},
		"DNS-PERSIST-01":          {"persist", `dnsNames: [persist.example.com]`, good, [][3]string{{"ok", "record persist.example.com", "has the record"}}},
		"no DNS-PERSIST-01":       {"persist", `dnsNames: [www.example.com]`, good, [][3]string{{"failed", "record www.example.com", "_validation-persist.www.example.com"}}},
		"CAA allows":              {"dns", `dnsNames: [www.caa-ok.example.com]`, good, [][3]string{{"ok", "CAA", "caa-ok.example.com. lets the CA issue"}}},
		"CAA wants DNS-01":        {"http", `dnsNames: [www.caa-ok.example.com]`, good, [][3]string{{"failed", "CAA", "validationmethods is dns-01"}}},
		"CAA forbids":             {"dns", `dnsNames: ["*.caa.example.com"]`, good, [][3]string{{"failed", "CAA *.caa.example.com", "none of them names the CA"}}},
		"no zone":                 {"dns", `dnsNames: [www.example.org]`, good, [][3]string{{"failed", "zone www.example.org", "does the domain exist?"}}},
		"HTTP-01":                 {"http", `dnsNames: [www.example.com]`, good, [][3]string{{"ok", "route www.example.com", "status 404"}, {"failed", "profile", "long"}}},
		"the port is closed":      {"http", `dnsNames: [www.example.com]`, ports{http: closed}, [][3]string{{"failed", "route www.example.com", "connection refused"}}},
		"another server answers":  {"http", `dnsNames: [www.example.com]`, ports{http: portOf(odd.Listener)}, [][3]string{{"warning", "route", "status 200 by the server"}, {"failed", "profile", "long"}}},
		"a wildcard by HTTP-01":   {"http", `dnsNames: ["*.example.com"]`, good, [][3]string{{"failed", "solver *.example.com", "none of the issuer's solvers is of such a type"}}},
		"TLS-ALPN-01":             {"tls", `dnsNames: [www.example.com]`, good, [][3]string{{"ok", "route", "as the responder does"}}},
		"no TLS-ALPN-01":          {"tls", `dnsNames: [www.example.com]`, ports{tls: portOf(noALPN.Listener)}, [][3]string{{"failed", "route", "does not speak acme-tls/1"}}},
		"no port for TLS":         {"tls", `dnsNames: [www.example.com]`, ports{tls: closed}, [][3]string{{"failed", "route", "connection refused"}}},
		"the manifest is wrong":   {"self", `dnsNames: [www.example.com], dnsName: x`, good, [][3]string{{"failed", "manifest", "unknown field"}, {"warning", "limits", "self-signed"}}},
		"the Secret is taken":     {"self", `dnsNames: [www.example.com], secretName: taken`, good, [][3]string{{"failed", "secret", "Certificate there"}}},
		"the common name":         {"dns", `dnsNames: [www.example.com], commonName: web.example.com`, good, [][3]string{{"failed", "names", "commonName"}}},
		"no issuer":               {"none", `dnsNames: [www.example.com]`, good, [][3]string{{"failed", "issuer", "/none does not exist"}}},
		"the issuer is not ready": {"broken", `dnsNames: [www.example.com]`, good, [][3]string{{"failed", "issuer", "is not ready"}}},
		"another controller's":    {"x, group: example.com", `dnsNames: [www.example.com]`, good, [][3]string{{"not checked", "issuer", "another controller"}}},
		"a CA":                    {"ca", `dnsNames: [www.example.com], duration: 2h`, good, [][3]string{{"ok", "CA", "is valid until"}}},
		"a CA that ends":          {"ca", `dnsNames: [www.example.com]`, good, [][3]string{{"warning", "CA", "asks for 2160h"}}},
		"an ML-DSA key by a CA":   {"ca", `dnsNames: [www.example.com], duration: 2h, privateKey: {algorithm: MLDSA65}`, good, [][3]string{{"ok", "CA", "is valid until"}}},
		"an ML-DSA key by ACME":   {"dns", `dnsNames: [www.example.com], privateKey: {algorithm: MLDSA65}`, good, [][3]string{{"failed", "limits key", "takes no ML-DSA keys"}}},
		"a CA for other names":    {"ca", `dnsNames: [www.example.org], duration: 2h`, good, [][3]string{{"failed", "CA", "name constraints"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rest, crt := c.rest, strings.NewReplacer(" ", "-", "'", "").Replace(strings.ToLower(name))
			text := manifest(crt, c.issuer, rest)
			if strings.Contains(rest, "secretName") {
				text = strings.Replace(text, "secretName: "+crt+", ", "", 1)
			}
			wantFailed := false
			for _, want := range c.want {
				wantFailed = wantFailed || want[0] == string(preflight.Failed)
			}
			rig.Eventually(t, "preflight says so", func(ctx context.Context) string {
				out, err := w.run(ctx, c.at, text, "-")
				for _, want := range c.want {
					if line := lineOf(out, want[0], want[1]); line == "" || !strings.Contains(line, want[2]) {
						return strings.Join(want[:], " | ") + "\n" + out
					}
				}
				var exit plugin.ExitError
				if errors.As(err, &exit) != wantFailed || err != nil && exit.Code != 2 {
					return "exit: " + out
				}
				return ""
			})
		})
	}
}

// TestViewer: the role view is enough for a Certificate of the cluster; what may not be read is not checked.
func TestViewer(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.issuer(t, "dns", w.acme("dns", "short", w.byDNS("tsig")))
	w.issuer(t, "ca", w.authority(t))
	for issuer, name := range map[string]string{"dns": "web", "ca": "inner"} {
		w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: []string{name + ".example.com"}, IssuerRef: cmmeta.IssuerReference{Name: issuer},
		}})
	}
	rig.Eventually(t, "the viewer may view", func(ctx context.Context) string {
		out, err := w.run(ctx, ports{http: w.open}, "", "web", "--as", w.viewer)
		if err != nil || strings.Contains(out, "failed ") || lineOf(out, "ok", "delegation") == "" || lineOf(out, "ok", "account") == "" {
			return out
		}
		return ""
	})
	out, err := w.run(t.Context(), ports{}, manifest("other", "ca", "dnsNames: [a.example.com]"), "-f", "-", "inner", "--as", w.viewer, "-o", "json")
	if err != nil {
		t.Fatal(err, out)
	}
	var said struct{ Items []preflight.Report }
	if err := json.Unmarshal([]byte(out), &said); err != nil || len(said.Items) != 2 {
		t.Fatal(err, out)
	}
	unread := map[string]bool{}
	for _, report := range said.Items {
		for _, f := range report.Findings {
			unread[f.Check] = unread[f.Check] || f.Outcome == preflight.NotChecked
		}
	}
	if !unread["manifest"] || !unread["CA"] {
		t.Error(out)
	}
	// A name server that does not serve the zone keeps DNS-01 from being proved.
	w.dns.SetMode(1, dnsserver.Refused)
	rig.Eventually(t, "the server that does not serve the zone is named", func(ctx context.Context) string {
		out, err := w.run(ctx, ports{}, "", "web", "--as", w.viewer)
		if line := lineOf(out, "failed", "delegation"); err == nil || !strings.Contains(line, "ns2.example.com. (REFUSED)") {
			return out
		}
		return ""
	})
	w.dns.SetMode(0, dnsserver.Silent)
	out, _ = w.run(t.Context(), ports{}, "", "web", "--as", w.viewer)
	if lineOf(out, "not checked", "zone") == "" {
		t.Error(out)
	}
}

// TestStaging: another issuer issues a copy, which is removed, whatever comes of it.
func TestStaging(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.issuer(t, "self", certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}})
	text := manifest("web", "self", "dnsNames: [www.example.com], secretTemplate: {annotations: {copied: everywhere}}")
	out, err := w.run(t.Context(), ports{}, text, "-", "--staging-issuer", "self", "--timeout", "2m")
	if line := lineOf(out, "ok", "staging web-preflight-"); err != nil || !strings.Contains(line, "Issuer self has issued the certificate") {
		t.Error(err, out)
	}
	for issuer, kind := range map[string]string{"issuer/none": "Issuer", "clusterissuer/none": "ClusterIssuer"} {
		out, err := w.run(t.Context(), ports{}, text, "-", "--staging-issuer", issuer) // is not waited for
		if line := lineOf(out, "failed", "staging"); err == nil || !strings.Contains(line, kind+" none does not exist") {
			t.Error(err, out)
		}
	}
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "stuck"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "none"}}})
	rig.Eventually(t, "a staging issuer that is not ready is named", func(ctx context.Context) string {
		out, err := w.run(ctx, ports{}, text, "-", "--staging-issuer", "issuer/stuck", "--timeout", "5s")
		if line := lineOf(out, "failed", "staging web-preflight-"); err == nil || !strings.Contains(line, "/stuck is not ready") {
			return out
		}
		return ""
	})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	events := w.Watch(t, &certmanagerv1.CertificateList{})
	go func() { // interrupted as soon as the copy is there
		for event := range events {
			if event.Type == watch.Added {
				interrupt()
			}
		}
	}()
	if out, err = w.run(ctx, ports{}, text, "-", "--staging-issuer", "issuer/stuck"); !errors.Is(err, context.Canceled) {
		t.Error(err, out)
	}
	rig.Eventually(t, "nothing is left", func(ctx context.Context) string {
		list, secrets := &certmanagerv1.CertificateList{}, &corev1.SecretList{}
		if err := errors.Join(w.Client.List(ctx, list), w.Client.List(ctx, secrets)); err != nil {
			return err.Error()
		}
		left := names(list, w.Namespace)
		for i := range secrets.Items {
			if s := &secrets.Items[i]; s.Namespace == w.Namespace && strings.Contains(s.Name, "preflight") {
				left += " Secret " + s.Name
			}
		}
		return left
	})
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "web", DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "self"},
	}})
	rig.Eventually(t, "the viewer may not make the copy", func(ctx context.Context) string {
		out, err := w.run(ctx, ports{}, "", "web", "--staging-issuer", "self", "--as", w.viewer)
		if err != nil || lineOf(out, "not checked", "staging") == "" {
			return out
		}
		return ""
	})
}

func names(list *certmanagerv1.CertificateList, namespace string) (all string) {
	for i := range list.Items {
		if list.Items[i].Namespace == namespace {
			all += list.Items[i].Name + " "
		}
	}
	return all
}

// TestArguments: what is given wrongly is told, with what helps.
func TestArguments(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	for args, want := range map[string]string{
		"":                      "no Certificate is given",
		"none":                  "kubectl chancery list",
		"-f none.yaml":          "none.yaml",
		"- -o wide":             "json or yaml",
		"./none.json -n nobody": "none.json",
	} {
		if out, err := w.run(t.Context(), ports{}, "", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %s", args, err, out)
		}
	}
	if _, err := w.run(t.Context(), ports{}, "", "none"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	for ingress, want := range map[string]string{
		"tls: [{hosts: [www.example.com], secretName: ingress-tls}]": w.Namespace + "/ingress-tls",
		"rules: []":                         "no Certificate is given",
		"tls: [{hosts: [www.example.com]}]": "has no secretName",
		"tls: 1":                            "Ingress web",
	} {
		text := `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, annotations: {cert-manager.io/issuer: none}}, spec: {` + ingress + `}}`
		if out, err := w.run(t.Context(), ports{}, text, "-"); err == nil || !strings.Contains(out+err.Error(), want) {
			t.Errorf("%s: %v %s", ingress, err, out)
		}
	}
	gateway := `{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, annotations: {cert-manager.io/issuer: none}}, spec: {gatewayClassName: x,
  listeners: [{name: a, hostname: www.example.com, port: 443, protocol: HTTPS, tls: {mode: Terminate, certificateRefs: [{name: gateway-tls}]}}]}}`
	if out, err := w.run(t.Context(), ports{}, gateway, "-"); !strings.Contains(out, w.Namespace+"/gateway-tls") {
		t.Error(err, out)
	}
	list := `{apiVersion: v1, kind: List, items: [{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: listed}, spec: {secretName: x, issuerRef: {name: none}, dnsNames: [a.example.com]}}]}`
	if out, _ := w.run(t.Context(), ports{}, list, "-"); !strings.Contains(out, w.Namespace+"/listed") {
		t.Error(out)
	}
}

// TestRateLimit: the certificates that the issuer has issued in this cluster are counted, and no others.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.issuer(t, "self", certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}})
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "web", DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "self"},
	}}
	w.Create(t, crt)
	counted := func(ctx context.Context) string {
		k := &checker{client: w.Client, certificate: crt, issuer: &certmanagerv1.Issuer{}}
		k.limits(ctx, &acmev1.ACMEIssuer{Server: "https://acme-v02.api.letsencrypt.org/directory"})
		rate := k.findings[len(k.findings)-1]
		if rate.Outcome != preflight.OK || !strings.HasPrefix(rate.Message, "at least 1 of 5") {
			return fmt.Sprintf("%+v", k.findings)
		}
		return ""
	}
	rig.Eventually(t, "the certificate is counted", counted)
	w.ofAnother(t)
	if wrong := counted(t.Context()); wrong != "" {
		t.Errorf("with one of another issuer: %s", wrong)
	}
	for name, want := range map[string]string{"*.www.example.co.uk": "example.co.uk", "192.0.2.1": "192.0.2.1", "com": "com"} {
		if got := registered(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// ofAnother adds a request, with its certificate, to an issuer of another group that has the name and the kind of ours.
func (w *stage) ofAnother(t *testing.T) {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{DNSNames: []string{"www.example.com"}, PublicKey: key.Public()}
	cert, err := pki.Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	request := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "another"}, Spec: certmanagerv1.CertificateRequestSpec{
		Request: w.SigningRequest(t, "another", "").Spec.Request, IssuerRef: cmmeta.IssuerReference{Name: "self", Kind: "Issuer", Group: "ejbca-issuer.keyfactor.com"},
	}}
	w.Create(t, request)
	request.Status.Certificate = pki.EncodeCertificates(cert)
	if err := w.Client.Status().Update(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}

// authority adds the Secret of a CA for names below example.com, which ends in a day.
func (w *stage) authority(t *testing.T) certmanagerv1.IssuerSpec {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, PermittedDNSDomains: []string{"example.com"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "authority"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "tls.key": text,
	}})
	return certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "authority"}}
}
