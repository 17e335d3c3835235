// Package list is the command that shows all certificates by the time when they end.
package list

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
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
		Short: "Lists certificates by the time when they expire, with state, days left and cause",
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
	f.StringVarP(&o.output, "output", "o", "", "wide, json, yaml, csv or name")
	f.StringVar(&o.expiring, "expiring", "", "only certificates that end within this time, as in 14d or 36h; with --not-ready, those that are not ready too")
	f.BoolVar(&o.filter.NotReady, "not-ready", false, "only certificates that are not ready; with --expiring, those that end soon too")
	f.StringVar(&o.filter.Issuer, "issuer", "", "only certificates of this issuer: a name, or as in clusterissuer/letsencrypt")
	_ = cmd.RegisterFlagCompletionFunc("issuer", plugin.Complete(0, plugin.Issuers()...)) // the flag is there
	formats := []string{"wide", "json", "yaml", "csv", "name"}
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
		return fmt.Errorf("--output is wide, json, yaml, csv or name, not %q", o.output)
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
		"": table(false), "wide": table(true), "csv": commas, "name": names, "json": encode("json"), "yaml": encode("yaml"),
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

const (
	// screen is how wide a terminal is at least.
	screen = 80
	// leastCause is how much of a cause is shown at least, however long the names are.
	leastCause = 40
)

// table is for people: the name, the state and the days that are left come first, then the cause, cut to the rest of
// the screen. What a wide table has beside that comes last.
func table(wide bool) format {
	return func(out io.Writer, rows []explain.Row, namespaces bool, now time.Time) error {
		lines := [][]string{{"NAME", "STATE", "DAYS"}}
		for _, r := range rows {
			name := r.Name
			if namespaces {
				name = r.Namespace + "/" + r.Name
			}
			lines = append(lines, []string{name, r.State, days(r.Expires, now)})
		}
		if namespaces {
			lines[0][0] = "NAMESPACE/NAME"
		}
		used := 0
		for column := range lines[0] {
			widest := 0
			for _, line := range lines {
				widest = max(widest, len([]rune(line[column])))
			}
			used += widest + gap
		}
		w := tabwriter.NewWriter(out, 0, 0, gap, ' ', 0)
		for i, line := range lines {
			switch {
			case i == 0 && wide:
				line = append(line, "CAUSE", "NEXT TRY", "EXPIRES", "RENEWS", "ISSUER", "SECRET", "NAMES")
			case i == 0:
				line = append(line, "CAUSE")
			case wide:
				r := rows[i-1]
				line = append(line, r.Cause, r.NextTry, stamp(r.Expires), stamp(r.Renews), r.Issuer, r.Secret, strings.Join(r.Names, ","))
			default:
				line = append(line, plugin.Cut(rows[i-1].Cause, max(leastCause, screen-used)))
			}
			plugin.Row(w, line...)
		}
		return w.Flush()
	}
}

// gap is the space between two columns.
const gap = 2

// days is how many whole days are left until a time; negative once it has passed.
func days(at *metav1.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return strconv.Itoa(int(math.Floor(at.Sub(now).Hours() / 24)))
}

func names(out io.Writer, rows []explain.Row, _ bool, _ time.Time) error {
	for _, r := range rows {
		fmt.Fprintln(out, "certificate/"+r.Name)
	}
	return nil
}

func stamp(at *metav1.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
