package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"chancery.dev/examples"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/standalone/controlplane"
	"chancery.dev/standalone/demo"
)

// demoMarker is a file in the data directory of a demo. A demo begins by removing the objects that it is going to make,
// so it must not run on a directory that somebody uses for something else.
const demoMarker = "demo"

// demoOptions are the flags of `demo`.
type demoOptions struct {
	dataDir  string
	examples string
	keep     bool
	timeout  time.Duration
}

func newDemoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Issue real certificates on a control plane of its own, and show the work",
		Long: `Start a Kubernetes API server, Chancery's controllers, an ACME server (Pebble) and a DNS server, all on loopback and in this
process. Apply the manifests of examples/ and show what becomes of each Certificate, its Order and its Challenges, and of
a Pod with a certificate. In the end every chain is verified.

The controllers have their defaults, and --pod-certificates: CertificateSigningRequests for cert-manager.io/<ClusterIssuer>
are approved and signed, whoever creates them. There is no node: the code of the kubelet that gets certificates for Pods
runs, and no container does.

It leaves with 0 if all certificates were issued and are good, else with 1 and the reasons. It needs no cluster, no network and no
kubectl.`,
		Example: `  chancery-standalone demo
  chancery-standalone demo --keep
  chancery-standalone demo --examples my-manifests --timeout 30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), o, cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "directory to keep everything in, new, empty or of an earlier demo (default: a temporary one, removed at the end)")
	f.StringVar(&o.examples, "examples", "", "directory of *.yaml files, also in directories right below it, to apply in place of the built-in examples; they may use their placeholders, such as ${ACME_SERVER}")
	f.BoolVar(&o.keep, "keep", false, "stay up when all is done, for kubectl, until Ctrl-C; keep the directory")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long to wait for all certificates")
	return cmd
}

// runDemo prepares the directory, and takes it away again.
func runDemo(ctx context.Context, o demoOptions, out io.Writer) (err error) {
	if err := errors.Join(withoutProxy(), o.checkExamples()); err != nil {
		return err
	}
	dir, err := demoDir(o.dataDir)
	if err != nil {
		return err
	}
	if o.dataDir == "" && !o.keep {
		defer func() { err = errors.Join(err, removeAll(dir)) }()
	}
	temporary := o.dataDir == ""
	o.dataDir = dir
	_, _ = fmt.Fprintf(out, "Starting Kubernetes %s: an API server and etcd in this process.\n", controlplane.KubernetesVersion)
	began := time.Now()
	cp, err := controlplane.Start(ctx, controlplane.Options{DataDir: dir, UnsafeNoFsync: temporary && !o.keep})
	switch {
	case err != nil && ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	_, _ = fmt.Fprintf(out, "  ready after %.1f s at %s\n", time.Since(began).Seconds(), cp.Config().Host)
	return withControllers(ctx, cp, o, out)
}

// errInterrupted says that the user has stopped the demo.
var errInterrupted = errors.New("stopped before all was done")

// withControllers starts the peers and the controllers, demonstrates, and stops them.
func withControllers(ctx context.Context, cp *controlplane.ControlPlane, o demoOptions, out io.Writer) error {
	ready := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	peers, err := demo.StartPeers(ctx)
	if err != nil {
		cancel(nil)
		return err
	}
	_, _ = fmt.Fprintf(out, "Started %s.\n", peers)
	config := standaloneConfig()
	peers.Configure(&config.ACME)
	config.PodCertificates = true
	serving, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := startControllers(ctx, cp, o.dataDir, config, func() { close(serving) })
		cancel(err) // without a cause it was us
	}()
	defer func() {
		cancel(nil)
		<-ended
	}()
	select {
	case <-serving:
	case <-ctx.Done():
		return stopCause(ctx)
	}
	_, _ = fmt.Fprintf(out, "Installed Chancery; its controllers run as the service account %s/%s, %.1f s after the API server was ready.\n",
		controllersNamespace, controllersServiceAccount, time.Since(ready).Seconds())
	err = demo.Run(ctx, demo.Options{
		Config: cp.Config(), Manifests: o.manifests(), Peers: peers, ClusterResourceNamespace: config.ClusterResourceNamespace,
		Timeout: o.timeout, Out: out, Size: terminalSize(out),
	})
	if ctx.Err() != nil {
		return stopCause(ctx)
	}
	if err == nil {
		_, _ = fmt.Fprintf(out, "That is %.1f s after the API server was ready.\n", time.Since(ready).Seconds())
	}
	var failed *demo.FailedError
	if o.keep && (err == nil || errors.As(err, &failed)) {
		stay(ctx, cp, o.dataDir, out)
	}
	return err
}

// stopCause says why a context ended: by the user, or because a part failed.
func stopCause(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return errInterrupted
}

// stay tells the user how to look around, and waits for Ctrl-C.
func stay(ctx context.Context, cp *controlplane.ControlPlane, dir string, out io.Writer) {
	_, _ = fmt.Fprintf(out, `
Everything stays up until Ctrl-C. In another shell:

  export KUBECONFIG=%s
  kubectl get certificates,certificaterequests,orders,challenges,podcertificaterequests -A

Its data, and the logs, are in %s.
`, shellQuote(cp.KubeconfigPath()), dir)
	select {
	case <-ctx.Done():
	case <-cp.Done():
	}
}

// manifests are what to apply.
func (o demoOptions) manifests() fs.FS {
	if o.examples == "" {
		return examples.Files()
	}
	return os.DirFS(o.examples)
}

// checkExamples says what is wrong with the directory before anything is started.
func (o demoOptions) checkExamples() error {
	if o.examples == "" {
		return nil
	}
	if _, err := os.ReadDir(o.examples); err != nil {
		return fmt.Errorf("--examples: %w: name a directory that holds *.yaml files", err)
	}
	found, err := examples.Names(o.manifests())
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("--examples: directory %s holds no *.yaml file", o.examples)
	}
	return err
}

// removeAll removes a directory in which an abandoned part may still write for a moment.
func removeAll(dir string) error {
	const tries = 20
	var err error
	for range tries {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		<-time.After(50 * time.Millisecond)
	}
	return fmt.Errorf("remove %s yourself: %w", dir, err)
}

// demoDir returns the absolute path of a directory that is a demo's to use: a new temporary one for "".
func demoDir(dir string) (string, error) {
	if dir == "" {
		made, err := os.MkdirTemp("", "chancery-demo-")
		if err != nil {
			return "", fmt.Errorf("make a temporary directory (or name one with --data-dir): %w", err)
		}
		dir = made
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	marker := filepath.Join(dir, demoMarker)
	held, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("data directory %s cannot be used: %w: name another with --data-dir", dir, err)
	}
	if len(held) > 0 {
		if _, err := os.Stat(marker); err != nil {
			return "", fmt.Errorf("data directory %s is not empty and not of an earlier demo, which would overwrite objects in it: "+
				"name a new one with --data-dir", dir)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("data directory %s cannot be used: %w: name another with --data-dir", dir, err)
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		return "", fmt.Errorf("data directory %s cannot be used: %w: name another with --data-dir", dir, err)
	}
	return dir, nil
}

// withoutProxy forgets the proxy of the environment: all that the demo speaks to is on loopback, under names that no
// proxy knows.
func withoutProxy() error {
	var err error
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		err = errors.Join(err, os.Unsetenv(name))
	}
	return err
}

// terminalSize returns how to ask for the size of the terminal that out is, or nil if it is none.
func terminalSize(out io.Writer) func() (width, height int) {
	file, ok := terminal.Raw(out).(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width == 0 || height == 0 {
			return 80, 24 // what terminals have been since they could not say
		}
		return width, height
	}
}
