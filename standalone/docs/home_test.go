package docs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// TestMain is kubectl, where the program is started by that name: readers have one, and machines that test may not.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "kubectl" {
		if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience bounds the commands of a page, and every other wait. The machine may be starved.
const patience = "600s"

// home is the account of a reader: a directory, with the programs on the PATH.
type home struct {
	t   *testing.T
	dir string
	env []string
}

func newHome(t *testing.T) *home {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: this test needs an API server")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api", "examples"} { // readers are in a clone
		path, err := filepath.Abs(filepath.Join("../..", name))
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	deploy, err := filepath.Abs("../../deploy/deploy-certificate")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{"kubectl": self, "deploy-certificate": deploy}
	for name, variable := range map[string]string{
		"chancery": "CHANCERY_BIN", "chancery-standalone": "CHANCERY_STANDALONE_BIN", "chancery-dns": "CHANCERY_DNS_BIN",
		"kubectl-chancery": "CHANCERY_KUBECTL_BIN",
	} {
		if programs[name] = os.Getenv(variable); programs[name] == "" {
			t.Fatalf("%s has to name the program %s: make build makes it, make test says where it is", variable, name)
		}
	}
	for name, program := range programs {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	env := append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME=", "KUBECONFIG=", "PATH="+bin+":"+os.Getenv("PATH"))
	return &home{t: t, dir: dir, env: env}
}

// shell runs a script to its end and returns what it wrote.
func (h *home) shell(script string) (string, error) {
	h.t.Helper()
	command := exec.CommandContext(h.t.Context(), "timeout", patience, "bash", "-euo", "pipefail", "-c", script)
	command.Dir, command.Env = h.dir, h.env
	out, err := command.CombinedOutput()
	return string(out), err
}

// up starts an API server with Chancery at work, until the test ends, and is ready to be asked by kubectl.
func (h *home) up() {
	h.t.Helper()
	kubeconfig := filepath.Join(h.dir, "kubeconfig")
	log := filepath.Join(h.dir, "up.log")
	const script = `exec chancery-standalone up --trust-bundles=cluster-issuers --exit-with-parent --unsafe-no-fsync --kubeconfig-out "$0" >"$1" 2>&1`
	command := exec.Command("bash", "-c", script, kubeconfig, log)
	command.Dir, command.Env = h.dir, h.env
	stdin, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := errors.Join(stdin.Close(), command.Wait()); err != nil {
			h.t.Error(err)
		}
	})
	wait := fmt.Sprintf("until grep -qx ready %q; do kill -0 %d; sleep 0.1; done", log, command.Process.Pid)
	if out, err := h.shell(wait); err != nil {
		said, _ := os.ReadFile(log)
		h.t.Fatalf("%v: %s\n%s", err, out, said)
	}
	h.env = append(h.env, "KUBECONFIG="+kubeconfig)
}

var namespace = regexp.MustCompile(`\bnamespace: ([a-z0-9-]+)`)

// dryRun lets the API server look at a manifest. The namespaces that the manifest names are made.
func (h *home) dryRun(manifest string) (string, error) {
	h.t.Helper()
	file := filepath.Join(h.dir, "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		h.t.Fatal(err)
	}
	var script strings.Builder
	for _, m := range namespace.FindAllStringSubmatch(manifest, -1) {
		fmt.Fprintf(&script, "kubectl get namespace %[1]s >out 2>&1 || kubectl create namespace %[1]s\n", m[1])
	}
	return h.shell(script.String() + "kubectl apply --dry-run=server -f " + file)
}

// installGatewayAPI applies the definitions of the Gateway API that come with the library.
func (h *home) installGatewayAPI() {
	h.t.Helper()
	out, err := exec.CommandContext(h.t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, plural := range []string{"gateways", "httproutes", "referencegrants", "tlsroutes"} {
		script := fmt.Sprintf("f=$(echo %s/config/crd/standard/*_%s.yaml); kubectl apply --server-side -f $f; kubectl wait --for=condition=Established -f $f",
			string(out[:len(out)-1]), plural)
		if said, err := h.shell(script); err != nil {
			h.t.Fatalf("%v\n%s", err, said)
		}
	}
}
