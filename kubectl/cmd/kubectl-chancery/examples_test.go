package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/slow"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/kubectl/internal/plugin"
)

// notRun are examples that this test cannot run, by their beginning, and why.
func notRun() map[string]string {
	return map[string]string{
		"kubectl chancery create csr":        "would make the CertificateSigningRequest agent, which is there: the tests of create make it",
		"kubectl chancery inspect chain 192": "asks a server of the internet: the tests of inspect have one",
		"kubectl chancery inspect chain www": "asks a server of the internet: the tests of inspect have one",
		"kubectl chancery move":              "needs two clusters: the tests of move have them",
		"kubectl chancery takeover apply":    "needs a cert-manager to replace: the tests of takeover have one",
		"kubectl chancery takeover rollback": "needs a takeover to take back: the tests of takeover have one",
		"kubectl chancery waits":             "needs the Pod of a controller: the tests of waits have one",
		"kubectl chancery preflight":         "asks DNS servers and routes of the internet: the tests of preflight have some",
	}
}

// changing are the commands that get a namespace of their own, because they change it. Whether its requests are
// approved by themselves is the value.
func changing() map[string]bool {
	return map[string]bool{"approve": false, "deny": false, "renew": true, "revoke": true, "rotate-account-key": true}
}

// warning are the commands whose exit status 2 says that something was found.
func warning(command string) bool {
	return slices.Contains([]string{"status", "list", "inspect", "preflight", "takeover"}, command)
}

// TestExamplesRun runs each example of each command, as a user does who copies it: in a shell, beside a cluster with a
// Certificate web, an Issuer a ClusterIssuer letsencrypt, one called ca, and what else examples name (see newShop). A
// new command needs an example that runs, or a reason in notRun.
func TestExamplesRun(t *testing.T) {
	slow.Test(t, slow.Docs)
	t.Parallel()
	shops := newTown(t)
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			visit(below)
		}
		if cmd.HasSubCommands() || cmd.Name() == "help" {
			return
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		command := strings.Fields(cmd.CommandPath())[2]
		in, own := shops[command]
		if !own {
			in = shops[""]
		}
		t.Run(strings.ReplaceAll(cmd.CommandPath(), " ", "_"), func(t *testing.T) {
			for line := range strings.Lines(cmd.Example) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
					in.run(t, line, warning(command))
				}
			}
		})
	}
	visit(commands(plugin.Streams{}))
}

// shop is a namespace, and a directory from which commands run.
type shop struct {
	*rig.World

	dir, kubeconfig string
}

// newTown is a cluster with a namespace for each command that changes it, and one for all others.
func newTown(t *testing.T) map[string]*shop {
	t.Helper()
	rc := rig.OwnCluster(t)
	ca, err := pebble.Start(t.Context(), pebble.Options{AlwaysValid: true})
	if err != nil {
		t.Fatal(err)
	}
	issuer := certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: ca.DirectoryURL, CABundle: ca.TLSBundle, Email: "ops@example.com", PrivateKey: cmmeta.SecretKeySelector{Name: "letsencrypt"},
		Solvers: []acmev1.ACMEChallengeSolver{{
			HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}, WaitInsteadOfSelfCheck: &metav1.Duration{},
		}},
	}}
	shops := map[string]*shop{"": newShop(t, rig.NewWorldOn(t, rc), issuer)}
	approved := []string{"clusterissuers.cert-manager.io/*", "issuers.cert-manager.io/" + shops[""].Namespace + ".letsencrypt"}
	for command, approves := range changing() {
		shops[command] = newShop(t, rig.NewWorldOn(t, rc), issuer)
		if approves {
			approved = append(approved, "issuers.cert-manager.io/"+shops[command].Namespace+".letsencrypt")
		}
	}
	w := shops[""]
	w.InstallGatewayAPI(t, "gateways")
	authority := certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "ca"}} // which does not exist: not ready is enough
	w.Create(t, &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "letsencrypt"}, Spec: issuer},
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: authority},
		&gwapiv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: gwapiv1.GatewaySpec{
			GatewayClassName: "edge", Listeners: []gwapiv1.Listener{{Name: "http", Port: 80, Protocol: gwapiv1.HTTPProtocolType}},
		}},
		&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: w.request(t), SignerName: "issuers.cert-manager.io/" + w.Namespace + ".letsencrypt", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth},
		}})
	cfg := w.Config()
	cfg.Scope.Namespaces, cfg.Scope.ClusterObject = nil, nil
	cfg.ApproveSigners = approved
	cfg.ACME.HTTP01Address = rig.FreeAddress(t).String()
	w.Run(t, cfg)
	for command, s := range shops {
		if approves, own := changing()[command]; approves || !own {
			s.awaitCertificate(t)
		} else {
			rig.Eventually(t, "there is a request", func(ctx context.Context) string {
				return fault(s.Get(ctx, "web-1", &certmanagerv1.CertificateRequest{}))
			})
		}
	}
	return shops
}

func fault(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// newShop makes what examples name, and programs by the names kubectl and kubectl-chancery.
func newShop(t *testing.T, w *rig.World, issuer certmanagerv1.IssuerSpec) *shop {
	t.Helper()
	s := &shop{World: w, dir: t.TempDir(), kubeconfig: rig.Kubeconfig(t, w.Admin, w.Namespace)}
	crt := &certmanagerv1.Certificate{
		TypeMeta:   metav1.TypeMeta{APIVersion: "cert-manager.io/v1", Kind: "Certificate"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: certmanagerv1.CertificateSpec{
			SecretName: "web-tls", DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "letsencrypt"},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		},
	}
	manifest, err := yaml.Marshal(crt)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, "web.yaml", string(manifest))
	s.write(t, "request.pem", string(s.request(t)))
	s.write(t, "bin/kubectl-chancery", fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", asPlugin, self))
	s.write(t, "bin/kubectl", "#!/bin/sh\nshift\nexec kubectl-chancery \"$@\"\n")
	if err := os.MkdirAll(filepath.Join(s.dir, ".local/bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"letsencrypt", "letsencrypt-staging"} {
		w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: issuer})
	}
	w.Create(t, crt, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: networkingv1.IngressSpec{
		Rules: []networkingv1.IngressRule{{Host: "www.example.com"}}, TLS: []networkingv1.IngressTLS{{SecretName: "web-tls"}},
	}})
	return s
}

func (s *shop) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := tool.WriteProgram(path, text); err != nil {
		t.Fatal(err)
	}
}

// request is a certificate signing request.
func (s *shop) request(t *testing.T) []byte {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"agent.example.com"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// awaitCertificate waits for the certificate, and puts its chain where examples look.
func (s *shop) awaitCertificate(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{}
	rig.Eventually(t, "there is a certificate", func(ctx context.Context) string {
		if err := s.Get(ctx, "web-tls", secret); err != nil {
			crt := &certmanagerv1.Certificate{}
			return fmt.Sprintf("%v %v %+v", err, s.Get(ctx, "web", crt), crt.Status)
		}
		return ""
	})
	s.write(t, "fullchain.pem", string(secret.Data["tls.crt"]))
	s.write(t, "root.pem", string(secret.Data["tls.crt"]))
}

// run runs an example, which must succeed. A warning is a success that has found something.
func (s *shop) run(t *testing.T, line string, warns bool) {
	t.Helper()
	for begin := range notRun() {
		if strings.HasPrefix(line, begin) {
			return
		}
	}
	if strings.Contains(line, "--cancel") { // what is to be called off must not be over before
		s.keepRevoking(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.WaitDelay = time.Second
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "HOME="+s.dir, "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"))
	if strings.Contains(line, "--watch") || strings.HasPrefix(line, "kubectl chancery dashboard") {
		s.watch(t, cmd)
		return
	}
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(warns && errors.As(err, &exit) && exit.ExitCode() == 2) {
		t.Errorf("%s: %v\n%s", line, err, said)
	}
}

// watch runs a command that goes on for ever until it has said something, and stops it as Ctrl-C does.
func (s *shop) watch(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Args[len(cmd.Args)-1] = "exec " + cmd.Args[len(cmd.Args)-1]
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Errorf("%q says nothing: %v", cmd.Args, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	_, _ = lines.WriteTo(&strings.Builder{}) // until it ends
	if err := cmd.Wait(); err != nil {
		t.Errorf("%q: %v", cmd.Args, err)
	}
}

// keepRevoking has a revocation that does not go on.
func (s *shop) keepRevoking(t *testing.T) {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	if err := s.Get(t.Context(), "web", crt); err != nil {
		t.Fatal(err)
	}
	old := crt.DeepCopy()
	if crt.Annotations == nil {
		crt.Annotations = map[string]string{}
	}
	crt.Annotations[cmmeta.PausedAnnotation], crt.Annotations[revocation.Annotation] = "test", "superseded"
	if err := s.Client.Patch(t.Context(), crt, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
}
