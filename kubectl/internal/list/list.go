// Package list holds the command list, which shows all certificates, sorted by expiry time, or those of Pods. The
// command changes nothing.
package list

import (
	"context"
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

	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/status"
)

const examples = `  # All certificates of a namespace, those that expire first on top
  kubectl chancery list

  # What needs a look: expires within two weeks, or is not ready. The exit status is 2 if there is anything
  kubectl chancery list -A --expiring 14d --not-ready

  # What an issuer has signed, for a spreadsheet
  kubectl chancery list -A --issuer letsencrypt -o csv

  # Which Pods do not get the certificates that their kubelets ask for?
  kubectl chancery list -A --pods --not-ready`

// found is the exit status if there is anything that was asked for as trouble.
const found = 2

// options are the flags of the command.
type options struct {
	flags    *genericclioptions.ConfigFlags
	all      bool
	pods     bool
	selector string
	output   string
	sortBy   string
	expiring string
	filter   explain.Filter
}

// New returns the command list.
func New(streams plugin.Streams) *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Lists certificates by the time when they expire, with state, days left and cause",
		Long: "Lists Certificates, those that expire first on top, and those that have no certificate yet before them. With --pods, it\n" +
			"lists the Pods for which an issuer of ours signs, by Kubernetes' own API, those in trouble on top. The role view is\n" +
			"enough; requests of Pods take a right of their own. With --expiring or --not-ready, the exit status is 2 if there are\n" +
			"any, and 0 if there are none.",
		Example: examples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd, streams) },
	}
	f := cmd.Flags()
	o.flags.AddFlags(f)
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "look in all namespaces")
	f.BoolVar(&o.pods, "pods", false, "list Pods with a podCertificate volume, in place of Certificates")
	f.StringVarP(&o.selector, "selector", "l", "", "only Certificates, or Pods, with these labels, as in app=web")
	f.StringVarP(&o.output, "output", "o", "", "wide, json, yaml, csv or name")
	f.StringVar(&o.sortBy, "sort-by", "", "sort by a field of -o json, as in .name or .renews, in place of the time of expiry")
	f.StringVar(&o.expiring, "expiring", "", "only certificates that expire within this time, as in 14d or 36h; with --not-ready, those that are not ready too")
	f.BoolVar(&o.filter.NotReady, "not-ready", false, "only what is not ready, of Pods also what is in trouble; with --expiring, those that expire soon too")
	f.StringVar(&o.filter.Issuer, "issuer", "", "only Certificates, or Pods, of this issuer: a name, or as in clusterissuer/letsencrypt")
	_ = cmd.RegisterFlagCompletionFunc("issuer", plugin.Complete(0, plugin.Issuers()...)) // the flag is there
	formats := []string{"wide", "json", "yaml", "csv", "name"}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // as well
	return cmd
}

func (o *options) run(cmd *cobra.Command, streams plugin.Streams) error {
	var q status.Query
	var err error
	if q.Selector, err = labels.Parse(o.selector); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	if o.expiring != "" {
		if o.filter.Expiring, err = within(o.expiring); err != nil {
			return fmt.Errorf("--expiring: %w", err)
		}
	}
	if o.expiring != "" && o.pods {
		return errors.New("--expiring is for Certificates: kubelets refresh the certificates of Pods")
	}
	write, known := o.formats()[o.output]
	if !known {
		return fmt.Errorf("--output is wide, json, yaml, csv or name, not %q", o.output)
	}
	if !o.all {
		if q.Namespace, _, err = o.flags.ToRawKubeConfigLoader().Namespace(); err != nil {
			return err
		}
	}
	now := time.Now()
	rows, err := o.rows(cmd.Context(), streams, q, now)
	if err != nil {
		return err
	}
	if err := plugin.SortBy(rows, o.sortBy); err != nil {
		return err
	}
	if len(rows) == 0 && o.forPeople() {
		fmt.Fprintln(streams.ErrOut, status.NoneIn(o.what(), q.Namespace))
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

// what is listed, in words.
func (o *options) what() string {
	what := "Certificates"
	if o.pods {
		what = "Pods with certificates of their own"
	}
	if o.filter != (explain.Filter{}) || o.selector != "" {
		what += " that fit the flags"
	}
	return what
}

// forPeople reports whether a person reads the output.
func (o *options) forPeople() bool { return o.output == "" || o.output == "wide" }

// rows reads what is to be listed.
func (o *options) rows(ctx context.Context, streams plugin.Streams, q status.Query, now time.Time) ([]explain.Row, error) {
	c, err := plugin.Connect(o.flags)
	if err != nil {
		return nil, err
	}
	if !o.pods {
		progress := plugin.StartProgress(streams, !o.forPeople(), "reading the Certificates")
		defer progress.Stop()
		reports, err := status.Gather(ctx, c, q, now)
		return explain.Rows(reports, o.filter, now), err
	}
	progress := plugin.StartProgress(streams, !o.forPeople(), "reading the Pods")
	reports, unread, err := status.Pods(ctx, c, q.Namespace, q.Selector, now)
	progress.Stop()
	if unread != "" {
		fmt.Fprintf(streams.ErrOut, "you may not list %s, which say more of Pods that wait\n", unread)
	}
	return explain.PodRows(reports, o.filter, now), err
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

func (o *options) formats() map[string]format {
	encode := func(as string) format {
		return func(out io.Writer, rows []explain.Row, _ bool, _ time.Time) error {
			return status.Encode(out, as, rows)
		}
	}
	t := table{pods: o.pods}
	return map[string]format{
		"": t.fitted, "wide": t.wide, "csv": t.commas, "name": t.names, "json": encode("json"), "yaml": encode("yaml"),
	}
}

// table is a list of Certificates, or of Pods.
type table struct{ pods bool }

func (t table) commas(out io.Writer, rows []explain.Row, _ bool, _ time.Time) error {
	w := csv.NewWriter(out)
	heads := []string{"namespace", "name", "expires", "renews", "issuer", "state", "cause", "nextTry"}
	lines := [][]string{append(heads, "secret", "names")}
	if t.pods {
		lines[0] = append(heads, "volume")
	}
	for _, r := range rows {
		line := []string{r.Namespace, r.Name, stamp(r.Expires), stamp(r.Renews), r.Issuer, r.State, r.Cause, r.NextTry, r.Volume}
		if !t.pods {
			line = append(line[:len(heads)], r.Secret, strings.Join(r.Names, " "))
		}
		lines = append(lines, line)
	}
	return w.WriteAll(lines)
}

const (
	// screen is how wide a terminal is that does not tell, and gap the space between two columns.
	screen, gap = 80, 2
	// leastCause is how much of a cause is shown at least, however long the names are.
	leastCause = 30
	// leastIssuer is how much of the name of an issuer is shown at least.
	leastIssuer = 24
)

// fitted is narrow for the terminal that it is written to. What is written to something else is not cut.
func (t table) fitted(out io.Writer, rows []explain.Row, namespaces bool, now time.Time) error {
	width := math.MaxInt32
	if plugin.IsTerminal(out) {
		width = max(screen, plugin.Width(out))
	}
	return t.narrow(out, rows, namespaces, now, width)
}

// narrow is for people: the name, the state and the days that are left, or the issuer of a Pod, come first, then the
// cause, cut such that a line fits that many columns. A name that would leave no room for the cause has a line of its
// own, as in df.
func (t table) narrow(out io.Writer, rows []explain.Row, namespaces bool, now time.Time, fits int) error {
	lines := [][]string{{"NAME", "STATE", "DAYS", "CAUSE"}}
	if namespaces {
		lines[0][0] = "NAMESPACE/NAME"
	}
	if t.pods {
		lines[0][2] = "ISSUER"
	}
	for _, r := range rows {
		third := days(r.Expires, now)
		if t.pods {
			third = plugin.Cut(terminal.Line(r.Issuer), max(leastIssuer, fits/4))
		}
		lines = append(lines, []string{title(r, namespaces), short(r.State), third, terminal.Line(r.Cause)})
	}
	widest := func(column int) (width int) {
		for _, line := range lines {
			width = max(width, len([]rune(line[column])))
		}
		return width
	}
	state, third := widest(1), widest(2)
	rest := fits - state - third - 3*gap
	name := min(widest(0), max(rest-leastCause, len(lines[0][0])))
	if t.pods {
		third = -third // words begin on the left, numbers end on the right
	}
	var text strings.Builder
	for _, line := range lines {
		if len([]rune(line[0])) > name {
			text.WriteString(line[0] + "\n")
			line[0] = ""
		}
		all := fmt.Sprintf("%-*s  %-*s  %*s  %s", name, line[0], state, line[1], third, line[2], plugin.Cut(line[3], rest-name))
		text.WriteString(strings.TrimRight(all, " ") + "\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// wide is narrow with all that there is, and with nothing cut.
func (t table) wide(out io.Writer, rows []explain.Row, namespaces bool, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, gap, ' ', 0)
	if t.pods {
		plugin.Row(w, "NAME", "VOLUME", "STATE", "ISSUER", "CAUSE", "NEXT TRY", "EXPIRES", "RENEWS")
		for _, r := range rows {
			plugin.Row(w, title(r, namespaces), r.Volume, r.State, r.Issuer, r.Cause, r.NextTry, stamp(r.Expires), stamp(r.Renews))
		}
		return w.Flush()
	}
	plugin.Row(w, "NAME", "STATE", "DAYS", "CAUSE", "NEXT TRY", "EXPIRES", "RENEWS", "ISSUER", "SECRET", "NAMES")
	for _, r := range rows {
		plugin.Row(w, title(r, namespaces), r.State, days(r.Expires, now), r.Cause, r.NextTry, stamp(r.Expires), stamp(r.Renews), r.Issuer, r.Secret,
			strings.Join(r.Names, ","))
	}
	return w.Flush()
}

// title is the name of a row, with its namespace where that may differ.
func title(r explain.Row, namespaces bool) string {
	if namespaces {
		return r.Namespace + "/" + r.Name
	}
	return r.Name
}

// short is a state in the words that make the difference.
func short(state string) string {
	if strings.HasPrefix(state, "expired") {
		return "expired"
	}
	return strings.TrimPrefix(state, "ready, ")
}

// days is how many whole days are left until a time; negative once it has passed.
func days(at *metav1.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return strconv.Itoa(int(math.Floor(at.Sub(now).Hours() / 24)))
}

func (t table) names(out io.Writer, rows []explain.Row, _ bool, _ time.Time) error {
	kind := "certificate/"
	if t.pods {
		kind = "pod/"
	}
	for _, r := range rows {
		fmt.Fprintln(out, kind+r.Name)
	}
	return nil
}

func stamp(at *metav1.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
