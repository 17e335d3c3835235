package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"chancery.dev/internal/rig/slow"
)

// stopBound is asserted of a clean stop, in the best of three. The goal is five seconds on a quiet machine.
const stopBound = 10 * time.Second

// The story of a data directory: first start, a second instance, SIGKILL, restart with everything there, clean stop.
// The stop waits for nobody: a client that watches until the end does not keep it. TestStopTakesNoTime measures it.
func TestLifeOfADataDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	kubeconfig := filepath.Join(t.TempDir(), "admin.kubeconfig")
	arguments := []string{"--data-dir", dir, "--kubeconfig-out", kubeconfig, "--unsafe-no-fsync=false"}
	first := start(t, arguments...)
	t.Logf("ready %s after the start of an empty directory; resident memory %s", time.Since(first.began).Round(time.Millisecond), residentMemory(first))
	wantMode(t, kubeconfig, 0o600)
	wantMode(t, dir, 0o700)
	before := load(t, kubeconfig)
	data := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"k": "v"}}
	if _, err := client(t, before).CoreV1().ConfigMaps("default").Create(t.Context(), data, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	_, stderr, err := run(t, "up", "--data-dir", dir, "--controllers=false")
	wantFailure(t, err, stderr, "data directory "+dir+" is in use by process "+strconv.Itoa(first.cmd.Process.Pid), "--data-dir")

	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := first.waitExit(); err == nil {
		t.Fatal("a killed process exits with success")
	}
	second := start(t, arguments...)
	t.Logf("ready %s after the restart of a used directory", time.Since(second.began).Round(time.Millisecond))
	if after := load(t, kubeconfig); after.Host != before.Host {
		t.Errorf("the address was %s and is now %s", before.Host, after.Host)
	}
	// The kubeconfig of the first run serves as well as the new one.
	got, err := client(t, before).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || got.Data["k"] != "v" {
		t.Errorf("after the restart: %v %v", got, err)
	}

	watch(t, before)
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.waitExit(); err != nil {
		t.Errorf("stop by SIGTERM: %v: %s", err, second.stderr.String())
	}
	wantQuiet(t, second.stderr.String())
}

// TestStopTakesNoTime: a clean stop with a client that watches is a matter of seconds.
func TestStopTakesNoTime(t *testing.T) {
	slow.Test(t, slow.Numbers)
	kubeconfig := filepath.Join(t.TempDir(), "admin.kubeconfig")
	arguments := []string{"--data-dir", filepath.Join(t.TempDir(), "data"), "--kubeconfig-out", kubeconfig}
	slow.Best(t, "a clean stop", stopBound, func() time.Duration {
		p := start(t, arguments...)
		watch(t, load(t, kubeconfig))
		asked := time.Now()
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.waitExit(); err != nil {
			t.Errorf("stop by SIGTERM: %v: %s", err, p.stderr.String())
		}
		return time.Since(asked)
	})
}

// watch watches until the end of the test. It returns when the API server has begun to tell.
func watch(t *testing.T, config *rest.Config) {
	t.Helper()
	watching, err := client(t, config).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watching.Stop)
	<-watching.ResultChan() // what is there
}

// wantQuiet checks that nothing is on standard error. One voice cannot be directed to the log: kube-apiserver's etcd
// client has a logger that is fixed when the program is loaded; it says when a request is cancelled by the stop.
func wantQuiet(t *testing.T, stderr string) {
	t.Helper()
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, `"logger":"etcd-client"`) {
			t.Errorf("on standard error: %s", line)
		}
	}
}

// residentMemory returns VmRSS of the process, where the system tells it.
func residentMemory(p *process) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return "unknown"
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(line)
}

func wantFailure(t *testing.T, err error, stderr string, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("it succeeded")
	}
	for _, w := range words {
		if !strings.Contains(stderr, w) {
			t.Errorf("the error does not say %q: %s", w, stderr)
		}
	}
	if strings.Count(stderr, "\n") != 1 {
		t.Errorf("the error is not one line: %s", stderr)
	}
}

func TestOutputTellsHowToGoOn(t *testing.T) {
	dir := sharedDir(t)
	out := shared.process.stdout.String()
	for _, want := range []string{"  export KUBECONFIG=" + dir + "/kubeconfig\n", "  kubectl ", "Kubernetes v1.37.2 is ready at https://127.0.0.1:", "\nready\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not say %q: %s", want, out)
		}
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, stderr, err := run(t, "up", "--data-dir", t.TempDir(), "--controllers=false", "--secure-port", port)
	wantFailure(t, err, stderr, "port in use", taken.Addr().String(), "--secure-port")
}

func TestBindAddressMustBeLoopback(t *testing.T) {
	for _, address := range []string{"0.0.0.0", "192.0.2.1", "localhost"} {
		_, stderr, err := run(t, "up", "--data-dir", t.TempDir(), "--controllers=false", "--bind-address", address)
		wantFailure(t, err, stderr, address, "not a loopback IP address", "127.0.0.1")
	}
}

func TestUnusableDataDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(file, "data")
	_, stderr, err := run(t, "up", "--data-dir", below, "--controllers=false")
	wantFailure(t, err, stderr, "data directory "+below+" cannot be used", "is a file", "--data-dir")

	if os.Getuid() == 0 {
		t.Log("permissions do not bind root: the directory without permission is not tried")
		return
	}
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	_, stderr, err = run(t, "up", "--data-dir", filepath.Join(closed, "data"), "--controllers=false")
	wantFailure(t, err, stderr, "permission denied", "give this user", "--data-dir")
}

func TestKubeconfigOfAnotherClusterIsNotOverwritten(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "config")
	content := "apiVersion: v1\nkind: Config\nclusters:\n- name: production\n  cluster: {server: 'https://example.com'}\n"
	if err := os.WriteFile(mine, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := run(t, "up", "--data-dir", t.TempDir(), "--controllers=false", "--kubeconfig-out", mine)
	wantFailure(t, err, stderr, mine, `"production"`, "--kubeconfig-out")
	if got, err := os.ReadFile(mine); err != nil || string(got) != content {
		t.Errorf("the file was changed: %v: %s", err, got)
	}
}

// The parent holds the other end of the pipe and is killed: it has no time to tell its child.
func TestExitWithParent(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	parent, child := exec.Command("sleep", "1000"), exec.Command(path, "up", "--data-dir", t.TempDir(),
		"--controllers=false", "--exit-with-parent", "--unsafe-no-fsync")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	parent.Stdout, child.Stdin = write, read
	if err := errors.Join(parent.Start(), child.Start(), write.Close(), read.Close()); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: child, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		p.err = child.Wait()
	}()
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // says that it was killed
	if err := p.waitExit(); err != nil {
		t.Errorf("it ended with %v, want success", err)
	}
}

func TestExitWithParentNeedsAPipe(t *testing.T) {
	_, stderr, err := run(t, "up", "--data-dir", t.TempDir(), "--controllers=false", "--exit-with-parent")
	wantFailure(t, err, stderr, "--exit-with-parent needs a pipe")
}

func TestKubeconfigCommandNeedsADataDirectory(t *testing.T) {
	empty := t.TempDir()
	_, stderr, err := run(t, "kubeconfig", "--data-dir", empty, "--user", "jane", "--out", filepath.Join(empty, "out"))
	wantFailure(t, err, stderr, empty, "chancery-standalone up")
	_, stderr, err = run(t, "kubeconfig", "--data-dir", empty, "--out", filepath.Join(empty, "out"))
	wantFailure(t, err, stderr, "--user", "--service-account")
}
