// Command chancery-standalone is Chancery for a machine without a cluster: a Kubernetes API server, etcd and Chancery's
// controllers in one process. It is not a way to run workloads: there are no nodes.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"chancery.dev/internal/cli"
	"chancery.dev/internal/cli/manual"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/cli/version"
)

//go:generate go test -count=1 -run ^TestReference$ . -update

func main() {
	cli.LimitMemory(os.Getenv)
	root := newCommand()
	root.SetOut(terminal.NewWriter(os.Stdout))
	root.SetErr(terminal.NewWriter(os.Stderr))
	if err := root.ExecuteContext(cli.UntilStopped()); err != nil {
		root.PrintErrln("error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "chancery-standalone",
		Short:         "Chancery with its own Kubernetes API server, for a machine without a cluster",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Kubernetes' own --version, which is no bool, would come in from pflag.CommandLine in place of cobra's.
	root.Flags().Bool("version", false, "version of this program and of the Kubernetes in it")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newUpCommand(), newDemoCommand(), newKubeconfigCommand(), newBenchCommand())
	version.Add(root)
	manual.Add(root)
	return root
}
