package create

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/plugin"
)

// stage is a namespace with controllers and a CA, whose requests are approved at once, and a directory for files.
type stage struct {
	*rig.World

	kubeconfig, dir string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	w := &stage{World: rig.NewWorld(t), dir: t.TempDir()}
	w.kubeconfig = rig.Kubeconfig(t, w.Admin, w.Namespace)
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}})
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "ca", CommonName: "ca", IsCA: true, IssuerRef: cmmeta.IssuerReference{Name: "self"},
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
	}})
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "ca"}}})
	return w
}

func (w *stage) run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	streams := plugin.Streams{Out: &out, ErrOut: &out}
	root := plugin.New(streams)
	root.AddCommand(New(streams), NewExperimental(streams))
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "DIR", w.dir)
	}
	root.SetArgs(append(args, "--kubeconfig", w.kubeconfig))
	err := root.ExecuteContext(ctx)
	return out.String(), err
}

func (w *stage) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// pair reads what a command has written: the key must belong to the certificate, and be for the user alone.
func (w *stage) pair(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.DecodePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile(filepath.Join(w.dir, name+".crt")); err != nil {
		t.Fatal(err)
	}
	cert, err := pki.DecodeCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Stat(filepath.Join(w.dir, name+".key"))
	if err != nil || file.Mode().Perm() != 0o600 || !pki.PublicKeysEqual(key.Public(), cert.PublicKey) {
		t.Errorf("%v, mode %s, or the key is another one's", err, file.Mode())
	}
	return cert.DNSNames
}

const certificateYAML = `apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: other, labels: {team: web}}
spec:
  secretName: unused
  dnsNames: [web.example.com]
  duration: 2h
  privateKey: {algorithm: ECDSA, encoding: PKCS8}
  issuerRef: {name: ca}
`

// TestRequest: the certificate comes for a key that only the user has.
func TestRequest(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.write(t, "web.yaml", certificateYAML)
	w.Run(t, w.Config())
	said, err := w.run(t.Context(), "create", "request", "db", "--dns-names", "db.example.com,db", "--issuer", "issuer/ca", "--fetch-certificate",
		"--output-key-file", "DIR/db.key", "--output-certificate-file", "DIR/db.crt", "--timeout", "1m")
	if err != nil || !strings.Contains(said, "issued, its certificate is in") {
		t.Fatalf("%v\n%s", err, said)
	}
	if got := fmt.Sprint(w.pair(t, "db")); got != "[db.example.com db]" {
		t.Error(got)
	}
	if said, err := w.run(t.Context(), "create", "certificaterequest", "web", "--from-certificate-file", "DIR/web.yaml", "-w", "-k", "DIR/web.key", "-c", "DIR/web.crt"); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	w.pair(t, "web")
	cr := &certmanagerv1.CertificateRequest{}
	if err := w.Get(t.Context(), "web", cr); err != nil {
		t.Fatal(err)
	}
	if len(cr.OwnerReferences) > 0 || cr.Annotations[certmanagerv1.CertificateNameAnnotation] != "" || cr.Labels["team"] != "web" || cr.Spec.Duration.Duration != 2*time.Hour {
		t.Errorf("%+v", cr)
	}

	before, err := os.ReadFile(filepath.Join(w.dir, "web.key"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"--dns-names", "a.example.com", "--issuer", "ca"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"again", "-k", "DIR/web.key"}, "web.key exists already"},
		{[]string{"again", "-k", "DIR/new.key", "-w", "-c", "DIR/web.crt"}, "web.crt exists already"},
		{[]string{"again", "-k", "DIR/new.key", "-c", "DIR/new.crt"}, "goes with --fetch-certificate"},
		{[]string{"web", "-k", "DIR/new.key"}, "already exists"},
		{[]string{"again", "-k", "DIR/new.key", "-f", "DIR/web.yaml"}, "goes without"},
	} {
		said, err := w.run(t.Context(), append(append([]string{"create", "request"}, c.args...), names...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v\n%s", c.args, err, said)
		}
		if _, err := os.Stat(filepath.Join(w.dir, "new.key")); err == nil {
			t.Fatalf("%v leaves a key that nothing asks with", c.args)
		}
	}
	if after, err := os.ReadFile(filepath.Join(w.dir, "web.key")); err != nil || !bytes.Equal(before, after) {
		t.Error("a private key was overwritten")
	}
}

// TestRefusals: what cannot be asked for is told before anything is written, and a denial ends the wait.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.write(t, "elsewhere.yaml", strings.Replace(certificateYAML, "{name: other,", "{name: other, namespace: elsewhere,", 1))
	w.write(t, "typo.yaml", strings.Replace(certificateYAML, "dnsNames", "dnsName", 1))
	w.write(t, "old.yaml", strings.Replace(certificateYAML, "cert-manager.io/v1", "cert-manager.io/v1alpha2", 1))
	for _, c := range []struct{ args, want string }{
		{"create request x --issuer ca", "--dns-names and --issuer"},
		{"create request x --dns-names a.example.com", "--dns-names and --issuer"},
		{"create request x -f DIR/none.yaml", "no such file"},
		{"create request x -f DIR/typo.yaml", `unknown field "dnsName"`},
		{"create request x -f DIR/old.yaml", "it says cert-manager.io/v1alpha2"},
		{"create request x -f DIR/elsewhere.yaml -n " + w.Namespace, "is for the namespace elsewhere"},
		{"create csr x --dns-names a.example.com --issuer AWSPCAIssuer.awspca.cert-manager.io/x", "takes CertificateRequests only"},
	} {
		if said, err := w.run(t.Context(), append(strings.Fields(c.args), "-k", "DIR/x.key")...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n%s", c.args, err, said)
		}
	}
	if _, err := os.Stat(filepath.Join(w.dir, "x.key")); err == nil {
		t.Error("a key was written for a request that cannot be made")
	}

	fetch := func(timeout string) error {
		_ = os.Remove(filepath.Join(w.dir, "denied.key"))
		_, err := w.run(t.Context(), "create", "request", "denied"+timeout, "--dns-names", "a.example.com", "--issuer", "ca", "-w", "-k", "DIR/denied.key", "-c", "DIR/denied.crt", "--timeout", timeout)
		return err
	}
	if err := fetch("1s"); err == nil || !strings.Contains(err.Error(), "after 1s: see kubectl describe certificaterequest denied1s -n ") {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- fetch("1m") }()
	rig.Eventually(t, "the request is denied", func(ctx context.Context) string {
		cr := &certmanagerv1.CertificateRequest{}
		if err := w.Get(ctx, "denied1m", cr); err != nil {
			return err.Error()
		}
		certmanagerv1.SetCertificateRequestCondition(cr, certmanagerv1.CertificateRequestCondition{
			Type: certmanagerv1.CertificateRequestConditionDenied, Status: cmmeta.ConditionTrue, Reason: "policy.example.com", Message: "no",
		}, time.Now())
		if err := w.Client.Status().Update(ctx, cr); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "was denied (policy.example.com): no") && !strings.Contains(err.Error(), "has failed") {
		t.Error(err)
	}
}

// TestUsages: a CertificateSigningRequest names the usages that are asked for, or those that its key is good for.
func TestUsages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		algorithm string
		asked     []certmanagerv1.KeyUsage
		want      string
	}{
		{pki.ECDSA, nil, "[digital signature key encipherment]"},
		{pki.MLDSA44, nil, "[digital signature]"},
		{pki.ECDSA, []certmanagerv1.KeyUsage{"signing", "server auth"}, "[digital signature server auth]"},
	} {
		key, err := pki.GenerateKey(pki.KeySpec{Algorithm: c.algorithm})
		if err != nil {
			t.Fatal(err)
		}
		csr, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"a.example.com"}}}, key)
		if err != nil {
			t.Fatal(err)
		}
		r, err := newKubernetes(&certmanagerv1.CertificateRequest{Spec: certmanagerv1.CertificateRequestSpec{Request: csr, Usages: c.asked}})
		if err != nil {
			t.Fatal(err)
		}
		if csr, is := r.object().(*certificatesv1.CertificateSigningRequest); !is || fmt.Sprint(csr.Spec.Usages) != c.want {
			t.Errorf("%s, %q: %+v, want %s", c.algorithm, c.asked, r.object(), c.want)
		}
	}
}

// TestSigningRequest: the same by a CertificateSigningRequest, under the name that cmctl gives the command.
func TestSigningRequest(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.write(t, "web.yaml", certificateYAML)
	w.Run(t, w.Config())
	name := w.ClusterName("agent")
	ended := make(chan error, 1)
	go func() {
		_, err := w.run(t.Context(), "x", "create", "csr", name, "-f", "DIR/web.yaml", "-k", "DIR/csr.key", "-c", "DIR/csr.crt", "-w", "--timeout", "1m")
		ended <- err
	}()
	rig.Eventually(t, "the request is approved", func(ctx context.Context) string {
		csr := &certificatesv1.CertificateSigningRequest{}
		if err := w.Get(ctx, name, csr); err != nil {
			return err.Error()
		}
		if len(csr.Status.Conditions) > 0 {
			return ""
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "seen",
		})
		if err := w.Client.SubResource("approval").Update(ctx, csr); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(w.pair(t, "csr")); got != "[web.example.com]" {
		t.Error(got)
	}
}
