// Package controlplane runs a real Kubernetes control plane inside this process: etcd, kube-apiserver and the few
// controllers without which the API does not behave like a cluster (garbage collection, namespaces, service accounts
// and their tokens, root CA, EndpointSlices, CSR cleaning, cluster role aggregation).
//
// It is for machines without a cluster, for tests and for measurements. It is not a cluster: it has no nodes, no
// scheduler and no workloads, and only one replica. It listens on loopback only. Nothing in it knows of Chancery's API.
// kube-apiserver keeps process-wide state (feature gates, metrics, klog), so a process runs at most one control plane
// at a time.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Bounds of a clean stop. Together they stay below the five seconds that a user is willing to wait after Ctrl-C;
// what does not finish in time is abandoned, which is safe because etcd's log is already on disk.
const (
	apiServerStopTimeout = 2500 * time.Millisecond
	etcdStopTimeout      = 1500 * time.Millisecond
)

// Options says where the control plane lives. The zero value of every field but DataDir has a meaning.
type Options struct {
	// DataDir holds everything that survives a restart: etcd's files, keys, logs. It is created with mode
	// 0700 and locked while in use. Required.
	DataDir string
	// BindAddress is the loopback IP address that the API server listens on. Default 127.0.0.1.
	BindAddress string
	// SecurePort is the API server's TCP port. 0 takes the port of the previous run if it is free, else any.
	SecurePort int
	// KubeconfigPath is where the administrator's kubeconfig appears, mode 0600, once the control plane is
	// ready. Default: "kubeconfig" in DataDir.
	KubeconfigPath string
	// UnsafeNoFsync makes etcd skip fsync. Data then survives the death of the process, but not of the
	// machine. For tests and benchmarks only.
	UnsafeNoFsync bool
	// APIServerArguments are added to the command line of kube-apiserver: "--emulated-version=1.34".
	APIServerArguments []string
}

// ControlPlane is a running control plane. Its methods may be called from several goroutines.
type ControlPlane struct {
	admin      *rest.Config
	issuer     identityIssuer
	kubeconfig string
	logPath    string

	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	err error // why it ended; written before done is closed
}

// Start brings the control plane up and returns when it is ready: the API is served, the bootstrap RBAC exists
// and the controllers run. Cancelling ctx, or Stop, stops it. An error names the path or the address it is about, and
// leaves nothing running.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	dir, err := openDataDir(options.DataDir)
	if err != nil {
		return nil, err
	}
	p := &parts{dir: dir}
	cp, err := p.start(ctx, options)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return cp, nil
}

// Config returns the configuration of a client with all rights (user kubernetes-admin, group system:masters).
// The caller owns the copy.
func (cp *ControlPlane) Config() *rest.Config { return rest.CopyConfig(cp.admin) }

// KubeconfigPath returns where the administrator's kubeconfig is.
func (cp *ControlPlane) KubeconfigPath() string { return cp.kubeconfig }

// LogPath returns the file that the warnings and errors of etcd, kube-apiserver and the controllers go to.
func (cp *ControlPlane) LogPath() string { return cp.logPath }

// Done is closed when the control plane has ended, by Stop, by the context of Start or by a failure.
func (cp *ControlPlane) Done() <-chan struct{} { return cp.done }

// Err says why the control plane ended: nil before Done is closed and after a requested stop.
func (cp *ControlPlane) Err() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.err
}

// Stop stops the control plane and waits for its end, less than five seconds. It may be called more than once.
func (cp *ControlPlane) Stop() error {
	cp.stop()
	<-cp.done
	return cp.Err()
}

// parts are the pieces of a control plane that need closing, in the order in which they were opened.
type parts struct {
	dir         *dataDir
	log         *logFile
	etcd        *etcdServer
	api         *apiServer
	controllers *controllerSet
}

// start opens the parts one after the other. The caller closes them if it fails.
func (p *parts) start(ctx context.Context, options Options) (*ControlPlane, error) {
	target, err := prepareKubeconfig(options.KubeconfigPath, p.dir)
	if err != nil {
		return nil, err
	}
	listener, err := p.dir.listen(options.BindAddress, options.SecurePort)
	if err != nil {
		return nil, err
	}
	p.api = &apiServer{listener: listener}
	p.log = openLog(p.dir.path("logs", "controlplane.log"))
	keys, err := p.dir.loadPKI(time.Now(), listener.address.IP)
	if err != nil {
		return nil, err
	}
	if p.etcd, err = startEtcd(ctx, etcdOptions{dir: p.dir, log: p.log, unsafeNoFsync: options.UnsafeNoFsync}); err != nil {
		return nil, p.log.explain(err)
	}
	if err := p.api.start(apiServerOptions{dir: p.dir, keys: keys, etcd: p.etcd.endpoint, more: options.APIServerArguments}); err != nil {
		return nil, p.log.explain(err)
	}
	issuer := identityIssuer{ca: keys.ca, host: "https://" + listener.address.String()}
	if err := p.api.waitReady(ctx); err != nil {
		return nil, p.log.explain(err)
	}
	if p.controllers, err = startControllers(ctx, issuer, keys); err != nil {
		return nil, p.log.explain(err)
	}
	return p.finish(ctx, issuer, target)
}

// finish waits for the first service account, writes the kubeconfig, and hands the parts to a goroutine that
// closes them.
func (p *parts) finish(ctx context.Context, issuer identityIssuer, target string) (*ControlPlane, error) {
	admin, err := issuer.client(adminUser, adminGroup)
	if err != nil {
		return nil, err
	}
	if err := waitForDefaultServiceAccount(ctx, admin, p.api.failed); err != nil {
		return nil, p.log.explain(err)
	}
	if err := WriteKubeconfig(target, admin); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cp := &ControlPlane{
		admin: admin, issuer: issuer, kubeconfig: target, logPath: p.log.path,
		stop: cancel, done: make(chan struct{}),
	}
	go p.supervise(ctx, cp)
	return cp, nil
}

// supervise closes the parts when a stop is requested or when one of them fails.
func (p *parts) supervise(ctx context.Context, cp *ControlPlane) {
	defer close(cp.done)
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-p.api.failed:
	case cause = <-p.etcd.failed():
	}
	cp.stop()
	if cause != nil {
		cause = p.log.explain(fmt.Errorf("the control plane stopped by itself: %w", cause))
	}
	err := errors.Join(cause, p.close())
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.err = err
}

// close ends what was started, last first, each within its bound, and releases the lock of the directory last of
// all: who gets the lock after us finds nothing of ours running.
func (p *parts) close() error {
	if p.log != nil {
		p.log.stop()
	}
	if p.controllers != nil {
		p.controllers.stop()
	}
	if p.api != nil {
		p.api.close(apiServerStopTimeout)
	}
	if p.etcd != nil {
		p.etcd.close(etcdStopTimeout)
	}
	if p.log != nil {
		p.log.close()
	}
	return p.dir.close()
}

// within runs f and waits for it no longer than limit.
func within(limit time.Duration, f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// DefaultDataDir returns the directory for the control plane below the user's data home: dataHome is the value of
// XDG_DATA_HOME, home the user's home directory, used when dataHome is empty (XDG Base Directory Specification).
func DefaultDataDir(dataHome, home string) (string, error) {
	if filepath.IsAbs(dataHome) {
		return filepath.Join(dataHome, "chancery"), nil
	}
	if home == "" {
		return "", errors.New("neither XDG_DATA_HOME nor HOME is set: name a directory with --data-dir")
	}
	return filepath.Join(home, ".local", "share", "chancery"), nil
}
