// Package rig gives tests a real Kubernetes API server, and runs separate controllers for each test.
//
// Most tests share one API server: the server that CHANCERY_TEST_KUBECONFIG names, or else a server that the first test
// of a process starts. Each World is a namespace with controllers that ignore the objects of other Worlds, so tests can
// run side by side. Only tests import the package.
package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/internal/app"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig/spent"
)

// Patience bounds every wait. The machine may be starved.
const Patience = 2 * time.Minute

// Controller is the user that controllers run as, with the rights of the generated
// role and no more.
const Controller = "system:serviceaccount:cert-manager:cert-manager"

// quiet discards the log of controller-runtime, which otherwise complains that nobody has set one.
var quiet = sync.OnceFunc(func() { ctrl.SetLogger(logr.Discard()) })

// shared is the API server of this process, with everything installed.
var shared = sync.OnceValues(func() (*connection, error) {
	quiet()
	c, err := connect()
	if err != nil {
		return nil, err
	}
	return c, onceInRun(func() error { return prepare(context.Background(), c.rc) })
})

// prepare installs Chancery's definitions, policies and roles.
func prepare(ctx context.Context, rc *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return install.Install(ctx, rc, func(string) {})
}

// onceInRun lets the first process of a test run do something, and makes the others wait for it: an API server works
// for a second on definitions that it has already. Outside of a run each process does it.
func onceInRun(do func() error) error {
	dir := os.Getenv(Spares)
	if dir == "" || os.Getenv("CHANCERY_TEST_KUBECONFIG") == "" {
		return do()
	}
	done, err := os.OpenFile(filepath.Join(dir, "installed"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = done.Close() }() // and the lock with it
	if err := syscall.Flock(int(done.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if info, err := done.Stat(); err != nil || info.Size() > 0 {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	_, err = done.WriteString("yes")
	return err
}

// Cluster returns an administrator's connection to the shared API server, on which
// Chancery's definitions, policies and roles are installed. It skips the test under
// go test -short, which make quick is.
func Cluster(t testing.TB) *rest.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: this test needs an API server")
	}
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	rc := rest.CopyConfig(c.rc)
	rc.QPS = -1
	return rc
}

// As returns a connection with the rights of another user.
func As(rc *rest.Config, user string, groups ...string) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return rc
}

// Kubeconfig writes a kubeconfig for a connection, for programs, and returns its path.
func Kubeconfig(t testing.TB, rc *rest.Config, namespace string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: rc.Host, CertificateAuthorityData: rc.CAData, CertificateAuthority: rc.CAFile}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData, ClientCertificate: rc.CertFile, ClientKey: rc.KeyFile, Token: rc.BearerToken,
	}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: namespace}
	config.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// connection is one to the API server of a test run. Whoever has it holds open what the API server ends with, if this
// process has started it.
type connection struct {
	rc   *rest.Config
	stop func()
}

func connect() (*connection, error) {
	if path := os.Getenv("CHANCERY_TEST_KUBECONFIG"); path != "" {
		rc, err := clientcmd.BuildConfigFromFlags("", path)
		return &connection{rc: rc}, err
	}
	binary := os.Getenv("CHANCERY_STANDALONE_BIN")
	if binary == "" {
		return nil, errNoServer
	}
	rc, stop, err := start(binary)
	return &connection{rc, stop}, err
}

// OwnCluster is an API server for one test, with more flags of chancery-standalone
// up: for what the shared one cannot be asked to do. Everything is installed on it. One
// without flags is another test's in turn.
func OwnCluster(t testing.TB, flags ...string) *rest.Config {
	t.Helper()
	return equipped().cluster(t, flags...)
}

// BareCluster is OwnCluster with nothing installed.
func BareCluster(t testing.TB, flags ...string) *rest.Config {
	t.Helper()
	return bare().cluster(t, flags...)
}

// cluster is an API server of the pool for one test.
func (p pool) cluster(t testing.TB, flags ...string) *rest.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: this test needs an API server")
	}
	rc, stop, err := p.own(t.Context(), flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return rc
}

// Overlap lets eight tests of a package run at once, not one for each processor: it is for packages whose tests mostly
// wait. It is called before testing.M.Run; go test -parallel wins.
func Overlap() { _ = flag.Set("test.parallel", "8") }

// errNoServer is what a test without an API server ends with.
var errNoServer = errors.New("no API server for this test: run make test, or make build and set CHANCERY_STANDALONE_BIN to bin/chancery-standalone")

// start runs a control plane that ends with this process, or when stop is called: its
// standard input is a pipe that only we hold open.
func start(binary string, flags ...string) (rc *rest.Config, stop func(), err error) {
	held, alive, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = held.Close() }()
	rc, p, err := launch(binary, held, flags...)
	if err != nil {
		_ = alive.Close()
		return nil, nil, err
	}
	return rc, func() {
		_ = alive.Close() // held open until now
		<-p.ended
	}, nil
}

// plane is the process of a control plane.
type plane struct {
	dir   string
	pid   int
	ended <-chan struct{}
}

// launch runs a control plane until its standard input ends, and returns once it is ready.
func launch(binary string, alive *os.File, flags ...string) (*rest.Config, *plane, error) {
	dir, err := os.MkdirTemp("", "chancery-test-")
	if err != nil {
		return nil, nil, err
	}
	kubeconfig, log := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "log")
	const script = `dir=$1; shift; "$0" up --controllers=false --unsafe-no-fsync --exit-with-parent --data-dir "$dir/data" --kubeconfig-out "$dir/kubeconfig" "$@" >"$dir/log" 2>&1; [ ! -e "$dir/kubeconfig" ] || rm -rf "$dir"`
	cmd := exec.CommandContext(context.Background(), "sh", append([]string{"-c", script, binary, dir}, flags...)...)
	cmd.Stdin, cmd.Env = alive, append(os.Environ(), "GOGC=400") // collecting garbage is a sixth of its work, and memory is at hand
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", binary, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	for began := time.Now(); time.Since(began) < Patience; time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // a process, not our clock
		if rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig); err == nil {
			spent.On("starting control planes", began)
			rc.QPS = -1
			return rc, &plane{dir, cmd.Process.Pid, ended}, nil
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(log)
			return nil, nil, errors.Join(fmt.Errorf("%s ended before it was ready: %s", binary, said), os.RemoveAll(dir))
		default:
		}
	}
	said, _ := os.ReadFile(log)
	_ = cmd.Process.Kill()
	return nil, nil, fmt.Errorf("%s was not ready within %s; it said:\n%s", binary, Patience, said)
}

// worldPrefix begins the names of the namespaces of Worlds.
const worldPrefix = "world-"

// World is a namespace with controllers that care for nothing else.
type World struct {
	// Admin may do everything.
	Admin *rest.Config
	// Client is the administrator's.
	Client client.Client
	// Namespace is the world's own, for namespaced objects and the Secrets of
	// ClusterIssuers.
	Namespace string
}

// NewWorld makes a World, without controllers yet.
func NewWorld(t testing.TB) *World {
	t.Helper()
	return NewWorldOn(t, Cluster(t))
}

// NewWorldOn makes a World on the API server of rc.
func NewWorldOn(t testing.TB, rc *rest.Config) *World {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: worldPrefix}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return &World{Admin: rc, Client: c, Namespace: ns.Name}
}

// ClusterName returns the name for a cluster-scoped object of this world.
func (w *World) ClusterName(name string) string { return w.Namespace + "-" + name }

// Config returns the configuration for this world's controllers.
func (w *World) Config() app.Config {
	cfg := app.DefaultConfig()
	cfg.LeaderElect = false
	cfg.KeepKinds = false // the worlds share the cluster
	cfg.MetricsAddress, cfg.HealthAddress, cfg.WaitsAddress = "0", "0", ""
	cfg.HeadStart = 0
	cfg.ClusterResourceNamespace = w.Namespace
	cfg.Scope.Namespaces = []string{w.Namespace}
	cfg.IssuerEgress.AllowLoopback()
	cfg.ACME.HTTP01Hosts, cfg.ACME.TLSALPN01Hosts = []string{"*=*"}, []string{"*=*"}
	cfg.Scope.ClusterObject = func(name string) bool { return strings.HasPrefix(name, w.Namespace+"-") }
	return cfg
}

// Run runs this world's controllers, as the service account that they have on a
// cluster, until stop is called or the test ends.
func (w *World) Run(t testing.TB, cfg app.Config) (stop func()) {
	t.Helper()
	return w.RunAs(t, cfg, As(w.Admin, Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager"))
}

// RunAs is Run with another connection.
func (w *World) RunAs(t testing.TB, cfg app.Config, rc *rest.Config) (stop func()) {
	t.Helper()
	return w.RunLogged(t, cfg, rc, logr.Discard())
}

// RunLogged is RunAs with a log.
func (w *World) RunLogged(t testing.TB, cfg app.Config, rc *rest.Config, log logr.Logger) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a, err := newApp(ctx, cfg, rc, log)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			var goroutines strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&goroutines, 1) // whatever does not end is among them
			t.Errorf("the controllers ended with: %v\n%s", err, goroutines.String())
		}
	})
	t.Cleanup(stop)
	return stop
}

// newApp makes controllers, and notes how long it takes until they are ready.
func newApp(ctx context.Context, cfg app.Config, rc *rest.Config, log logr.Logger) (*app.App, error) {
	began := time.Now()
	a, err := app.New(ctx, cfg, rc, log)
	if err != nil {
		return nil, err
	}
	go func() {
		if a.Synced(ctx) {
			spent.On("starting controllers", began)
		}
	}()
	return a, nil
}

// RunToDeath runs controllers until kill is called, by whoever has it: it is to end ctx.
// How they take it does not matter, but controllers that end before are killed, and fail
// the test. The function returned kills them, and waits until they are gone.
func RunToDeath(ctx context.Context, t testing.TB, kill context.CancelFunc, cfg app.Config, rc *rest.Config) (dead func()) {
	t.Helper()
	a, err := newApp(ctx, cfg, rc, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if err := a.Run(ctx); ctx.Err() == nil {
			t.Errorf("the controllers ended by themselves: %v", err)
		}
		kill()
	}()
	return func() {
		kill()
		<-gone
	}
}

// Eventually waits until check returns "" and fails the test with the last thing
// it said otherwise.
func Eventually(t testing.TB, what string, check func(ctx context.Context) string) {
	t.Helper()
	last := ""
	for began := time.Now(); time.Since(began) < Patience; time.Sleep(50 * time.Millisecond) { //nolint:forbidigo // real parts keep their own time
		if last = check(t.Context()); last == "" {
			return
		}
	}
	const longest = 4000 // whole objects hide the lines of other tests
	t.Fatalf("%s did not come true within %s: %.*s", what, Patience, longest, last)
}

// Create makes objects, in the world's namespace where they have none and are
// namespaced.
func (w *World) Create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if namespaced, err := w.Client.IsObjectNamespaced(o); err != nil {
			t.Fatal(err)
		} else if namespaced && o.GetNamespace() == "" {
			o.SetNamespace(w.Namespace)
		}
		if err := w.Client.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// Watch tells of the objects of a kind in the world's namespace, from now on until the test
// ends.
func (w *World) Watch(t testing.TB, list client.ObjectList) <-chan watch.Event {
	t.Helper()
	c, err := client.NewWithWatch(w.Admin, client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Watch(t.Context(), list, client.InNamespace(w.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	return events.ResultChan()
}

// Get reads an object of the world; the error is for Eventually.
func (w *World) Get(ctx context.Context, name string, into client.Object) error {
	key := client.ObjectKey{Name: name}
	if namespaced, err := w.Client.IsObjectNamespaced(into); err != nil {
		return err
	} else if namespaced {
		key.Namespace = w.Namespace
	}
	return w.Client.Get(ctx, key, into)
}
