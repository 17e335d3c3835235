// Command chancery-standalone is Chancery for a machine without a cluster: a Kubernetes API server, etcd and Chancery's
// controllers in one process. It is not a way to run workloads: there are no nodes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"chancery.dev/standalone/controlplane"
)

// version is set at link time (-X main.version=…).
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the second one has its default effect: an impatient user can always leave.
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "chancery-standalone",
		Short:         "Chancery with its own Kubernetes API server, for a machine without a cluster",
		Version:       version + " (Kubernetes " + controlplane.KubernetesVersion + ")",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	// Kubernetes' own --version, which is no bool, would come in from pflag.CommandLine in place of cobra's.
	root.Flags().Bool("version", false, "version of this program and of the Kubernetes in it")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newUpCommand(), newDemoCommand(), newKubeconfigCommand(), newBenchCommand())
	return root
}
