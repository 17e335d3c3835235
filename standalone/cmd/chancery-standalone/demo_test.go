package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chancery.dev/internal/rig/slow"
)

// The whole demo, on a pipe: plain lines, every chain verified, nothing left behind, success.
func TestDemo(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:9") // nobody listens there, and nobody may ask
	stdout, stderr, err := run(t, "demo")
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, stderr, stdout)
	}
	for _, want := range []string{
		"Certificate cert-manager/root-ca: chain verified",
		"Certificate demo/by-ca: chain verified",
		"Certificate demo/by-http01: chain verified",
		"Certificate demo/by-dns01: chain verified",
		"CertificateSigningRequest demo-client: chain verified",
		"Challenge www.example.test by HTTP-01 ", "Challenge shop.example.test by HTTP-01 ",
		"Challenge apps.example.test by DNS-01 ", "Challenge *.apps.example.test by DNS-01 ",
		"issuer    CN=Pebble Intermediate CA ", "kept in   Secret demo/by-dns01-tls",
		"Pod demo/web: chain verified", "identity  spiffe://example.test/ns/demo/sa/web", "kept in   volume identity of the Pod",
		"All 7 certificates were issued",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the output does not say %q", want)
		}
	}
	if strings.Contains(stdout, "\x1b") {
		t.Error("a pipe gets the control sequences of a terminal")
	}
	if t.Failed() {
		t.Log(stdout)
	} else {
		t.Log(stdout[strings.LastIndex(stdout, "All 7"):])
	}
	left, err := filepath.Glob(filepath.Join(temporary, "chancery-demo-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %q %v", left, err)
	}
	wantQuiet(t, stderr)
}

// brokenExamples cannot be issued, each for another reason.
const brokenExamples = `
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: acme}
spec:
  acme:
    server: ${ACME_SERVER}
    caBundle: ${ACME_CA_BUNDLE}
    privateKeySecretRef: {name: account}
    solvers: [{http01: {ingress: {}}}]
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: nowhere, namespace: default}
spec:
  secretName: nowhere
  dnsNames: [nowhere.invalid]
  issuerRef: {kind: ClusterIssuer, name: acme}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: orphan, namespace: default}
spec:
  secretName: orphan
  dnsNames: [orphan.example.test]
  issuerRef: {kind: ClusterIssuer, name: missing}
`

// What cannot be issued leads to exit status 1, to its cause, and to the reason at each object from the issuer down to
// the Challenge.
func TestDemoTellsTheReasons(t *testing.T) {
	slow.Test(t, slow.Docs)
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "broken.yaml"), []byte(brokenExamples), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted := []string{
		"the time is up",
		"Certificate default/nowhere: not issued\n    issuing: nowhere.invalid: ", "\n    what to do: ", "\n    next try: ",
		"\n      ClusterIssuer acme: ready",
		"\n      CertificateRequest default/nowhere-1: pending",
		"\n        Order default/nowhere-1-",
		"\n          Challenge nowhere.invalid by HTTP-01: pending, ", "does not resolve",
		"Certificate default/orphan: not issued\n    issuing: ClusterIssuer missing does not exist\n    what to do: ",
		"\n      ClusterIssuer missing: does not exist",
	}
	for _, timeout := range []string{"10s", "40s", "100s"} { // a busy machine comes less far in ten seconds
		stdout, stderr, err := run(t, "demo", "--examples", dir, "--timeout", timeout)
		wantFailure(t, err, notEtcd(stderr), "2 of 2 certificates failed")
		missing := slices.DeleteFunc(slices.Clone(wanted), func(s string) bool { return strings.Contains(stdout, s) })
		if len(missing) == 0 {
			return
		}
		t.Logf("after %s the output does not say %q:\n%s", timeout, missing, stdout)
	}
	t.Error("the reasons are not told")
}

// notEtcd leaves out the one voice that cannot be directed to the log (see wantQuiet).
func notEtcd(stderr string) string {
	var rest strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, `"logger":"etcd-client"`) {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

// A manifest that the API server refuses ends the demo at once, with its file's name.
func TestDemoNamesARefusedManifest(t *testing.T) {
	slow.Test(t, slow.Docs)
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	refused := "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: a, namespace: default}\n" +
		"spec: {secretName: a, issuerRef: {name: a}}\n"
	if err := os.WriteFile(filepath.Join(dir, "refused.yaml"), []byte(refused), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := run(t, "demo", "--examples", dir)
	wantFailure(t, err, notEtcd(stderr), "refused.yaml", "at least one of commonName")
}

// A demo removes the objects it is going to make: somebody else's directory is not for it.
func TestDemoKeepsOutOfOtherDirectories(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "address"), []byte("127.0.0.1:1"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := run(t, "demo", "--data-dir", dir)
	wantFailure(t, err, stderr, dir, "not of an earlier demo", "--data-dir")
}

// Examples that cannot be are said before anything is started.
func TestDemoLooksAtTheExamplesFirst(t *testing.T) {
	file, empty := filepath.Join(t.TempDir(), "file.yaml"), t.TempDir()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(empty, "missing"): "no such file or directory", file: "not a directory", empty: "holds no *.yaml file",
	} {
		stdout, stderr, err := run(t, "demo", "--examples", path)
		wantFailure(t, err, stderr, "--examples: ", path, want)
		if stdout != "" {
			t.Errorf("something was started: %s", stdout)
		}
	}
}

// A command that does not exist is a mistake, and not a wish for help.
func TestUnknownCommand(t *testing.T) {
	_, stderr, err := run(t, "bogus")
	wantFailure(t, err, stderr, `unknown command "bogus" for "chancery-standalone"`)
}

// What is wrong with the controllers' flags is said before anything is started, and that the port for HTTP-01 is taken
// before it says that all is ready.
func TestFlagsOfTheControllers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	_, stderr, err := run(t, "up", "--data-dir", dir, "--concurrent-workers=0")
	wantFailure(t, err, stderr, "--concurrent-workers: must be at least 1")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory is there: %v", err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	stdout, stderr, err := run(t, "up", "--data-dir", dir, "--unsafe-no-fsync", "--http01-listen-address", taken.Addr().String())
	wantFailure(t, err, notEtcd(stderr), "listen for HTTP-01 challenges", taken.Addr().String(), "address already in use")
	if strings.Contains(stdout, "ready") {
		t.Errorf("it said that it is ready: %s", stdout)
	}
}

// The binary says which release and which Kubernetes it is, by the command and by the flag: Kubernetes has a flag
// --version of its own, which is not to come in.
func TestVersionOfTheProgram(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		stdout, stderr, err := run(t, arg)
		if err != nil || stderr != "" || !strings.HasPrefix(stdout, "chancery-standalone version ") ||
			!strings.Contains(stdout, ", Kubernetes libraries v0.37.2, Kubernetes v1.37.2, go1.") {
			t.Errorf("%s: %v: %q %q", arg, err, stdout, stderr)
		}
	}
}
