// Package list is the command that shows all certificates by the time when they end.
package list

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"chancery.dev/internal/explain"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/status"
)

const examples = `  # All certificates of a namespace, those that end first on top
  kubectl chancery list

  # What needs a look: ends within two weeks, or is not ready. The exit status is 2 if there is anything
  kubectl chancery list -A --expiring 14d --not-ready

  # What an issuer has signed, for a spreadsheet
  kubectl chancery list -A --issuer letsencrypt -o csv`

// found is the exit status if there is anything that was asked for as trouble.
const found = 2

// options are the flags of the command.
type options struct {
	flags    *genericclioptions.ConfigFlags
	all      bool
	selector string
	output   string
	expiring string
	filter   explain.Filter
}

// New returns the command list.
func New(streams plugin.Streams) *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Lists certificates by the time when they end, with issuer, renewal, state and cause",
		Long: "Lists Certificates, those that end first on top, and those that have no certificate yet before them. The role view\n" +
			"is enough. With --expiring or --not-ready, the exit status is 2 if there are any, and 0 if there are none.",
		Example: examples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd, streams) },
	}
	f := cmd.Flags()
	o.flags.AddFlags(f)
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "look in all namespaces")
	f.StringVarP(&o.selector, "selector", "l", "", "only Certificates with these labels, as in app=web")
	f.StringVarP(&o.output, "output", "o", "", "wide, json, yaml or csv")
	f.StringVar(&o.expiring, "expiring", "", "only certificates that end within this time, as in 14d or 36h; with --not-ready, those that are not ready too")
	f.BoolVar(&o.filter.NotReady, "not-ready", false, "only certificates that are not ready; with --expiring, those that end soon too")
	f.StringVar(&o.filter.Issuer, "issuer", "", "only certificates of this issuer: a name, or as in clusterissuer/letsencrypt")
	_ = cmd.RegisterFlagCompletionFunc("issuer", plugin.Complete(0, plugin.Issuers()...)) // the flag is there
	formats := []string{"wide", "json", "yaml", "csv"}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // as well
	return cmd
}

func (o *options) run(cmd *cobra.Command, streams plugin.Streams) error {
	q := status.Query{Brief: true}
	var err error
	if q.Selector, err = labels.Parse(o.selector); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	if o.expiring != "" {
		if o.filter.Expiring, err = within(o.expiring); err != nil {
			return fmt.Errorf("--expiring: %w", err)
		}
	}
	write, known := formats()[o.output]
	if !known {
		return fmt.Errorf("--output is wide, json, yaml or csv, not %q", o.output)
	}
	if !o.all {
		if q.Namespace, _, err = o.flags.ToRawKubeConfigLoader().Namespace(); err != nil {
			return err
		}
	}
	c, err := plugin.Connect(o.flags)
	if err != nil {
		return err
	}
	now := time.Now()
	people := o.output == "" || o.output == "wide"
	progress := plugin.StartProgress(streams, !people, "reading the Certificates")
	reports, err := status.Gather(cmd.Context(), c, q, now)
	progress.Stop()
	if err != nil {
		return err
	}
	rows := explain.Rows(reports, o.filter, now)
	if len(rows) == 0 && people {
		fmt.Fprintln(streams.ErrOut, status.NoneIn(q.Namespace))
		return nil
	}
	if err := write(streams.Out, rows, o.all, now); err != nil {
		return err
	}
	if len(rows) > 0 && (o.expiring != "" || o.filter.NotReady) {
		return plugin.ExitError{Code: found}
	}
	return nil
}

// within reads a duration that may be in days.
func within(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, is := strings.CutSuffix(text, "d"); is {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return 0, errors.New("must be a time as in 14d or 36h, not " + strconv.Quote(text))
	}
	return d, nil
}

// format writes rows; namespaces are shown where they may differ.
type format func(out io.Writer, rows []explain.Row, namespaces bool, now time.Time) error

func formats() map[string]format {
	encode := func(as string) format {
		return func(out io.Writer, rows []explain.Row, _ bool, _ time.Time) error {
			return status.Encode(out, as, rows)
		}
	}
	return map[string]format{
		"": table(false), "wide": table(true), "csv": commas, "json": encode("json"), "yaml": encode("yaml"),
	}
}

// columns of a row, as text.
func columns(r explain.Row) []string {
	return []string{r.Namespace, r.Name, stamp(r.Expires), stamp(r.Renews), r.Issuer, r.State, r.Cause, r.NextTry, r.Secret, strings.Join(r.Names, " ")}
}

func commas(out io.Writer, rows []explain.Row, _ bool, _ time.Time) error {
	w := csv.NewWriter(out)
	lines := [][]string{{"namespace", "name", "expires", "renews", "issuer", "state", "cause", "nextTry", "secret", "names"}}
	for _, r := range rows {
		lines = append(lines, columns(r))
	}
	return w.WriteAll(lines)
}

// causeWidth is how much of a cause a narrow table shows.
const causeWidth = 100

func table(wide bool) format {
	return func(out io.Writer, rows []explain.Row, namespaces bool, now time.Time) error {
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		line := func(namespace string, rest ...string) {
			if namespaces {
				rest = append([]string{namespace}, rest...)
			}
			plugin.Row(w, rest...)
		}
		if wide {
			line("NAMESPACE", "NAME", "EXPIRES", "RENEWS", "ISSUER", "STATE", "SECRET", "NAMES", "NEXT TRY", "CAUSE")
		} else {
			line("NAMESPACE", "NAME", "EXPIRES", "RENEWS", "ISSUER", "STATE", "CAUSE")
		}
		for _, r := range rows {
			if wide {
				line(r.Namespace, r.Name, explain.Away(r.Expires, now), explain.Away(r.Renews, now), r.Issuer, r.State, r.Secret, strings.Join(r.Names, ","), r.NextTry, r.Cause)
				continue
			}
			line(r.Namespace, r.Name, explain.Away(r.Expires, now), explain.Away(r.Renews, now), r.Issuer, r.State, plugin.Cut(r.Cause, causeWidth))
		}
		return w.Flush()
	}
}

func stamp(at *metav1.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
