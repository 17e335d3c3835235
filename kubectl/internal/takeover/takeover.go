// Package takeover is `kubectl chancery takeover`: it says what would change if Chancery took the place of the
// cert-manager of a cluster, makes the change in place, and takes it back.
//
// It changes the Deployments that are there, and what `chancery install` applies. An installation that Helm, Argo CD or
// Flux writes is switched there, and not here.
package takeover

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"chancery.dev/kubectl/internal/plugin"
)

// redCode is the exit code of a check that is red.
const redCode = 2

// options are what the commands are told.
type options struct {
	flags  *genericclioptions.ConfigFlags
	output string
	// accept names the red findings that the user takes as they are.
	accept []string
	// image is that of chancery, dnsImage that of chancery-dns; may be empty.
	image, dnsImage string
	keepInjector    bool
}

// New returns the command.
func New(streams plugin.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "takeover",
		Short: "Put Chancery in the place of the cert-manager of a cluster, or go back",
	}
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	o.flags.AddFlags(cmd.PersistentFlags())
	cmd.AddCommand(newCheck(streams, o))
	return cmd
}

// addChoices adds the flags that check and apply share.
func (o *options) addChoices(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.image, "image", "", "image of chancery")
	f.StringVar(&o.dnsImage, "dns-image", "", "image of chancery-dns, which runs beside the controller; only cloud DNS providers need it")
	f.BoolVar(&o.keepInjector, "keep-cainjector", false, "leave cert-manager's cainjector running, in place of that of Chancery")
	f.StringSliceVar(&o.accept, "accept", nil, "red findings to take as they are, by their names")
}

// acceptable refuses names of findings that nobody may accept.
func (o *options) acceptable() error {
	for _, name := range o.accept {
		if !slices.Contains([]string{aboutSwitches, aboutDefinitions, aboutApprovers, aboutDNS01, aboutCertificates}, name) {
			return fmt.Errorf("--accept does not take %q", name)
		}
	}
	return nil
}

func newCheck(streams plugin.Streams, o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what would change, without changing anything",
		Long: `Check reads the cluster and prints what a takeover would change. It changes nothing. It ends with the code 0 if
the report is green, 2 if the report is red, and 1 after an error.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output != "" && o.output != "json" {
				return fmt.Errorf("--output must be json, not %q", o.output)
			}
			if err := o.acceptable(); err != nil {
				return err
			}
			c, err := plugin.Connect(o.flags)
			if err != nil {
				return err
			}
			report, err := check(cmd.Context(), c, o, time.Now())
			if err != nil {
				return err
			}
			if o.output == "json" {
				err = report.printJSON(streams.Out)
			} else {
				err = report.print(streams.Out)
			}
			if err == nil && !report.Green {
				return plugin.ExitError{Code: redCode}
			}
			return err
		},
	}
	o.addChoices(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "json, for programs")
	return cmd
}
