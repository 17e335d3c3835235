// Package preflight is the command that checks, before an issuance, whether the issuance can succeed.
//
// The command reads from the API server, from DNS and from the directory of the CA. It also connects to the names of
// the Certificate, as a CA does for HTTP-01 and TLS-ALPN-01 challenges. internal/clientside/preflight of the root
// module judges the answers.
package preflight

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/status"
)

// failed is the exit status if a check has failed.
const failed = 2

const examples = `  # Would the certificates of this manifest be issued?
  kubectl chancery preflight -f web.yaml

  # What is in the way of a Certificate that is there?
  kubectl chancery preflight web

  # Try the credentials for DNS, too; you need the right to update the issuer
  kubectl chancery preflight web --credentials

  # Have a test issuer issue it first, and remove what was issued
  kubectl chancery preflight -f web.yaml --staging-issuer letsencrypt-staging

  # Ask the DNS servers that the controller asks
  kubectl chancery preflight web --dns01-recursive-nameservers 1.1.1.1:53`

// options are the flags of the command.
type options struct {
	flags       *genericclioptions.ConfigFlags
	files       []string
	output      string
	nameservers []string
	resources   string
	credentials bool
	staging     string
	timeout     time.Duration
	ports       ports
}

// ports are where the servers listen that are asked; 0 means the usual ones.
type ports struct{ dns, http, tls int }

// New returns the command preflight.
func New(streams plugin.Streams) *cobra.Command {
	return newCommand(streams, genericclioptions.NewConfigFlags(true), ports{})
}

func newCommand(streams plugin.Streams, flags *genericclioptions.ConfigFlags, at ports) *cobra.Command {
	o := &options{flags: flags, ports: at}
	cmd := &cobra.Command{
		Use:   "preflight [certificate | file | -]...",
		Short: "Checks before an issuance whether it can succeed: issuer, solver, DNS, CAA, routes, limits of the CA",
		Long: "Checks Certificates of a manifest, or of the cluster, without asking the CA for a certificate. Each line says ok, warning,\n" +
			"failed or not checked, and what to do. DNS and the routes are asked from this machine: the controller and the CA may see\n" +
			"others. The role view is enough, but for --credentials and --staging-issuer. The exit status is 2 if a check has failed.",
		Example: examples,
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), streams, args) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			names, _ := plugin.Complete(0, plugin.Certificates())(cmd, args, begun)
			return names, cobra.ShellCompDirectiveDefault // or files
		},
	}
	f := cmd.Flags()
	flags.AddFlags(f)
	f.StringSliceVarP(&o.files, "filename", "f", nil, "file with Certificates, or with Ingresses or Gateways that ask for them; - is the standard input; other kinds are passed over")
	f.StringVarP(&o.output, "output", "o", "", "json or yaml")
	f.StringSliceVar(&o.nameservers, "dns01-recursive-nameservers", nil, "name servers to ask, host:port or https://…; those of this machine by default")
	f.StringVar(&o.resources, "cluster-resource-namespace", "cert-manager", "namespace of the Secrets of ClusterIssuers, as the controller has it")
	f.BoolVar(&o.credentials, "credentials", false, "have the controller write a DNS record and remove it, with the credentials of the solver: one for each zone and solver")
	f.StringVar(&o.staging, "staging-issuer", "", "issuer that issues a copy of the Certificate first, as in letsencrypt-staging or clusterissuer/letsencrypt-staging; the copy is removed")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for --staging-issuer, and for --credentials")
	_ = cmd.RegisterFlagCompletionFunc("staging-issuer", plugin.Complete(0, plugin.Issuers()...)) // the flag is there
	return cmd
}

func (o *options) run(ctx context.Context, streams plugin.Streams, args []string) error {
	if !slices.Contains([]string{"", "json", "yaml"}, o.output) {
		return fmt.Errorf("--output is json or yaml, not %q", o.output)
	}
	c, namespace, err := plugin.ConnectIn(o.flags)
	if err != nil {
		return err
	}
	inputs, err := o.read(ctx, c, streams, namespace, args)
	if err != nil {
		return err
	}
	if len(inputs) == 0 {
		return errors.New("no Certificate is given: name one, or a file with -f; see which there are: kubectl chancery list")
	}
	reports, err := o.checkAll(ctx, c, streams, inputs)
	if err != nil {
		return err
	}
	if o.output != "" {
		if err := status.Encode(streams.Out, o.output, reports); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(reports, preflight.Report.Failed) {
		return plugin.ExitError{Code: failed}
	}
	return nil
}

// checkAll checks Certificates one after the other, and shows each report to people.
func (o *options) checkAll(ctx context.Context, c client.Client, streams plugin.Streams, inputs []input) ([]preflight.Report, error) {
	progress := plugin.StartProgress(streams, o.output != "", "check the issuers")
	defer progress.Stop()
	k, err := newChecker(c, o, progress)
	if err != nil {
		return nil, err
	}
	reports := make([]preflight.Report, 0, len(inputs))
	for _, in := range inputs {
		report := k.check(ctx, in)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		reports = append(reports, report)
		if o.output == "" {
			printReport(streams.Out, report)
		}
	}
	return reports, nil
}

// printReport shows a report to people.
func printReport(out io.Writer, r preflight.Report) {
	fmt.Fprintln(out, explain.Name("Certificate", r.Namespace, r.Certificate))
	const width = len(preflight.NotChecked)
	for _, f := range r.Findings {
		what := strings.TrimSpace(f.Check + " " + f.Subject)
		fmt.Fprintf(out, "  %-*s  %s: %s\n", width, f.Outcome, terminal.Line(what), terminal.Line(f.Message))
		if f.WhatToDo != "" {
			fmt.Fprintf(out, "  %-*s  → %s\n", width, "", terminal.Line(f.WhatToDo))
		}
	}
}
