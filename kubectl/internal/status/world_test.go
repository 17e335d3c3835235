package status

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
	"chancery.dev/kubectl/internal/plugin"
)

const tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0"

// stage is a namespace with controllers, an ACME server and a DNS server, and a user who may view it.
type stage struct {
	*rig.World

	ca         *pebble.Server
	dns        *dnsserver.Server
	cfg        app.Config
	kubeconfig string
	viewer     string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	w := &stage{World: rig.NewWorld(t)}
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	zones := []dnsserver.Zone{{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}}
	if w.dns, err = dnsserver.Start(t.Context(), dnsserver.Config{Zones: zones, Key: key}); err != nil {
		t.Fatal(err)
	}
	closed := rig.FreeAddress(t)
	if w.ca, err = pebble.Start(t.Context(), pebble.Options{
		DNSServer: w.dns.Addr(), HTTPPort: int(closed.Port()), Wrap: trouble,
		Profiles: map[string]ca.Profile{"short": {Description: "short"}},
	}); err != nil {
		t.Fatal(err)
	}
	w.Create(t, &corev1.Secret{ObjectMeta: named("tsig"), StringData: map[string]string{"key": tsigSecret}})
	w.cfg = w.World.Config()
	w.cfg.ACME.RecursiveNameservers = []string{w.dns.Addr()}
	w.cfg.ACME.AuthoritativePort = w.dns.Port()
	w.cfg.ACME.HTTP01Port, w.cfg.ACME.HTTP01Address = int(closed.Port()), rig.FreeAddress(t).String()
	w.cfg.ACME.HTTP01Nameservers = []string{w.dns.Addr()}
	w.kubeconfig, w.viewer = rig.Kubeconfig(t, w.Admin, w.Namespace), "viewer-of-"+w.Namespace
	w.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: named("viewer"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.viewer}},
	})
	rig.Eventually(t, "the viewer has the rights of view", func(ctx context.Context) string {
		if _, _, err := w.status(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
	return w
}

// status runs the command as the viewer, and returns what it prints and the requests that it makes.
func (w *stage) status(ctx context.Context, args ...string) (said string, requests []string, err error) {
	var out bytes.Buffer
	streams := plugin.Streams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
	flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(rc *rest.Config) *rest.Config {
		rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				requests = append(requests, r.Method+" "+r.URL.Path)
				return next.RoundTrip(r)
			})
		})
		return rc
	})
	cmd := newCommand(streams, flags)
	cmd.SetArgs(append([]string{"--kubeconfig", w.kubeconfig, "--as", w.viewer}, args...))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(ctx)
	if exit := (plugin.ExitError{}); errors.As(err, &exit) && exit.Code == inTrouble {
		err = nil
	}
	return out.String(), requests, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// trouble has the ACME server refuse names that begin with "limited.", and forbid those that begin with "caa." by a
// CAA record, in the words of Let's Encrypt.
func trouble(next http.Handler) http.Handler {
	types := regexp.MustCompile(`"type": *"urn:ietf:params:acme:error:[a-zA-Z]+",\s*"detail": *"(?:[^"\\]|\\.)*"`)
	const caa = `"type":"urn:ietf:params:acme:error:caa","detail":"While processing CAA for caa.example.com: CAA record for example.com prevents issuance"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var jws struct{ Payload string }
		_ = json.Unmarshal(body, &jws)
		payload, _ := base64.RawURLEncoding.DecodeString(jws.Payload)
		answer := httptest.NewRecorder()
		if bytes.Contains(payload, []byte(`"limited.`)) {
			answer.Header().Set("Content-Type", "application/problem+json")
			answer.Header().Set("Retry-After", "3600")
			answer.WriteHeader(http.StatusTooManyRequests)
			_, _ = answer.WriteString(`{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many certificates already issued for example.com"}`)
		} else {
			next.ServeHTTP(answer, r)
		}
		said := answer.Body.Bytes()
		if bytes.Contains(said, []byte("caa.example.com")) {
			said = types.ReplaceAll(said, []byte(caa))
		}
		for name, values := range answer.Header() {
			if name != "Content-Length" {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(said)
	})
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// issue adds an Issuer, if there is a spec for one, and a Certificate for a name by it.
func (w *stage) issue(t *testing.T, name, host string, spec *certmanagerv1.IssuerSpec) {
	t.Helper()
	if spec != nil {
		if spec.ACME != nil {
			spec.ACME.PrivateKey.Name = name + "-account"
		}
		w.Create(t, &certmanagerv1.Issuer{ObjectMeta: named(name), Spec: *spec})
	}
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: named(name), Spec: certmanagerv1.CertificateSpec{
		SecretName: name + "-tls", DNSNames: []string{host}, IssuerRef: cmmeta.IssuerReference{Name: name, Kind: cmmeta.DefaultIssuerKind},
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
	}})
}

func (w *stage) acme(solver acmev1.ACMEChallengeSolver) *certmanagerv1.IssuerSpec {
	return &certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: w.ca.DirectoryURL, CABundle: w.ca.TLSBundle, Email: "ops@example.com", Solvers: []acmev1.ACMEChallengeSolver{solver},
	}}
}

// byDNS updates the world's DNS with the TSIG key in a Secret.
func (w *stage) byDNS(secret string) acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
		Nameserver: w.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256",
		TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: secret, Key: "key"},
	}}}
}

// byHTTP answers where nobody can ask.
func byHTTP(check bool) acmev1.ACMEChallengeSolver {
	s := acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}}
	if !check {
		s.WaitInsteadOfSelfCheck = &metav1.Duration{}
	}
	return s
}

// authority adds a CA Issuer's Secret: its certificate ends at a time, and the key is that of the certificate or not.
func (w *stage) authority(t *testing.T, name string, ends time.Time, matching bool) *certmanagerv1.IssuerSpec {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: ends.Add(-48 * time.Hour), NotAfter: ends,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
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
	w.Create(t, &corev1.Secret{ObjectMeta: named(name + "-ca"), Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "tls.key": text,
	}})
	return &certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: name + "-ca"}}
}

// deny denies the request of a Certificate, as an approver does.
func (w *stage) deny(t *testing.T, name string) {
	t.Helper()
	rig.Eventually(t, "the request is denied", func(ctx context.Context) string {
		cr := &certmanagerv1.CertificateRequest{}
		if err := w.Get(ctx, name, cr); err != nil {
			return err.Error()
		}
		old := cr.DeepCopy()
		certmanagerv1.SetCertificateRequestCondition(cr, certmanagerv1.CertificateRequestCondition{
			Type: certmanagerv1.CertificateRequestConditionDenied, Status: cmmeta.ConditionTrue, Reason: "policy.example.com", Message: "no names below example.com",
		}, time.Now())
		if err := w.Client.Status().Patch(ctx, cr, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); err != nil {
			return err.Error()
		}
		return ""
	})
}
