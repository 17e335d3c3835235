// Package status holds the command status, which shows the state of certificates and the cause of each problem. The
// command changes nothing.
package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"

	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/kubectl/internal/plugin"
)

const examples = `  # Why does the certificate web not come?
  kubectl chancery status web

  # What serves this host name?
  kubectl chancery status www.example.com

  # From an Ingress, a Gateway, a Secret, a Pod, or what was made for the certificate
  kubectl chancery status ingress/web
  kubectl chancery status certificaterequest/web-1
  kubectl chancery status csr/agent

  # After the CA of an issuer was replaced: how many certificates are left of an earlier CA?
  kubectl chancery status -A clusterissuer/ca

  # All trouble of the cluster, by cause, the worst first
  kubectl chancery status -A --not-ready

  # What becomes of it, live
  kubectl chancery status web --watch

  # All certificates of all namespaces, for programs
  kubectl chancery status -A -o json`

// options are the flags of the command.
type options struct {
	flags    *genericclioptions.ConfigFlags
	all      bool
	selector string
	output   string
	watch    bool
	notReady bool
}

// inTrouble is the exit status if a certificate is in trouble.
const inTrouble = 2

// New returns the command status.
func New(streams plugin.Streams) *cobra.Command {
	return newCommand(streams, genericclioptions.NewConfigFlags(true))
}

func newCommand(streams plugin.Streams, flags *genericclioptions.ConfigFlags) *cobra.Command {
	o := &options{flags: flags}
	cmd := &cobra.Command{
		Use:   "status [certificate | host name | kind/name]...",
		Short: "Says where certificates stand, and why: the cause, the next try, and what to do",
		Long: "Shows each Certificate: first its state and the cause, then what to do and the next try, then its issuer, its request,\n" +
			"Order and Challenges, and what each of them says. The role view is enough; Secrets are not read. The exit status is\n" +
			"2 if a certificate is in trouble, and 1 after an error.",
		Example: examples,
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd, streams, args) },

		ValidArgsFunction: plugin.Complete(0, kinds()...),
	}
	f := cmd.Flags()
	flags.AddFlags(f)
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "look in all namespaces")
	f.StringVarP(&o.selector, "selector", "l", "", "only Certificates with these labels, as in app=web")
	f.StringVarP(&o.output, "output", "o", "", "json, yaml or name")
	f.BoolVar(&o.notReady, "not-ready", false, "only what is not ready or in trouble, by cause, the worst first")
	f.BoolVarP(&o.watch, "watch", "w", false, "show each change as it comes, until interrupted")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return cmd
}

func (o *options) run(cmd *cobra.Command, streams plugin.Streams, args []string) error {
	q, err := o.query(args)
	if err != nil {
		return err
	}
	c, err := plugin.Connect(o.flags)
	if err != nil {
		return err
	}
	p := printer{out: streams.Out, colour: coloured(streams.Out)}
	if p.colour {
		p.out = terminal.Raw(streams.Out)
	}
	if o.watch {
		return follow(cmd.Context(), c, q, p)
	}
	progress := plugin.StartProgress(streams, o.output != "", "reading the Certificates and what was made for them")
	reports, err := Gather(cmd.Context(), c, q, time.Now())
	progress.Stop()
	if err != nil {
		return err
	}
	if err := o.write(streams, p, reports, q.Namespace); err != nil {
		return err
	}
	if slices.ContainsFunc(reports, func(r explain.Report) bool { return r.Cause != "" }) {
		return plugin.ExitError{Code: inTrouble}
	}
	return nil
}

// write shows the reports as the flags ask for.
func (o *options) write(streams plugin.Streams, p printer, reports []explain.Report, namespace string) error {
	now := time.Now()
	switch {
	case o.output == "name":
		for _, r := range reports {
			if o.notReady && !r.Troubled(now) {
				continue
			}
			fmt.Fprintln(streams.Out, strings.ToLower(r.Kind)+"/"+r.Name)
		}
		return nil
	case o.notReady && o.output != "":
		return Encode(streams.Out, o.output, explain.Groups(reports, now))
	case o.output != "":
		return Encode(streams.Out, o.output, reports)
	case len(reports) == 0:
		fmt.Fprintln(streams.ErrOut, NoneIn("Certificates", namespace))
		return nil
	case o.notReady:
		p.groups(explain.Groups(reports, now), reports)
		return nil
	}
	p.all(reports, now)
	return nil
}

// formats are what -o takes.
func formats() []string { return []string{"json", "yaml", "name"} }

func (o *options) query(args []string) (q Query, err error) {
	q.Args = slashed(args)
	if q.Selector, err = labels.Parse(o.selector); err != nil {
		return q, fmt.Errorf("--selector: %w", err)
	}
	if o.output != "" && !slices.Contains(formats(), o.output) {
		return q, fmt.Errorf("--output is json, yaml or name, not %q", o.output)
	}
	if o.watch && (o.output != "" || o.notReady) {
		return q, errors.New("--watch is for people, and shows each Certificate: leave --output and --not-ready out")
	}
	if o.notReady && slices.ContainsFunc(q.Args, asksForIssuer) {
		return q, errors.New("--not-ready groups Certificates: leave it out to see an issuer")
	}
	if !o.all {
		q.Namespace, _, err = o.flags.ToRawKubeConfigLoader().Namespace()
	}
	return q, err
}

// Encode writes values for programs, as json or yaml.
func Encode[T any](out io.Writer, format string, items []T) error {
	if items == nil {
		items = []T{}
	}
	text, err := json.MarshalIndent(map[string]any{"items": items}, "", "  ")
	if err == nil && format == "yaml" {
		text, err = yaml.JSONToYAML([]byte(terminal.Text(string(text)))) // it takes control characters only as escapes
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, string(text))
	return err
}

// coloured reports whether output goes to a terminal, whose user takes colours.
func coloured(out io.Writer) bool {
	return plugin.IsTerminal(out) && os.Getenv("NO_COLOR") == ""
}

// NoneIn says that a namespace has none of what, such as Certificates, and where to look for them; an empty namespace
// stands for all.
func NoneIn(what, namespace string) string {
	if namespace == "" {
		return "no " + what + " are found"
	}
	return "no " + what + " are found in the namespace " + namespace + "; to look in all namespaces: -A"
}
