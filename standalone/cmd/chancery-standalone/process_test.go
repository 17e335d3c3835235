package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// deadline bounds every wait of these tests. It is far above what a quiet machine needs: the machine may be starved.
const deadline = 2 * time.Minute

// TestMain finds the binary, and stops the control plane that the tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	if shared.process != nil {
		if err := shared.process.end(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the shared control plane:", err)
			code = 1
		}
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// binary returns the program under test: CHANCERY_STANDALONE_BIN, or it is built into the user's cache once. It is
// never built with the race detector.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("CHANCERY_STANDALONE_BIN"); path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "chancery-test", "chancery-standalone")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
})

// process is a running `chancery-standalone up`.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *lines
	stderr bytes.Buffer
	exited chan struct{} // closed when cmd.Wait has returned
	err    error         // of cmd.Wait
	began  time.Time
}

// lines collects output and tells when a line has been seen.
type lines struct {
	mu    sync.Mutex
	text  strings.Builder
	ready chan struct{} // closed at the line "ready"
	once  sync.Once
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if strings.Contains("\n"+l.text.String(), "\nready\n") {
		l.once.Do(func() { close(l.ready) })
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// launch starts `up` with the arguments; it dies with this process.
func launch(arguments ...string) (*process, error) {
	path, err := binary()
	if err != nil {
		return nil, err
	}
	p := &process{stdout: &lines{ready: make(chan struct{})}, exited: make(chan struct{}), began: time.Now()}
	p.cmd = exec.Command(path, append([]string{"up", "--exit-with-parent", "--controllers=false", "--unsafe-no-fsync"}, arguments...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.exited)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// waitReady waits for the line "ready".
func (p *process) waitReady() error {
	select {
	case <-p.stdout.ready:
		return nil
	case <-p.exited:
		return fmt.Errorf("ended before it was ready: %w: %s", errors.Join(p.err, errors.New(p.stderr.String())), p.stdout)
	case <-time.After(deadline):
		return fmt.Errorf("not ready after %s: %s", deadline, p.stdout)
	}
}

// waitExit waits for the end of the process.
func (p *process) waitExit() error {
	select {
	case <-p.exited:
		return p.err
	case <-time.After(deadline):
		return errors.Join(fmt.Errorf("still running after %s", deadline), p.cmd.Process.Kill())
	}
}

// end lets the process stop by the end of its standard input.
func (p *process) end() error {
	return errors.Join(p.stdin.Close(), p.waitExit())
}

// start launches `up`, waits until it is ready, and kills it at the end of the test.
func start(t *testing.T, arguments ...string) *process {
	t.Helper()
	p, err := launch(arguments...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		<-p.exited
	})
	if err := p.waitReady(); err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs the program to its end and returns what it wrote.
func run(t *testing.T, arguments ...string) (stdout, stderr string, err error) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*deadline) // some take a minute by themselves
	defer cancel()
	cmd := exec.CommandContext(ctx, path, arguments...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// shared is the control plane that tests of the API use. Each makes its own namespaces and names.
var shared struct {
	once    sync.Once
	process *process
	dir     string
	err     error
}

// sharedDir returns the data directory of the shared control plane, started at first use.
func sharedDir(t *testing.T) string {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "chancery-standalone-test-"); shared.err != nil {
			return
		}
		if shared.process, shared.err = launch("--data-dir", shared.dir); shared.err == nil {
			shared.err = shared.process.waitReady()
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.dir
}

// load returns the client configuration in a kubeconfig.
func load(t *testing.T, kubeconfig string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func client(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// admin returns an administrator's client of the shared control plane.
func admin(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	return client(t, load(t, filepath.Join(sharedDir(t), "kubeconfig")))
}

// eventually polls until check succeeds.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}
