package vault

import (
	"crypto/x509"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/bounds"
)

const signPath = "/v1/pki/sign/web"

func plain(s *httptest.Server) { s.Start() }

func TestSign(t *testing.T) {
	vault := newStandIn(t, plain)
	w := newWorld(t, vault)
	issuer := w.issuer("team", func(v *certmanagerv1.VaultIssuer) { w.byToken(v); v.Namespace = "ns1/"; v.Path = "/pki/sign/web" })
	r := request(t, "r", "CertificateRequest")
	result, err := w.sign(issuer, r)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := pki.DecodeCertificate(result.Bundle.Chain)
	if err != nil {
		t.Fatal(err)
	}
	if want := certPEM(leaf, vault.sub); string(result.Bundle.Chain) != want || leaf.Subject.CommonName != "leaf" {
		t.Errorf("chain %s", result.Bundle.Chain)
	}
	if string(result.Bundle.CA) != certPEM(vault.root) {
		t.Errorf("CA %s", result.Bundle.CA)
	}
	calls := vault.seen(signPath)
	if len(calls) != 1 {
		t.Fatalf("signed %d times", len(calls))
	}
	calls[0].header = nil // beside those two
	want := call{method: "POST", path: signPath, token: "s.fixed", namespace: "ns1/", body: map[string]any{
		"common_name": "leaf", "alt_names": "a.example.com,b.example.com", "ip_sans": "10.0.0.1,fd00::1", "uri_sans": "spiffe://x/y",
		"ttl": "36h0m0s", "csr": string(r.CSR), "exclude_cn_from_sans": "true",
	}}
	if !reflect.DeepEqual(calls[0], want) {
		t.Errorf("sent %+v, want %+v", calls[0], want)
	}
	if result.Warning != "" {
		t.Errorf("warning %q", result.Warning)
	}
}

// TestSignForPod: the names of a Pod are parameters, since its request has none. A role makes certificates begin half a
// minute before now, and the whole lifetime is what the Pod is allowed.
func TestSignForPod(t *testing.T) {
	vault := newStandIn(t, plain)
	w := newWorld(t, vault)
	key := newKey(t)
	csr, err := pki.CreateCSR(pki.CSRTemplate{}, key)
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, "r", "PodCertificateRequest")
	r.CSR, r.Duration, r.Names = csr, 24*time.Hour, &pki.AltNames{URIs: []string{"spiffe://x/ns/a/sa/b"}, DNSNames: []string{"a.b.svc", "a.b.svc.cluster.local"}}
	if _, err := w.sign(w.issuer("team", w.byToken), r); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"common_name": "", "alt_names": "a.b.svc,a.b.svc.cluster.local", "ip_sans": "", "uri_sans": "spiffe://x/ns/a/sa/b",
		"ttl": "23h59m30s", "csr": string(csr), "exclude_cn_from_sans": "true",
	}
	if calls := vault.seen(signPath); len(calls) != 1 || !reflect.DeepEqual(calls[0].body, want) {
		t.Errorf("sent %+v, want %+v", calls, want)
	}
}

// What Vault says decides whether a request fails, and how soon it is tried again.
func TestSignRefused(t *testing.T) {
	final := fault.Fault{Kind: fault.KindTerminal, Class: fault.ClassPolicy}
	away := fault.Fault{Kind: fault.KindAfter, Class: fault.ClassUnavailable}
	denied := fault.Fault{Kind: fault.KindAfter, Class: fault.ClassCredential}
	misplaced := fault.Fault{Kind: fault.KindAfter, Class: fault.ClassNotFound, Delay: misplacedAgain}
	bounds.Holds(t, "answer of Vault", func(n int) limits.Outcome {
		const before, after = `{"data":{"x":"`, `"}}`
		vault := newStandIn(t, plain)
		vault.say[signPath] = answering{200, before + strings.Repeat("x", n-len(before)-len(after)) + after}
		w := newWorld(t, vault)
		_, err := w.sign(w.issuer("team", w.byToken), request(t, "r", "CertificateRequest"))
		if err != nil && strings.Contains(err.Error(), "has to be one that signs") {
			return limits.Taken
		}
		return bounds.Refusal(t, err, "longer than 256 KiB")
	})
	for _, c := range []struct {
		name string
		code int
		text string
		want fault.Fault
		says string
	}{
		{"rejected", 400, "common name leaf not allowed by this role", final, "will not sign this request: common name leaf not allowed"},
		{"role missing", 400, "unknown role: web", misplaced, "create the role"},
		{"denied", 403, "1 error occurred:\n\t* permission denied\n\n", denied, `sign at "pki/sign/web" (403): 1 error occurred: * permission denied: give it a policy`},
		{"path missing", 404, "no handler for route", misplaced, "mount a PKI engine"},
		{"broken", 500, "internal error", away, "is out of order (500): internal error"},
		{"quota", 429, "rate limit quota exceeded", away, "out of order (429)"},
		{"sealed", 503, "Vault is sealed", away, "is sealed: unseal it"},
		{"no Vault", 200, "<html>hello", away, "is spec.vault.server the address of a Vault server?"},
		{"no Vault, and no secret of it told", 404, "<meta>inside", misplaced, "(404): Not Found, in words that are not Vault's: is spec.vault.server the address of a Vault server?"},
		{"a proxy's word is no verdict", 400, "<html>bad request", misplaced, `answered 400 at "pki/sign/web": Bad Request, in words that are not Vault's`},
		{"no certificate", 200, `{"data":{}}`, final, "has to be one that signs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vault := newStandIn(t, plain)
			vault.say[signPath] = answering{c.code, c.text}
			w := newWorld(t, vault)
			issuer := w.issuer("team", w.byToken)
			for kind, reason := range map[string]string{"CertificateRequest": "SigningError", "CertificateSigningRequest": "ErrorSigning"} {
				_, err := w.sign(issuer, request(t, kind, kind))
				f := fault.Of(err)
				if f == nil || f.Kind != c.want.Kind || f.Class != c.want.Class || f.Delay != c.want.Delay || f.Reason != reason || !strings.Contains(f.Error(), c.says) {
					t.Errorf("%s: %+v, want %+v, reason %s, text %q", kind, f, c.want, reason, c.says)
					continue
				}
				if strings.Contains(f.Error(), "inside") {
					t.Errorf("%s: a server that is not Vault is quoted to whoever made the issuer: %q", kind, f)
				}
				if !strings.Contains(f.Error(), vault.URL) || strings.Contains(f.Error(), "\n") {
					t.Errorf("%s: the text does not say which server, or not on one line: %q", kind, f)
				}
			}
		})
	}
}

// A certificate with another key means a path that makes keys: it is never handed out.
func TestForeignKeyIsRefused(t *testing.T) {
	vault := newStandIn(t, plain)
	vault.signing = func(*x509.CertificateRequest) (*x509.Certificate, error) { return vault.sub, nil }
	w := newWorld(t, vault)
	_, err := w.sign(w.issuer("team", w.byToken), request(t, "r", "CertificateRequest"))
	if !fault.IsTerminal(err) || !strings.Contains(err.Error(), "public key is not that of the request") {
		t.Errorf("%v", err)
	}
}

// A path that signs leaves only signs them whatever is asked, and the requester is told.
func TestLeafForCA(t *testing.T) {
	w := newWorld(t, newStandIn(t, plain))
	r := request(t, "r", "CertificateRequest")
	r.IsCA = true
	result, err := w.sign(w.issuer("team", w.byToken), r)
	if err != nil || result.WarningReason != "BasicConstraintsDiffer" || !strings.Contains(result.Warning, `isCA is true in the request and false in the certificate: that is up to Vault's path "pki/sign/web"`) {
		t.Errorf("%+v, %v", result, err)
	}
}

// A path that signs CAs only makes nobody a CA who has not asked for it by CertificateSigningRequest: it was not
// asked then whether the requester may.
func TestCAForLeaf(t *testing.T) {
	vault, key := newStandIn(t, plain), newKey(t)
	above := issue(t, "above", true, key, nil, key)
	vault.signing = func(csr *x509.CertificateRequest) (*x509.Certificate, error) { return issueFor(csr, true, above, key) }
	w := newWorld(t, vault)
	result, err := w.sign(w.issuer("team", w.byToken), request(t, "r", "CertificateSigningRequest"))
	if !fault.IsTerminal(err) || !strings.Contains(err.Error(), "CA certificate, which was not asked for") || len(result.Bundle.Chain) > 0 {
		t.Errorf("%v, %s", err, result.Bundle.Chain)
	}
}

func TestRequestThatIsNoCSR(t *testing.T) {
	w := newWorld(t, newStandIn(t, plain))
	r := request(t, "r", "CertificateRequest")
	r.CSR = []byte("nonsense")
	if _, err := w.sign(w.issuer("team", w.byToken), r); !fault.IsTerminal(err) {
		t.Errorf("%v", err)
	}
	if n := len(w.vault.seen(signPath)); n != 0 {
		t.Errorf("Vault was asked %d times", n)
	}
}

// A sealed Vault is asked again with the same request, and signs once it is unsealed.
func TestOutage(t *testing.T) {
	vault := newStandIn(t, plain)
	w := newWorld(t, vault)
	issuer, r := w.issuer("team", w.byToken), request(t, "r", "CertificateRequest")
	vault.with(func() { vault.sealed = true })
	if _, err := w.sign(issuer, r); fault.Of(err) == nil || fault.Of(err).Class != fault.ClassUnavailable {
		t.Fatalf("%v", err)
	}
	vault.with(func() { vault.sealed = false })
	if _, err := w.sign(issuer, r); err != nil {
		t.Fatal(err)
	}
}

// A changed Secret is used at once.
func TestChangedSecret(t *testing.T) {
	vault := newStandIn(t, plain)
	w := newWorld(t, vault)
	issuer, r := w.issuer("team", w.byToken), request(t, "r", "CertificateRequest")
	w.secrets.put("team", "token", map[string]string{"token": "s.old"})
	if _, err := w.sign(issuer, r); fault.Of(err) == nil || fault.Of(err).Class != fault.ClassCredential {
		t.Fatalf("%v", err)
	}
	w.secrets.put("team", "token", map[string]string{"token": "s.fixed"})
	if _, err := w.sign(issuer, r); err != nil {
		t.Fatal(err)
	}
}

func TestSecretMissing(t *testing.T) {
	w := newWorld(t, newStandIn(t, plain))
	issuer := w.issuer("team", func(v *certmanagerv1.VaultIssuer) {
		v.Auth.TokenSecretRef = &cmmeta.SecretKeySelector{Name: "token", Key: "t"}
	})
	for kind, reason := range map[string]string{"CertificateRequest": "SecretMissing", "CertificateSigningRequest": "SecretNotFound"} {
		_, err := w.sign(issuer, request(t, kind, kind))
		if f := fault.Of(err); f == nil || f.Kind != fault.KindPending || f.Reason != reason || !strings.Contains(f.Error(), "Secret team/token does not exist") {
			t.Errorf("%s: %+v", kind, f)
		}
	}
	w.secrets.put("team", "token", map[string]string{"token": "x"})
	if _, f := w.probe(issuer); f == nil || f.Kind != fault.KindPending || f.Reason != "VaultError" || !strings.Contains(f.Error(), `has no entry "t"`) {
		t.Errorf("%+v", f)
	}
}

// TestLargeInputs: a bundle and a credential of more than their bounds are refused before anybody is asked, and the
// issuer says so.
func TestLargeInputs(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n+1) }
	for says, change := range map[string]func(*certmanagerv1.VaultIssuer){
		"spec.vault.caBundle has more than 330000 bytes": func(v *certmanagerv1.VaultIssuer) { v.CABundle = []byte(long(limits.BundlePEM)) },
		`entry "ca.crt" of Secret team/large has more than 330000 bytes`: func(v *certmanagerv1.VaultIssuer) {
			v.CABundle, v.CABundleSecretRef = nil, &cmmeta.SecretKeySelector{Name: "large"}
		},
		`entry "t" of Secret team/large has more than 65536 bytes`: func(v *certmanagerv1.VaultIssuer) {
			v.Auth.TokenSecretRef = &cmmeta.SecretKeySelector{Name: "large", Key: "t"}
		},
	} {
		w := newWorld(t, newStandIn(t, plain))
		w.secrets.put("team", "large", map[string]string{"ca.crt": long(limits.BundlePEM), "t": long(limits.CredentialBytes)})
		if _, f := w.probe(w.issuer("team", change)); f == nil || f.Kind != fault.KindPending || !strings.Contains(f.Error(), says) {
			t.Errorf("%s: %v", says, f)
		}
	}
}

func TestGarbledLogin(t *testing.T) {
	vault := newStandIn(t, plain)
	w := newWorld(t, vault)
	vault.say["/v1/auth/approle/login"] = answering{200, `{"auth":null}`}
	_, err := w.sign(w.issuer("team", w.byAppRole), request(t, "r", "CertificateRequest"))
	if f := fault.Of(err); f == nil || f.Reason != "VaultInitError" || !strings.Contains(f.Error(), "gave no token") {
		t.Errorf("%v", err)
	}
}

// Whatever a server answers, a status quotes at most 512 bytes of it: whoever may create an Issuer names the server.
func TestQuotesAreShort(t *testing.T) {
	long := strings.Repeat("7", 600)
	for name, c := range map[string]struct {
		path, text string
		code       int
		says       string
	}{
		"a refusal":   {signPath, "long " + long, 400, "will not sign this request: long 777"},
		"a login":     {"/v1/auth/approle/login", `{"auth":{"client_token":"t","lease_duration":` + long + `}}`, 200, "the answer makes no sense"},
		"no chain":    {signPath, "", 0, `the certificates "CN=sub" and "CN=777`},
		"many errors": {signPath, strings.Repeat("7\n", 600), 400, "will not sign this request: 7 7"},
	} {
		vault := newStandIn(t, plain)
		if vault.say[c.path] = (answering{c.code, c.text}); c.code == 0 {
			delete(vault.say, c.path)
			key := newKey(t)
			vault.root = issue(t, long, true, key, nil, key)
		}
		w := newWorld(t, vault)
		_, err := w.sign(w.issuer("team", w.byAppRole), request(t, "r", "CertificateRequest"))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Count(err.Error(), "7") > 512 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
