// Package cli defines the commands of the binary chancery: flags, output, exit codes.
//
// The commands call internal/app, which does the work. This package decides nothing about certificates.
package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"chancery.dev/internal/app"
	"chancery.dev/internal/cli/logging"
	"chancery.dev/internal/cli/manual"
	"chancery.dev/internal/cli/version"
)

//go:generate go test -count=1 -run ^TestReference$ . -update

// New returns the root command of chancery.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:           "chancery",
		Short:         "Issues and renews TLS certificates in Kubernetes",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentPreRunE = fromEnvironment
	root.CompletionOptions.DisableDefaultCmd = true
	solver := newACMESolverCommand()
	root.AddCommand(newControllerCommand(), newInjectorCommand(), newResponderCommand(), newWebhookCommand(), newInstallCommand(), newCheckCommand(), solver)
	actAsACMESolver(root, solver)
	version.Add(root)
	manual.Add(root)
	return root
}

// impatience is how long after the first signal a second one counts: timeout(1) and other programs that signal a
// process and its group send two at once.
const impatience = time.Second

// UntilStopped returns the context of a command: it ends with the first SIGINT or SIGTERM. A later signal ends the
// process at once.
func UntilStopped() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(impatience, stop) })
	return ctx
}

// connection are the flags that say which API server is meant.
type connection struct {
	kubeconfig, master string
}

func (c *connection) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig to connect with; without it, the one that kubectl would use, or the service account of the pod")
	cmd.Flags().StringVar(&c.master, "master", "", "address of the API server, instead of the kubeconfig's")
}

// config finds the API server: the flags, then what kubectl would use, then the pod's service account.
func (c *connection) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	overrides := &clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = c.master
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		if rc, inCluster := rest.InClusterConfig(); inCluster == nil {
			return rc, nil
		}
		return nil, fmt.Errorf("no API server to connect to: give --kubeconfig, or set KUBECONFIG to a file that names one: %s does not",
			strings.Join(rules.GetLoadingPrecedence(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return rc, nil
}

// unreachable shortens err if it says that the API server of rc cannot be reached: client-go begins such errors with
// the request that it wanted to make.
func unreachable(rc *rest.Config, err error) error {
	var failed *url.Error
	if !errors.As(err, &failed) || errors.Is(err, context.Canceled) || !strings.Contains(failed.URL, rc.Host) {
		return err
	}
	return fmt.Errorf("cannot connect to the API server %s: %w: name another by --kubeconfig or --master", rc.Host, failed.Err)
}

// server are the flags of a command that runs until it is stopped.
type server struct {
	connection
	logging.Flags
}

func (s *server) addFlags(cmd *cobra.Command) {
	s.connection.addFlags(cmd)
	s.Add(cmd.Flags())
}

// begin sets up the log, and finds the API server.
func (s *server) begin(cmd *cobra.Command) (*rest.Config, logr.Logger, error) {
	handler, err := s.Handler(cmd.ErrOrStderr())
	if err != nil {
		return nil, logr.Logger{}, err
	}
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(app.Machinery(log))
	rc, err := s.config()
	return rc, log, err
}
