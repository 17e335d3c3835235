package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/kubectl/internal/plugin"
)

// asPlugin makes the program of the tests the plugin: other programs start it.
const asPlugin = "CHANCERY_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// completed are the completions of a command line, and cobra's directive.
func completed(t *testing.T, args ...string) []string {
	t.Helper()
	var out bytes.Buffer
	cmd := root(plugin.Streams{In: strings.NewReader(""), Out: &out, ErrOut: &bytes.Buffer{}})
	cmd.SetArgs(append([]string{"__complete"}, args...))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// newNames is a namespace with objects whose names are completed.
func newNames(t *testing.T) (kubeconfig, namespace string) {
	t.Helper()
	w := rig.NewWorld(t)
	for _, name := range []string{"shop", "web", "www"} {
		w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "letsencrypt"},
		}})
	}
	w.Create(t,
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "letsencrypt"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("ca")}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "www.example.com"}}}})
	return rig.Kubeconfig(t, w.Admin, w.Namespace), w.Namespace
}

// TestCompletion: names of objects, kinds, reasons and contexts are completed. A cluster that does not answer is not
// waited for.
func TestCompletion(t *testing.T) {
	t.Parallel()
	kubeconfig, namespace := newNames(t)
	const none, noSpace = ":4", ":6"
	for line, want := range map[string]string{
		"status ":                 "shop web www ingress/ gateway/ secret/ pod/ certificaterequest/ order/ challenge/ issuer/ clusterissuer/ csr/ " + none,
		"status w":                "web www " + none,
		"status web w":            "www " + none,
		"status ing":              "ingress/ " + noSpace,
		"status ingress/":         "ingress/front " + none,
		"renew sh":                "shop " + none,
		"revoke w":                "web www " + none,
		"revoke web --reason key": "keyCompromise superseded affiliationChanged cessationOfOperation unspecified " + none,
		"rotate-account-key l":    "letsencrypt " + none,
		"rotate-account-key clusterissuer/" + namespace: "clusterissuer/" + namespace + "-ca " + none,
		"approve ":             noSpace,
		"list --issuer l":      "letsencrypt " + none,
		"list -o ":             "wide json yaml csv name " + none,
		"issuers -o ":          "wide json yaml csv name " + none,
		"status -o ":           "json yaml name " + none,
		"list -n " + namespace: namespace + " " + none,
		"list --context ":      "x " + none,
	} {
		args := slices.Insert(strings.Split(line, " "), 1, "--kubeconfig", kubeconfig)
		got := completed(t, args...)
		if wanted := strings.Fields(want); !slices.Equal(offered(got), wanted) {
			t.Errorf("%s: %q, want %q", line, got, wanted)
		}
	}
	deaf, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deaf.Close() }()
	begin := time.Now()
	got := completed(t, "renew", "--server", "https://"+deaf.Addr().String(), "--kubeconfig", kubeconfig, "")
	if took := time.Since(begin); !slices.Equal(got, []string{noSpace}) || took > rig.Patience {
		t.Errorf("a cluster that does not answer: %q after %s", got, took)
	}
}

// offered leaves cobra's explanation of the directive out.
func offered(lines []string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" || strings.HasPrefix(line, "Completion ended") })
}

// TestCompletionOfKubectl: kubectl completes the plugin by the program that completion kubectl prints, and bash by the
// script that completion bash prints.
func TestCompletionOfKubectl(t *testing.T) {
	t.Parallel()
	kubeconfig, _ := newNames(t)
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := func(name, text string) {
		if err := tool.WriteProgram(filepath.Join(dir, name), text); err != nil {
			t.Fatal(err)
		}
	}
	script("kubectl-chancery", fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", asPlugin, self))
	run := func(ctx context.Context, name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+dir+":"+os.Getenv("PATH"))
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %q: %v", name, args, err)
		}
		return string(said)
	}
	script("kubectl_complete-chancery", run(t.Context(), filepath.Join(dir, "kubectl-chancery"), "completion", "kubectl"))
	const bash = `. <(kubectl-chancery completion bash)
_init_completion() { words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}; }
COMP_WORDS=(kubectl-chancery status w) COMP_CWORD=2 COMP_LINE='kubectl-chancery status w' COMP_POINT=25 COMP_TYPE=9
__start_kubectl-chancery
echo "${COMPREPLY[@]}"`
	if said := run(t.Context(), "bash", "-c", bash); said != "web www\n" {
		t.Errorf("bash completes: %q", said)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		text := run(t.Context(), filepath.Join(dir, "kubectl-chancery"), "completion", shell)
		if !strings.Contains(text, "kubectl-chancery") {
			t.Errorf("completion %s prints %q", shell, text)
		}
		file := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := tool.Find(shell); err == nil {
			run(t.Context(), shell, "-n", file)
		}
	}
	if _, err := tool.Find("kubectl"); err != nil {
		t.Skip("SKIPPED in part: this machine has no kubectl")
	}
	if said := run(t.Context(), "kubectl", "__complete", "chancery", "status", "w"); !strings.HasPrefix(said, "web\nwww\n:4") {
		t.Errorf("kubectl completes: %q", said)
	}
}
