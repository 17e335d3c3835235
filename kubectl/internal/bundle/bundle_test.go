package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/kubelet"
	"chancery.dev/kubectl/internal/plugin"
)

// The secrets that are planted: each has the mark of secrets, and the place where it is.
const mark = "Planted7"

func planted(place string) string { return mark + place }

// log has secrets in the forms that programs log them in.
func log() string {
	return strings.Join([]string{
		"level=INFO msg=\"is issued\" name=web", `level=INFO password=` + planted("logfmt"), `{"token":"` + planted("json") + `"}`, `msg="{\"apiKey\":\"` + planted("escaped") + `\"}"`,
		"Authorization: Bearer " + planted("bearer"), "https://user:" + planted("userinfo") + "@proxy.example/", "tsig secret: " + planted("colon"),
		"-----BEGIN PRIVATE KEY-----", planted("PEM"), "-----END PRIVATE KEY-----", "the value " + planted("OfTheCredentialOfSomebody") + " is wrong", "mail to " + planted("mail") + "@example.com",
	}, "\n")
}

// plant makes objects that hold secrets wherever users put them.
func plant(t *testing.T, w *rig.World) {
	t.Helper()
	applied := map[string]string{
		corev1.LastAppliedConfigAnnotation: `{"data":"` + planted("applied") + `"}`, "vendor.example/note": planted("annotation"), "cert-manager.io/issuer": "dns",
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: applied, Labels: map[string]string{"app.kubernetes.io/name": "chancery-controller"}}
	}
	pod := corev1.PodSpec{Containers: []corev1.Container{{
		Name: "controller", Image: "chancery", Args: []string{"controller", "--api-token=" + planted("flag"), "--password", planted("argument"), "--namespace=shop"},
		Env:           []corev1.EnvVar{{Name: "SOMETHING", Value: planted("env")}, {Name: "HTTPS_PROXY", Value: "http://u:" + planted("proxy") + "@proxy.example:3128"}, {Name: "TZ", Value: "Mars"}},
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{HTTPHeaders: []corev1.HTTPHeader{{Name: "X-Token", Value: planted("header")}}}}},
	}}}
	pod.Containers[0].LivenessProbe.HTTPGet.Port.IntVal = 80
	selector := map[string]string{"app": "x"}
	class := "nginx"
	w.Create(t,
		&corev1.Secret{ObjectMeta: meta("web-tls"), StringData: map[string]string{"tls.key": planted("data")}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "unrelated"}, StringData: map[string]string{"x": planted("data")}},
		&certmanagerv1.Certificate{ObjectMeta: meta("web"), Spec: certmanagerv1.CertificateSpec{
			SecretName: "web-tls", DNSNames: []string{"www.hidden.example"}, IssuerRef: cmmeta.IssuerReference{Name: "dns"}, EmailAddresses: []string{planted("mail") + "@example.com"},
			SecretTemplate: &certmanagerv1.CertificateSecretTemplate{Annotations: map[string]string{"vendor.example/x": planted("template")}},
		}},
		&certmanagerv1.Issuer{ObjectMeta: meta("dns"), Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server: "https://user:" + planted("server") + "@127.0.0.1:1/directory", Email: planted("mail") + "@example.com", PrivateKey: cmmeta.SecretKeySelector{Name: "account-key"},
			Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{
				GroupName: "vendor.example", SolverName: "dns", Config: &apiextensionsv1.JSON{Raw: []byte(`{"user":"` + planted("config") + `","list":["` + planted("list") + `"]}`)},
			}}}},
		}}},
		&networkingv1.Ingress{ObjectMeta: meta("web"), Spec: networkingv1.IngressSpec{IngressClassName: &class, Rules: []networkingv1.IngressRule{{Host: "www.hidden.example"}}}},
		&appsv1.Deployment{ObjectMeta: meta("chancery-controller"), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: pod},
		}},
		&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "web.1"}, Message: "password=" + planted("event"), Reason: "Failed",
			InvolvedObject: corev1.ObjectReference{APIVersion: "cert-manager.io/v1", Kind: "Certificate", Name: "web", Namespace: w.Namespace},
		})
}

// unpack returns the files of an archive.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || info.Mode() != 0o600 {
		t.Errorf("the mode of the archive is %v, error %v", info.Mode(), err)
	}
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for all := tar.NewReader(plain); ; {
		header, err := all.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(all)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, top+"/")] = string(text)
	}
}

// gather runs the command, and returns what it says and the files of its archive.
func gather(t *testing.T, w *rig.World, args ...string) (string, map[string]string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bundle.tar.gz")
	said, err := command(t.Context(), append(args, "--kubeconfig", rig.Kubeconfig(t, w.Admin, w.Namespace), "--output", name)...)
	if err != nil {
		t.Fatal(said, err)
	}
	return said, unpack(t, name)
}

func command(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := New(plugin.Streams{Out: &out, ErrOut: &out})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// TestSecretsStay: no secret that is planted in an object, an annotation, the environment, an argument or a log gets
// into the archive, and what a maintainer needs is there. With --redact-names no host name is there, either.
func TestSecretsStay(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	plant(t, w)
	node := kubelet.Start(t, w)
	silent := "--waits-address=" + rig.FreeAddress(t).String() // at the usual port a controller of this machine may answer
	node.Pod(t, "chancery-controller-1", map[string]string{"app.kubernetes.io/name": "chancery-controller"}, log(), silent)
	for _, hide := range []bool{false, true} {
		args := []string{"--controller-namespace", w.Namespace}
		if hide {
			args = append(args, "--redact-names")
		}
		said, files := gather(t, w, args...)
		for name, text := range files {
			for line := range strings.Lines(text) {
				if strings.Contains(line, mark) {
					t.Errorf("%s has a secret: %s", name, line)
				}
				if strings.Contains(line, "hidden.example") && hide {
					t.Errorf("%s has a host name: %s", name, line)
				}
			}
		}
		for name, want := range map[string]string{
			"README": "Left out", "versions.txt": "API: cert-manager.io/v1", "objects/certificates.yaml": "secretName: web-tls", "objects/issuers.yaml": "user: " + gone,
			"objects/ingresses.yaml": "ingressClassName", "secrets.yaml": "name: web-tls", "events.yaml": "involvedObject", "installation/deployments.yaml": "value: Mars",
			"installation/pods.yaml": "phase: Running", "logs/chancery-controller-1/controller.log": "is issued", "status.yaml": "outcome: waiting", "definitions.yaml": "certificates.cert-manager.io",
		} {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s lacks %q:\n%.2000s", name, want, files[name])
			}
		}
		if strings.Contains(files["secrets.yaml"], "unrelated") || !strings.Contains(files["README"], "waits.yaml") || !strings.Contains(said, "left out: waits.yaml") {
			t.Errorf("it says %s, and README\n%s", said, files["README"])
		}
		if !hide && !strings.Contains(files["objects/certificates.yaml"], "www.hidden.example") {
			t.Error("the host names are gone")
		}
	}
}

// TestFewRights: what a user may not read is named, and the rest is there; a file that is there is not replaced.
func TestFewRights(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"cert-manager.io"}, Resources: []string{"issuers"}, Verbs: []string{"list"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "few"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "few"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "few"},
		})
	_, files := gather(t, w, "--as", "few")
	for _, want := range []string{"objects/issuers.yaml", "names of Secret objects: ", "Certificate objects: ", "Pods of the controller: ", "Could not be read"} {
		if !strings.Contains(files["README"], want) {
			t.Errorf("README lacks %q:\n%s", want, files["README"])
		}
	}
	name := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := command(t.Context(), "--kubeconfig", rig.Kubeconfig(t, w.Admin, w.Namespace), "-o", name)
	if text, _ := os.ReadFile(name); err == nil || !strings.Contains(err.Error(), "--output") || string(text) != "mine" {
		t.Errorf("a file is replaced: %s %v %s", said, err, text)
	}
}
