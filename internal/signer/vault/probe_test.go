package vault

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/signer"
)

func TestProbe(t *testing.T) {
	vault := newStandIn(t, plain)
	w := newWorld(t, vault)
	issuer := w.issuer("team", func(v *certmanagerv1.VaultIssuer) { w.byAppRole(v); v.Namespace = "ns1" })
	facts, f := w.probe(issuer)
	if want := (signer.Facts{Ready: true, Reason: "VaultVerified", Message: "Vault verified"}); f != nil || !reflect.DeepEqual(facts, want) {
		t.Fatalf("%+v, %v", facts, f)
	}
	health, logins := vault.seen("/v1/sys/health"), vault.seen("/v1/auth/approle/login")
	if len(health) != 1 || health[0].namespace != "" || len(logins) != 1 || logins[0].namespace != "ns1" {
		t.Errorf("health %+v, logins %+v: want one of each, the namespace with the login alone", health, logins)
	}
	if want := map[string]any{"role_id": "role", "secret_id": "secret"}; logins[0].method != "POST" || !reflect.DeepEqual(logins[0].body, want) {
		t.Errorf("login %+v, want %v", logins[0], want)
	}
	if _, err := w.sign(issuer, request(t, "r", "CertificateRequest")); err != nil {
		t.Fatal(err)
	}
	if n := len(vault.seen("/v1/auth/approle/login")); n != 1 {
		t.Errorf("%d logins: want the one of the probe to serve the request", n)
	}
}

func TestProbeOfBadSpec(t *testing.T) {
	w := newWorld(t, newStandIn(t, plain))
	account := &acmev1.ServiceAccountRef{Name: "sa"}
	for _, c := range []struct {
		name   string
		change func(*certmanagerv1.VaultIssuer)
		says   string
	}{
		{"no server", func(v *certmanagerv1.VaultIssuer) { v.Server = "" }, "spec.vault.server: must not be empty"},
		{"no address", func(v *certmanagerv1.VaultIssuer) { v.Server = "vault.example.com" }, `"vault.example.com" is not an address`},
		{"no path", func(v *certmanagerv1.VaultIssuer) { v.Path = "/" }, "spec.vault.path: must not be empty"},
		{"path upwards", func(v *certmanagerv1.VaultIssuer) { v.Path = "pki/sign/../../sys/seal" }, "spec.vault.path: must not contain a segment '..'"},
		{"app role upwards", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{AppRole: &certmanagerv1.VaultAppRole{Path: "../sys"}}
		}, "spec.vault.auth.appRole.path: must not contain"},
		{"certificate upwards", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{ClientCertificate: &certmanagerv1.VaultClientCertificateAuth{Path: "/v1/.."}}
		}, "spec.vault.auth.clientCertificate.mountPath: must not contain"},
		{"kubernetes upwards", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{Kubernetes: &certmanagerv1.VaultKubernetesAuth{Path: "..", Role: "r"}}
		}, "spec.vault.auth.kubernetes.mountPath: must not contain"},
		{"AWS upwards", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{AWS: &certmanagerv1.VaultAWSAuth{Path: "x/../y", Role: "r"}}
		}, "spec.vault.auth.aws.mountPath: must not contain"},
		{"two bundles", func(v *certmanagerv1.VaultIssuer) {
			v.CABundle, v.CABundleSecretRef = []byte("x"), &cmmeta.SecretKeySelector{Name: "ca-bundle"}
		}, `spec.vault.caBundle: Invalid value: "<snip>": specified caBundle and caBundleSecretRef cannot be used together`},
		{"two bundles, the other", func(v *certmanagerv1.VaultIssuer) {
			v.CABundle, v.CABundleSecretRef = []byte("x"), &cmmeta.SecretKeySelector{Name: "ca-bundle"}
		}, `spec.vault.caBundleSecretRef: Invalid value: "ca-bundle": specified caBundleSecretRef and caBundle cannot be used together`},
		{"bundle of nothing", func(v *certmanagerv1.VaultIssuer) { v.CABundle = []byte("x") }, "spec.vault.caBundle holds no certificate"},
		{"bundle missing", func(v *certmanagerv1.VaultIssuer) { v.CABundleSecretRef = &cmmeta.SecretKeySelector{Name: "none"} },
			`Secret team/none does not exist: create it with the entry "ca.crt"`},
		{"certificate without key", func(v *certmanagerv1.VaultIssuer) { v.ClientCertSecretRef = &cmmeta.SecretKeySelector{Name: "x"} }, "belong together"},
		{"no method", func(v *certmanagerv1.VaultIssuer) { v.Auth = certmanagerv1.VaultAuth{} }, "no auth method is set: set one of tokenSecretRef, appRole, clientCertificate, kubernetes, aws"},
		{"two methods", w.byAppRole, "tokenSecretRef and appRole are set together: keep one of them"},
		{"no role id", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{AppRole: &certmanagerv1.VaultAppRole{}}
		}, "set roleId"},
		{"no certificate", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{ClientCertificate: &certmanagerv1.VaultClientCertificateAuth{}}
		}, "no certificate to show: set secretName"},
		{"no token", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{Kubernetes: &certmanagerv1.VaultKubernetesAuth{Role: "r"}}
		}, "exactly one of secretRef and serviceAccountRef"},
		{"no AWS role", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{AWS: &certmanagerv1.VaultAWSAuth{}}
		}, "aws.role: must not be empty"},
		{"half an AWS identity", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{AWS: &certmanagerv1.VaultAWSAuth{Role: "r", ServiceAccountRef: account}}
		}, "serviceAccountRef and iamRoleArn belong together"},
		{"region that is another host", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{AWS: &certmanagerv1.VaultAWSAuth{Role: "r", IAMRoleARN: "arn", ServiceAccountRef: account, Region: "eu.evil.example/?"}}
		}, `aws.region: "eu.evil.example/?" is no region`},
		{"ambient", func(v *certmanagerv1.VaultIssuer) {
			v.Auth = certmanagerv1.VaultAuth{AWS: &certmanagerv1.VaultAWSAuth{Role: "r"}}
		}, "lends its own AWS credentials to no Issuer"},
	} {
		issuer := w.issuer("team", func(v *certmanagerv1.VaultIssuer) { w.byToken(v); c.change(v) })
		_, f := w.probe(issuer)
		if f == nil || f.Reason != "VaultError" || !strings.Contains(f.Error(), c.says) {
			t.Errorf("%s: %v, want words with %q", c.name, f, c.says)
		}
		if f == nil || f.Kind != fault.KindPending {
			t.Errorf("%s: %+v, want it to wait for an event", c.name, f)
		}
	}
	if n := len(w.vault.calls); n != 0 {
		t.Errorf("Vault was asked %d times", n)
	}
}

func TestProbeInTrouble(t *testing.T) {
	const away, refused = fault.ClassUnavailable, fault.ClassCredential
	for _, c := range []struct {
		name  string
		fail  func(v *standIn)
		class fault.Class
		says  string
	}{
		{"sealed", func(v *standIn) { v.sealed = true }, away, "is sealed: unseal it"},
		{"not initialised", func(v *standIn) { v.say["/v1/sys/health"] = answering{200, `{"initialized":false}`} }, away, "is not initialised"},
		{"health breaks", func(v *standIn) { v.say["/v1/sys/health"] = answering{502, "bad gateway"} }, away, "out of order (502): bad gateway"},
		{"login refused", func(v *standIn) { v.say["/v1/auth/approle/login"] = answering{400, "invalid role or secret ID"} }, refused,
			"refused to log in by appRole (400): invalid role or secret ID: correct spec.vault.auth"},
		{"login breaks", func(v *standIn) { v.say["/v1/auth/approle/login"] = answering{500, "storage"} }, away, "out of order (500): storage"},
		{"gone", func(v *standIn) { v.Close() }, away, "connection refused"},
	} {
		vault := newStandIn(t, plain)
		vault.with(func() { c.fail(vault) })
		w := newWorld(t, vault)
		issuer := w.issuer("team", w.byAppRole)
		_, f := w.probe(issuer)
		if f == nil || f.Reason != "VaultError" || !strings.Contains(f.Error(), c.says) || !strings.Contains(f.Error(), vault.URL) {
			t.Errorf("%s: %v, want words with %q", c.name, f, c.says)
		}
		if f == nil || f.Kind != fault.KindAfter || f.Class != c.class {
			t.Errorf("%s: %+v, want another try, as %s", c.name, f, c.class)
		}
		if _, again := w.probe(issuer); again == nil || again.Error() != f.Error() {
			t.Errorf("%s: the words of the same trouble change, and so would the status:\n%s\n%s", c.name, f, again)
		}
	}
}

// A port that differs from try to try would be a write of the status each time.
func TestSameTroubleSameText(t *testing.T) {
	timeout := func(port string) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
			Err: "read udp 10.0.0.7:" + port + "->10.96.0.10:53: i/o timeout", Name: "vault.example.com", IsTimeout: true,
		}}
	}
	first, second := unreachable(timeout("41001")), unreachable(timeout("41002"))
	if first != second || !strings.Contains(first, "vault.example.com") {
		t.Errorf("%q, then %q", first, second)
	}
}

func TestSealedThenUnsealed(t *testing.T) {
	vault := newStandIn(t, plain)
	vault.sealed = true
	w := newWorld(t, vault)
	issuer := w.issuer("team", w.byAppRole)
	if _, f := w.probe(issuer); f == nil {
		t.Fatal("a sealed Vault is in order")
	}
	vault.with(func() { vault.sealed = false })
	if _, f := w.probe(issuer); f != nil {
		t.Error(f)
	}
}

func TestLease(t *testing.T) {
	vault := newStandIn(t, plain)
	vault.lease = 100
	w := newWorld(t, vault)
	issuer := w.issuer("team", w.byAppRole)
	sign := func(name string, logins int) {
		t.Helper()
		if _, err := w.sign(issuer, request(t, name, "CertificateRequest")); err != nil {
			t.Fatal(err)
		}
		if got := len(vault.seen("/v1/auth/approle/login")); got != logins {
			t.Errorf("%s: %d logins, want %d", name, got, logins)
		}
	}
	sign("first", 1)
	w.step(89 * time.Second)
	sign("within the lease", 1)
	w.step(time.Second)
	sign("at nine tenths of it", 2)
	vault.with(func() { vault.valid = map[string]bool{} })
	sign("revoked", 3)
	vault.with(func() { vault.lease = 0 })
	w.step(time.Hour)
	sign("a lease without end", 4)
	w.step(1000 * time.Hour)
	sign("much later", 4)
}

// Requests that come at once share one login.
func TestOneLoginForMany(t *testing.T) {
	vault := newStandIn(t, plain)
	w := newWorld(t, vault)
	issuer := w.issuer("team", w.byAppRole)
	const many = 20
	var all sync.WaitGroup
	for i := range many {
		r := request(t, fmt.Sprint("r", i), "CertificateRequest")
		all.Go(func() {
			if _, err := w.Sign(t.Context(), issuer, r); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n, m := len(vault.seen("/v1/auth/approle/login")), len(vault.seen(signPath)); n != 1 || m != many {
		t.Errorf("%d logins and %d signatures, want 1 and %d", n, m, many)
	}
}

// Refused with a token that was got just now is refused: no second login.
func TestDeniedAfterLogin(t *testing.T) {
	vault := newStandIn(t, plain)
	vault.say[signPath] = answering{403, "permission denied"}
	w := newWorld(t, vault)
	issuer := w.issuer("team", w.byAppRole)
	if _, err := w.sign(issuer, request(t, "r", "CertificateRequest")); fault.Of(err) == nil || fault.Of(err).Class != fault.ClassCredential {
		t.Fatalf("%v", err)
	}
	if n, m := len(vault.seen("/v1/auth/approle/login")), len(vault.seen(signPath)); n != 1 || m != 1 {
		t.Errorf("%d logins and %d tries, want one of each", n, m)
	}
}

func TestTLS(t *testing.T) {
	caKey, clientKey := newKey(t), newKey(t)
	clients := issue(t, "clients", true, caKey, nil, caKey)
	cert := issue(t, "chancery", false, clientKey, clients, caKey)
	vault := newStandIn(t, func(s *httptest.Server) {
		s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
		s.StartTLS()
	})
	w := newWorld(t, vault)
	w.secrets.put("team", "bundle", map[string]string{"ca.crt": serverPEM(vault.Server)})
	w.secrets.put("team", "more", map[string]string{"ca.crt": serverPEM(vault.Server) + keyPEM(t, caKey)})
	w.secrets.put("team", "pair", map[string]string{"tls.crt": certPEM(cert), "tls.key": keyPEM(t, clientKey)})
	w.secrets.put("team", "other", map[string]string{"tls.crt": certPEM(clients), "tls.key": keyPEM(t, caKey)})
	pair := &cmmeta.SecretKeySelector{Name: "pair"}
	for _, c := range []struct {
		name   string
		change func(*certmanagerv1.VaultIssuer)
		says   string
		shown  *x509.Certificate
	}{
		{"bundle", func(v *certmanagerv1.VaultIssuer) { v.CABundle = []byte(serverPEM(vault.Server)) }, "", nil},
		{"bundle in a Secret", func(v *certmanagerv1.VaultIssuer) { v.CABundleSecretRef = &cmmeta.SecretKeySelector{Name: "bundle"} }, "", nil},
		{"more than a bundle in a Secret", func(v *certmanagerv1.VaultIssuer) { v.CABundleSecretRef = &cmmeta.SecretKeySelector{Name: "more"} }, "", nil},
		{"no bundle", func(*certmanagerv1.VaultIssuer) {}, "certificate cannot be verified: x509: ", nil},
		{"another bundle", func(v *certmanagerv1.VaultIssuer) { v.CABundle = []byte(certPEM(clients)) }, "set spec.vault.caBundle or caBundleSecretRef to the CA of the server", nil},
		{"server name", func(v *certmanagerv1.VaultIssuer) {
			v.CABundle, v.ServerName = []byte(serverPEM(vault.Server)), "example.com"
		}, "", nil},
		{"another server name", func(v *certmanagerv1.VaultIssuer) {
			v.CABundle, v.ServerName = []byte(serverPEM(vault.Server)), "elsewhere.example.net"
		}, "elsewhere.example.net", nil},
		{"client certificate", func(v *certmanagerv1.VaultIssuer) {
			v.CABundle, v.ClientCertSecretRef, v.ClientKeySecretRef = []byte(serverPEM(vault.Server)), pair, pair
		}, "", cert},
		{"client key of another", func(v *certmanagerv1.VaultIssuer) {
			v.CABundle, v.ClientCertSecretRef, v.ClientKeySecretRef = []byte(serverPEM(vault.Server)), pair, &cmmeta.SecretKeySelector{Name: "other"}
		}, "the client certificate for Vault in Secret team/pair", nil},
	} {
		vault.with(func() { vault.calls = nil })
		issuer := w.issuer("team", func(v *certmanagerv1.VaultIssuer) { w.byToken(v); c.change(v) })
		facts, f := w.probe(issuer)
		if (f == nil) != (c.says == "") || f != nil && !strings.Contains(f.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, f, c.says)
		}
		leftOut := ""
		if strings.HasPrefix(c.name, "more") {
			leftOut = `entry "ca.crt" of Secret team/more is used without what is no certificate in it: PEM block 2 is a`
		}
		if !strings.HasPrefix(facts.LeftOut, leftOut) || (facts.LeftOut == "") != (leftOut == "") {
			t.Errorf("%s: left out: %q", c.name, facts.LeftOut)
		}
		if c.says != "" {
			continue
		}
		shown := vault.seen("/v1/sys/health")[0].shown
		if (c.shown == nil) != (len(shown) == 0) || c.shown != nil && !shown[0].Equal(c.shown) {
			t.Errorf("%s: showed %d certificates", c.name, len(shown))
		}
	}
}

func TestClientCertificateAuth(t *testing.T) {
	key := newKey(t)
	cert := issue(t, "chancery", false, key, nil, key)
	vault := newStandIn(t, func(s *httptest.Server) {
		s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
		s.StartTLS()
	})
	for _, c := range []struct {
		name   string
		auth   certmanagerv1.VaultClientCertificateAuth
		path   string
		body   map[string]any
		byConn bool
	}{
		{"own Secret", certmanagerv1.VaultClientCertificateAuth{SecretName: "pair", Name: "web"}, "/v1/auth/cert/login", map[string]any{"name": "web"}, false},
		{"that of the connection", certmanagerv1.VaultClientCertificateAuth{Path: "/v1/auth/mine/"}, "/v1/auth/mine/login", map[string]any{}, true},
		{"mount without v1", certmanagerv1.VaultClientCertificateAuth{Path: "auth/mine", SecretName: "pair"}, "/v1/auth/mine/login", map[string]any{}, false},
	} {
		w := newWorld(t, vault)
		w.secrets.put("team", "pair", map[string]string{"tls.crt": certPEM(cert), "tls.key": keyPEM(t, key)})
		vault.with(func() { vault.calls = nil })
		_, f := w.probe(w.issuer("team", func(v *certmanagerv1.VaultIssuer) {
			v.CABundle, v.Auth.ClientCertificate = []byte(serverPEM(vault.Server)), &c.auth
			if c.byConn {
				v.ClientCertSecretRef, v.ClientKeySecretRef = &cmmeta.SecretKeySelector{Name: "pair"}, &cmmeta.SecretKeySelector{Name: "pair"}
			}
		}))
		if f != nil {
			t.Errorf("%s: %v", c.name, f)
			continue
		}
		logins := vault.seen(c.path)
		if len(logins) != 1 || !reflect.DeepEqual(logins[0].body, c.body) || len(logins[0].shown) != 1 || !logins[0].shown[0].Equal(cert) {
			t.Errorf("%s: %+v", c.name, logins)
		}
	}
}

func TestKubernetesAuth(t *testing.T) {
	ref := &acmev1.ServiceAccountRef{Name: "sa", TokenAudiences: []string{"mine"}}
	vault := newStandIn(t, plain)
	for _, c := range []struct {
		name, namespace string
		auth            certmanagerv1.VaultKubernetesAuth
		path, jwt       string
	}{
		{"Secret", "team", certmanagerv1.VaultKubernetesAuth{Role: "r", SecretRef: cmmeta.SecretKeySelector{Name: "jwt"}}, "/v1/auth/kubernetes/login", "ey.x"},
		{"bound token of an Issuer", "team", certmanagerv1.VaultKubernetesAuth{Role: "r", Path: "/v1/auth/k8s", ServiceAccountRef: ref}, "/v1/auth/k8s/login",
			"team/sa for mine vault://team/v " + vault.URL},
		{"bound token of a ClusterIssuer", "", certmanagerv1.VaultKubernetesAuth{Role: "r", ServiceAccountRef: ref}, "/v1/auth/kubernetes/login",
			clusterNamespace + "/sa for mine vault://v " + vault.URL},
		// Else whoever writes the issuer would have the rights of the controller, by a token for the API server.
		{"bound token of the controller", "", certmanagerv1.VaultKubernetesAuth{Role: "r", ServiceAccountRef: &acmev1.ServiceAccountRef{
			Name: "cert-manager", TokenAudiences: []string{"https://kubernetes.default.svc", "vault://other"},
		}}, "/v1/auth/kubernetes/login", clusterNamespace + "/cert-manager for vault://v"},
	} {
		w := newWorld(t, vault)
		w.secrets.put("team", "jwt", map[string]string{"token": "ey.x\n"})
		vault.with(func() { vault.calls = nil })
		if _, f := w.probe(w.issuer(c.namespace, func(v *certmanagerv1.VaultIssuer) { v.Auth.Kubernetes = &c.auth })); f != nil {
			t.Errorf("%s: %v", c.name, f)
			continue
		}
		logins := vault.seen(c.path)
		if want := map[string]any{"role": "r", "jwt": c.jwt}; len(logins) != 1 || !reflect.DeepEqual(logins[0].body, want) {
			t.Errorf("%s: %+v, want %v", c.name, logins, want)
		}
	}
}

func TestTokenRequestFails(t *testing.T) {
	accounts := schema.GroupResource{Resource: "serviceaccounts"}
	for _, c := range []struct {
		err   error
		class fault.Class
		says  string
	}{
		{apierrors.NewNotFound(accounts, "sa"), fault.ClassNotFound, "service account team/sa does not exist: create it"},
		{apierrors.NewForbidden(accounts, "sa", errors.New("no")), fault.ClassNotFound, "grant the controller's service account create on serviceaccounts/token for it"},
		{errors.New("away"), fault.ClassUnavailable, "ask for a token of service account team/sa: away"},
	} {
		w := newWorld(t, newStandIn(t, plain))
		w.tokens.err = c.err
		_, f := w.probe(w.issuer("team", func(v *certmanagerv1.VaultIssuer) {
			v.Auth.Kubernetes = &certmanagerv1.VaultKubernetesAuth{Role: "r", ServiceAccountRef: &acmev1.ServiceAccountRef{Name: "sa"}}
		}))
		if f == nil || f.Class != c.class || !strings.Contains(f.Error(), c.says) {
			t.Errorf("%v: %+v", c.err, f)
		}
	}
}

// What Vault's library would take from the environment is not the issuer's.
func TestEnvironmentIsNotUsed(t *testing.T) {
	for name, value := range map[string]string{
		"VAULT_TOKEN": "s.other", "VAULT_NAMESPACE": "other", "VAULT_HEADERS": `{"X-Other":"1"}`, "VAULT_ADDR": "http://other.example.com",
		"VAULT_WRAP_TTL": "60s", "VAULT_CLIENT_TIMEOUT": "1", "VAULT_MAX_RETRIES": "9",
	} {
		t.Setenv(name, value)
	}
	vault := newStandIn(t, plain)
	w := newWorld(t, vault)
	issuer := w.issuer("team", w.byAppRole)
	if _, f := w.probe(issuer); f != nil {
		t.Fatal(f)
	}
	if _, err := w.sign(issuer, request(t, "r", "CertificateRequest")); err != nil {
		t.Fatal(err)
	}
	vault.with(func() {
		for _, c := range vault.calls {
			if c.namespace != "" || c.header.Get("X-Other") != "" || c.header.Get("X-Vault-Wrap-TTL") != "" {
				t.Errorf("%s: %v", c.path, c.header)
			}
			if want := map[string]string{signPath: "s.login1"}[c.path]; c.token != want {
				t.Errorf("%s: token %q, want %q", c.path, c.token, want)
			}
		}
		vault.say[signPath] = answering{500, "oops"}
		vault.calls = nil
	})
	if _, err := w.sign(issuer, request(t, "again", "CertificateRequest")); fault.Of(err) == nil {
		t.Fatalf("%v", err)
	}
	if n := len(vault.seen(signPath)); n != 1 {
		t.Errorf("asked %d times at once: retries are ours to make", n)
	}
}

// A standby that sends its clients to the active server is followed, once.
func TestStandby(t *testing.T) {
	active := newStandIn(t, plain)
	standby := newStandIn(t, func(s *httptest.Server) {
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, active.URL+r.URL.Path, http.StatusTemporaryRedirect)
		})
		s.Start()
	})
	w := newWorld(t, standby)
	issuer := w.issuer("team", w.byAppRole)
	if _, f := w.probe(issuer); f != nil {
		t.Fatal(f)
	}
	if _, err := w.sign(issuer, request(t, "r", "CertificateRequest")); err != nil {
		t.Fatal(err)
	}
}
