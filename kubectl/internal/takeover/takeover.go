// Package takeover holds the command `kubectl chancery takeover`. The command shows what would change if Chancery
// replaced the cert-manager of a cluster, makes this change to cert-manager's installation, and can undo the change.
//
// The command changes the Deployments of cert-manager, and the objects that `chancery install` applies. If Helm, Argo
// CD or Flux manages the installation, the user makes the change in that tool and not with this command.
package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

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
	// force goes back although cert-manager cannot keep some Certificates.
	force bool
	// timeout bounds each wait for Pods.
	timeout  time.Duration
	progress *plugin.Progress
}

// New returns the command.
func New(streams plugin.Streams) *cobra.Command { return command(streams, unlimited) }

// unlimited removes the client's own limit for requests: the API server protects itself.
func unlimited(rc *rest.Config) *rest.Config {
	rc.QPS = -1
	return rc
}

// command is New with connections that wrap has changed.
func command(streams plugin.Streams, wrap func(*rest.Config) *rest.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "takeover",
		Short: "Put Chancery in the place of the cert-manager of a cluster, or go back",
	}
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	o.flags.WrapConfigFn = wrap
	o.flags.AddFlags(cmd.PersistentFlags())
	cmd.AddCommand(newCheck(streams, o), newApply(streams, o), newRollback(streams, o))
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
		if !slices.Contains(mayBeAccepted(), name) {
			return fmt.Errorf("--accept does not take %q: it takes %s", name, strings.Join(mayBeAccepted(), ", "))
		}
	}
	return nil
}

// mayBeAccepted are the names of the red findings that --accept takes.
func mayBeAccepted() []string {
	return []string{aboutSwitches, aboutDefinitions, aboutApprovers, aboutDNS01, aboutVault, aboutCertificates}
}

func newCheck(streams plugin.Streams, o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what would change, without changing anything",
		Long: `Check reads the cluster and prints what a takeover would change. It changes nothing. It ends with the code 0 if
the report is green, 2 if the report is red, and 1 after an error.`,
		Example: `  # What would Chancery change in this cluster?
  kubectl chancery takeover check`,
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
			progress := plugin.StartProgress(streams, o.output != "", "reading the cluster")
			report, err := check(cmd.Context(), c, o, time.Now())
			progress.Stop()
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

func newApply(streams plugin.Streams, o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Put Chancery in the place of cert-manager",
		Long: `Apply runs the check, saves what it is going to change in Secrets of the namespace cert-manager, applies what
"chancery install" does, and makes the Deployments of cert-manager run Chancery. Run it again after it was ended: it goes
on where it was. It ends with the code 2, and has changed nothing, if the check is red.`,
		Example: `  kubectl chancery takeover apply --image registry.example.com/chancery:v1.0.0`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.acceptable(); err != nil {
				return err
			}
			return o.change(cmd, streams, apply)
		},
	}
	o.addChoices(cmd)
	o.addTimeout(cmd)
	return cmd
}

func newRollback(streams plugin.Streams, o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Restore the cert-manager that was there before apply",
		Long: `Rollback restores what apply has saved, and deletes what apply has made. Issuers, Certificates and Secrets stay
as they are. Run it again after it was ended: it goes on where it was.`,
		Example: `  kubectl chancery takeover rollback`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.change(cmd, streams, rollback) },
	}
	o.addTimeout(cmd)
	cmd.Flags().BoolVar(&o.force, "force", false, "go back also if there are Certificates that cert-manager cannot keep")
	return cmd
}

func (o *options) addTimeout(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the Pods of a Deployment")
}

// change connects to the cluster, and changes something.
func (o *options) change(cmd *cobra.Command, streams plugin.Streams, do func(context.Context, cluster, *rest.Config, *options, io.Writer) error) error {
	rc, err := o.flags.ToRESTConfig()
	if err != nil {
		return fmt.Errorf("no cluster to connect to: %w", err)
	}
	c, err := plugin.Connect(o.flags)
	if err != nil {
		return err
	}
	o.progress = plugin.StartProgress(streams, false, "reading the cluster")
	defer o.progress.Stop()
	err = do(cmd.Context(), cluster{c}, rc, o, streams.Out)
	if errors.Is(err, errRed) {
		return plugin.ExitError{Code: redCode, Err: err}
	}
	return err
}
