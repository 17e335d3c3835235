package inspect

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/pebble"
)

// stage is a namespace with controllers, a CA that says what it has revoked, and an ACME server.
type stage struct {
	*rig.World

	ca         *authority
	acme       *pebble.Server
	kubeconfig string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	w := &stage{World: rig.NewWorld(t), ca: newAuthority(t, "root", nil)}
	w.kubeconfig = rig.Kubeconfig(t, w.Admin, w.Namespace)
	var err error
	if w.acme, err = pebble.Start(t.Context(), pebble.Options{AlwaysValid: true}); err != nil {
		t.Fatal(err)
	}
	key, err := pki.EncodePKCS8(w.ca.key)
	if err != nil {
		t.Fatal(err)
	}
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		"tls.crt": pki.EncodeCertificates(w.ca.cert), "tls.key": key,
	}})
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{
		SecretName: "ca", OCSPServers: []string{w.ca.url + "/ocsp"}, CRLDistributionPoints: []string{w.ca.url + "/crl"},
	}}})
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "acme"}, Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: w.acme.DirectoryURL, CABundle: w.acme.TLSBundle, PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
		Solvers: []acmev1.ACMEChallengeSolver{{
			HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}, WaitInsteadOfSelfCheck: &metav1.Duration{},
		}},
	}}})
	cfg := w.Config()
	cfg.ACME.HTTP01Address = rig.FreeAddress(t).String()
	w.Run(t, cfg)
	return w
}

func (w *stage) inspect(ctx context.Context, args ...string) (string, bool, error) {
	args = append(args, "--kubeconfig", w.kubeconfig)
	if args[0] != "csr" {
		args = append(args, "--allow-local")
	}
	return run(ctx, "", args...)
}

// issue issues a certificate, and returns it.
func (w *stage) issue(t *testing.T, name, issuer string) *x509.Certificate {
	t.Helper()
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
		SecretName: name + "-tls", DNSNames: []string{name + ".example.com"}, IssuerRef: cmmeta.IssuerReference{Name: issuer},
		Duration:   &metav1.Duration{Duration: 24 * time.Hour}, // shorter than the life of the CA
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
	}})
	var leaf *x509.Certificate
	rig.Eventually(t, name+" is issued", func(ctx context.Context) string {
		secret := &corev1.Secret{}
		if err := w.Get(ctx, name+"-tls", secret); err != nil {
			return err.Error()
		}
		var err error
		if leaf, err = pki.DecodeCertificate(secret.Data["tls.crt"]); err != nil {
			return err.Error()
		}
		return ""
	})
	return leaf
}

// TestSecret: what a real controller has issued is good, and what becomes of it is told.
func TestSecret(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	leaf := w.issue(t, "web", "ca")
	expect := func(wrong bool, want ...string) {
		t.Helper()
		said, is, err := w.inspect(t.Context(), "secret", "web-tls")
		if missing := lines(said, want...); err != nil || is != wrong || len(missing) > 0 || strings.Contains(said, "PRIVATE") {
			t.Errorf("%v, wrong: %t, missing: %q\n%s", err, is, missing, said)
		}
	}
	expect(false, "ok names|Certificate "+w.Namespace+"/web", "ok private key|", "ok chain|", "ok trust|ca.crt", "ok validity|", "ok revocation|not revoked")
	w.ca.says(leaf, ocsp.Unknown)
	expect(false, "ok revocation|says the CRL")
	w.ca.says(leaf, ocsp.Revoked)
	expect(true, "wrong revocation|key compromise")
	said, _, err := w.inspect(t.Context(), "chain", "secret/web-tls", "-o", "json")
	var read struct{ Items []Report }
	if err != nil || json.Unmarshal([]byte(said), &read) != nil || len(read.Items) != 1 || read.Items[0].Certificates[0].Names[0] != "web.example.com" ||
		len(read.Items[0].Checks) != 6 {
		t.Errorf("%v\n%s", err, said)
	}

	if said, wrong, err := w.inspect(t.Context(), "csr", "web-1"); err != nil || wrong ||
		len(lines(said, "ok names|", "ok signature|", "ok certificate|")) > 0 || !strings.Contains(said, "web.example.com") {
		t.Errorf("%v\n%s", err, said)
	}
	for _, args := range [][]string{{"csr", "none"}, {"secret", "none"}} {
		if _, _, err := w.inspect(t.Context(), args...); err == nil {
			t.Errorf("%v was found", args)
		}
	}
}

// TestBrokenSecret: a Secret that somebody else has written is told.
func TestBrokenSecret(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	leaf := w.ca.issue(t, host("other.example.com"), newKey(t).Public())
	key, err := pki.EncodePKCS8(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	secret := func(name string, crt, key []byte) {
		w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{
			"tls.crt": crt, "tls.key": key, "ca.crt": pki.EncodeCertificates(w.ca.cert),
		}})
	}
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "mixed", DNSNames: []string{"web.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "elsewhere", Group: "example.com"},
	}})
	secret("mixed", pki.EncodeCertificates(leaf), key)
	secret("keyless", pki.EncodeCertificates(leaf), nil)
	secret("empty", nil, key)
	for name, want := range map[string][]string{
		"mixed":   {"wrong names|asks for others: spec.dnsNames", "wrong private key|does not belong", "ok trust|"},
		"keyless": {"wrong private key|empty", "none names|no Certificate asks for this Secret"},
		"empty":   {"wrong certificate|tls.crt cannot be read"},
	} {
		said, wrong, err := w.inspect(t.Context(), "secret", name)
		if missing := lines(said, want...); err != nil || !wrong || len(missing) > 0 {
			t.Errorf("%v, wrong: %t, missing: %q\n%s", err, wrong, missing, said)
		}
	}
}

// TestRenewalWindow: the ACME server is asked when it wants the certificate to be renewed.
func TestRenewalWindow(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	leaf := w.issue(t, "web", "acme")
	roots := write(t, w.acme.Roots()...)
	expect := func(wrong bool, want ...string) {
		t.Helper()
		said, is, err := w.inspect(t.Context(), "secret", "web-tls", "--ca-file", roots)
		if missing := lines(said, want...); err != nil || is != wrong || len(missing) > 0 {
			t.Errorf("%v, wrong: %t, missing: %q\n%s", err, is, missing, said)
		}
	}
	expect(false, "ok renewal|the ACME server wants it to be renewed between", "ok trust|", "ok chain|", "ok private key|")
	set := func(serial *big.Int, body string) {
		if err := w.acme.SetRenewalInfo(serial, body); err != nil {
			t.Fatal(err)
		}
	}
	window := func(start, end time.Time, page string) string {
		return fmt.Sprintf(`{"suggestedWindow":{"start":%q,"end":%q},"explanationURL":%q}`, start.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339), page)
	}
	set(leaf.SerialNumber, window(time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour), "https://example.com/incident"))
	expect(true, "wrong renewal|wanted it to be renewed between", "wrong renewal|see https://example.com/incident")
	w.acme.Close()
	expect(false, "unknown renewal|could not be asked")
}

// TestRenewalNoted: where nobody outside is asked, the answer that the controller has noted is shown.
func TestRenewalNoted(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }
	asked := at(-time.Hour)
	r := &Report{now: now}
	crt := &certmanagerv1.Certificate{Status: certmanagerv1.CertificateStatus{ACME: &certmanagerv1.CertificateACMEStatus{ARI: &certmanagerv1.CertificateARIStatus{
		SuggestedWindow: &certmanagerv1.ARIWindow{Start: at(time.Hour), End: at(2 * time.Hour)}, LastChecked: &asked,
	}}}}
	r.renewal(t.Context(), nil, &options{offline: true}, crt, nil)
	if len(r.Checks) != 1 || r.Checks[0].Result != OK || !strings.Contains(r.Checks[0].Text, "asked at "+stamp(asked.Time)) || r.Renewal.End != at(2*time.Hour) {
		t.Errorf("%+v %+v", r.Checks, r.Renewal)
	}
}

// clusterIssuer is a client.Reader of one ClusterIssuer.
type clusterIssuer struct {
	client.Reader

	server string
}

// Get implements client.Reader.
func (c clusterIssuer) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if issuer, ok := into.(*certmanagerv1.ClusterIssuer); ok {
		issuer.Spec.ACME = &acmev1.ACMEIssuer{Server: c.server}
	}
	return nil
}

// TestClusterIssuersOnThisComputerAreNotAsked: the ACME server of a ClusterIssuer is asked at an address of this
// computer only where the user says so, as that of an Issuer is.
func TestClusterIssuersOnThisComputerAreNotAsked(t *testing.T) {
	t.Parallel()
	server, asked := counting(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	crt := &certmanagerv1.Certificate{Spec: certmanagerv1.CertificateSpec{IssuerRef: cmmeta.IssuerReference{Name: "public", Kind: cmmeta.ClusterIssuerKind}}}
	leaf := newAuthority(t, "ca", nil).issue(t, host("www.example.com"), newKey(t).Public())
	for _, local := range []bool{false, true} {
		r := &Report{now: time.Now()}
		r.renewal(t.Context(), clusterIssuer{server: server.URL}, &options{local: local, timeout: time.Minute}, crt, leaf)
		if len(r.Checks) != 1 || local == strings.Contains(r.Checks[0].Text, "--allow-local") || local != (asked.Load() > 0) {
			t.Errorf("allowed: %t: asked %d times: %+v", local, asked.Load(), r.Checks)
		}
	}
}
