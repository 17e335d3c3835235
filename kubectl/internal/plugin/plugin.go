// Package plugin is the root command of kubectl-chancery, and what its commands share: the connection to a cluster, as
// kubectl takes it, and exit codes.
//
// The commands themselves are in packages of their own.
package plugin

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/internal/cli/version"
)

// Streams are where a command reads and writes.
type Streams = genericiooptions.IOStreams

// ExitError ends the process with a code of its own, for scripts. Without Err nothing more is printed.
type ExitError struct {
	Code int
	Err  error
}

// Error is what is printed before the process ends.
func (e ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap gives the error behind.
func (e ExitError) Unwrap() error { return e.Err }

// New returns the root command of kubectl-chancery.
func New(streams Streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-chancery",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl chancery"},
		Short:         "Shows and changes what Chancery does in a cluster",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	version.Add(root)
	return root
}

// Connect returns a client for the cluster that the flags of kubectl name. The client knows the kinds of api.Scheme;
// other kinds are read as unstructured objects.
func Connect(flags *genericclioptions.ConfigFlags) (client.WithWatch, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to connect to: %w", err)
	}
	scheme, err := api.Scheme()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}
