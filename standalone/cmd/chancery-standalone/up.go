package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"chancery.dev/internal/app"
	"chancery.dev/internal/cli"
	"chancery.dev/internal/dashboard"
	"chancery.dev/standalone/controlplane"
)

// upOptions are the flags of `up`.
type upOptions struct {
	controlplane.Options
	controllers    bool
	config         app.Config
	exitWithParent bool
	dashboard      string
}

func newUpCommand() *cobra.Command {
	o := upOptions{config: standaloneConfig()}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the control plane and the controllers until stopped",
		Long: `Run a Kubernetes API server with etcd, and Chancery's controllers, until SIGINT or SIGTERM.

It listens on loopback only. Everything it knows is in the data directory; a restart finds it there.
When all is ready, the kubeconfig appears (mode 0600) and a line "ready" is printed.

CertificateSigningRequests for cert-manager.io/<ClusterIssuer> are approved and signed, whoever creates them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	addDataDirFlag(cmd, &o.DataDir)
	f.StringVar(&o.KubeconfigPath, "kubeconfig-out", "", "file to write the administrator's kubeconfig to (default: kubeconfig in the data directory)")
	f.StringVar(&o.BindAddress, "bind-address", "127.0.0.1", "loopback address to serve the Kubernetes API on")
	f.IntVar(&o.SecurePort, "secure-port", 0, "port to serve the Kubernetes API on; 0 takes the previous run's port if it is free, else any")
	f.BoolVar(&o.controllers, "controllers", true, "run Chancery's controllers too; false runs the control plane alone")
	f.BoolVar(&o.UnsafeNoFsync, "unsafe-no-fsync", false, "do not wait for the disk: faster, loses data when the machine (not the process) dies; for tests")
	f.StringArrayVar(&o.APIServerArguments, "kube-apiserver-arg", nil, "argument for kube-apiserver, such as --emulated-version=1.34; may be repeated")
	f.StringVar(&o.dashboard, "dashboard-address", "", "loopback address to serve a read-only page about certificates on, such as 127.0.0.1:8080; empty for none")
	cli.AddConfigFlags(cmd, &o.config)
	f.BoolVar(&o.exitWithParent, "exit-with-parent", false, "stop when standard input ends; standard input must be a pipe that the parent process holds open")
	return cmd
}

// up runs until ctx is done or a part fails.
func up(ctx context.Context, o upOptions, out io.Writer) error {
	if o.exitWithParent {
		var err error
		if ctx, err = withParent(ctx, os.Stdin); err != nil {
			return err
		}
	}
	if err := defaultDataDir(&o.DataDir); err != nil {
		return err
	}
	if o.controllers {
		if err := o.config.Validate(); err != nil {
			return err
		}
	}
	if o.dashboard != "" {
		if err := dashboard.CheckAddress(o.dashboard); err != nil {
			return fmt.Errorf("--dashboard-address: %w", err)
		}
	}
	began := time.Now()
	cp, err := controlplane.Start(ctx, o.Options)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil //nolint:nilerr // stopped by the user before it was ready
	case err != nil:
		return err
	}
	failure := make(chan error, 2)
	ready := func() {
		announce(out, cp, time.Since(began))
		if o.dashboard != "" {
			go func() { failure <- serveDashboard(ctx, cp, o.dashboard, out) }()
		}
	}
	if o.controllers {
		go func() { failure <- startControllers(ctx, cp, o.DataDir, o.config, ready) }()
	} else {
		ready()
	}
	select {
	case <-cp.Done():
	case err = <-failure:
	}
	return errors.Join(err, cp.Stop())
}

// announce tells the user how to go on, and scripts that it is time to.
func announce(out io.Writer, cp *controlplane.ControlPlane, took time.Duration) {
	_, _ = fmt.Fprintf(out, `Kubernetes %s is ready at %s after %.1fs.

  export KUBECONFIG=%s
  kubectl get namespaces

Its log is %s. Stop it with Ctrl-C.
ready
`, controlplane.KubernetesVersion, cp.Config().Host, took.Seconds(), shellQuote(cp.KubeconfigPath()), cp.LogPath())
}

// serveDashboard serves the page about certificates as the administrator, until ctx is done.
func serveDashboard(ctx context.Context, cp *controlplane.ControlPlane, address string, out io.Writer) error {
	c, err := dashboard.Connect(cp.Config())
	if err != nil {
		return err
	}
	return dashboard.Serve(ctx, dashboard.Options{Client: c, Cluster: "chancery", Address: address}, func(url string) {
		_, _ = fmt.Fprintf(out, "The dashboard: open this address in a browser. It works once:\n%s\n", url)
	})
}

// withParent returns a context that ends when stdin does. The kernel closes the parent's end of the pipe however the
// parent dies, also by SIGKILL, and on every system; PR_SET_PDEATHSIG would be Linux only and follows a thread of the
// parent.
func withParent(ctx context.Context, stdin *os.File) (context.Context, error) {
	info, err := stdin.Stat()
	if err != nil {
		return nil, fmt.Errorf("--exit-with-parent: standard input: %w", err)
	}
	if info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return nil, errors.New("--exit-with-parent needs a pipe as standard input, which the parent process holds open: " +
			"start this command with a pipe (in Go, exec.Cmd's StdinPipe), or leave the flag out")
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, stdin)
	}()
	return ctx, nil
}
