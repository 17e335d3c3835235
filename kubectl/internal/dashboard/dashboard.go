// Package dashboard is the command that serves a page about certificates to the browser of the user.
package dashboard

import (
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	page "chancery.dev/internal/dashboard"
	"chancery.dev/kubectl/internal/plugin"
)

const examples = `  # The certificates of a namespace
  kubectl chancery dashboard

  # All certificates, on a port of your choice
  kubectl chancery dashboard -A --address 127.0.0.1:8080`

// New returns the command dashboard.
func New(streams plugin.Streams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	all, address := false, ""
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serves a read-only page about certificates to your browser",
		Long: "Serves a page on this machine, with your rights, until you press Ctrl-C: all certificates, trouble first, with the\n" +
			"cause and what to do, the issuers, the Challenges under way, and requests of Pods in trouble. The role view is enough,\n" +
			"but for requests of Pods; Secrets are not read.\n" +
			"The address that it prints works once, and in one browser.",
		Example: examples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page.CheckAddress(address); err != nil {
				return fmt.Errorf("--address: %w", err)
			}
			c, namespace, err := plugin.ConnectIn(flags)
			if err != nil {
				return err
			}
			if all {
				namespace = ""
			}
			o := page.Options{Client: c, Cluster: contextOf(flags), Namespace: namespace, Address: address}
			err = page.Serve(cmd.Context(), o, func(url string) {
				fmt.Fprintf(streams.Out, "Open this address in a browser. It works once:\n%s\nPress Ctrl-C to stop.\n", url)
			})
			if all && apierrors.IsForbidden(err) {
				return fmt.Errorf("%w: leave -A out to see one namespace", err)
			}
			return err
		},
	}
	f := cmd.Flags()
	flags.AddFlags(f)
	f.BoolVarP(&all, "all-namespaces", "A", false, "show all namespaces")
	f.StringVar(&address, "address", "127.0.0.1:0", "loopback address to serve on; port 0 takes a free one")
	return cmd
}

// contextOf is the context of the kubeconfig that is used; empty for none.
func contextOf(flags *genericclioptions.ConfigFlags) string {
	if flags.Context != nil && *flags.Context != "" {
		return *flags.Context
	}
	config, err := flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "" // in a Pod there is none
	}
	return config.CurrentContext
}
