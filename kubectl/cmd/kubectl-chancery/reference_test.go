package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"chancery.dev/internal/rig/golden"
	"chancery.dev/internal/rig/reference"
	"chancery.dev/kubectl/internal/plugin"
)

// TestReference: docs/reference has the commands and the flags that there are, but for those of kubectl, by which each
// command finds the cluster. make generate writes it.
func TestReference(t *testing.T) {
	ofKubectl := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(false).AddFlags(ofKubectl)
	var own func(cmd *cobra.Command)
	own = func(cmd *cobra.Command) {
		hide := func(f *pflag.Flag) {
			if common := ofKubectl.Lookup(f.Name); common != nil && common.Usage == f.Usage {
				f.Hidden = true
			}
		}
		cmd.Flags().VisitAll(hide)
		cmd.PersistentFlags().VisitAll(hide)
		for _, below := range cmd.Commands() {
			own(below)
		}
	}
	cmd := commands(plugin.Streams{})
	own(cmd)
	golden.Check(t, "../../../../docs/reference/kubectl-chancery.md", reference.Commands(cmd))
}
