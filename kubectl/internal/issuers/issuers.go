// Package issuers is the command that shows each issuer, how many Certificates and Challenges use the issuer, and why
// the issuer is not ready or has to wait.
package issuers

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/engine"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/status"
	"chancery.dev/kubectl/internal/waits"
)

const examples = `  # The issuers of a namespace, and the ClusterIssuers
  kubectl chancery issuers

  # All issuers, with their ACME accounts and what to do
  kubectl chancery issuers -A -o wide

  # For a spreadsheet
  kubectl chancery issuers -A -o csv`

// options are the flags of the command.
type options struct {
	flags  *genericclioptions.ConfigFlags
	all    bool
	output string
	sortBy string
	source waits.Source
}

// New returns the command issuers.
func New(streams plugin.Streams) *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:   "issuers",
		Short: "Shows Issuers and ClusterIssuers: whether they are ready or limited, their challenges and certificates",
		Long: "Shows Issuers and ClusterIssuers, the cause if one is not ready, until when a CA wants no requests of its account, the\n" +
			"challenges in flight, queued and postponed, and the certificates that use it. The role view is enough for Issuers; the\n" +
			"role cert-manager-cluster-view adds ClusterIssuers, and the rights of kubectl chancery waits the column LIMITED UNTIL.",
		Example: examples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.flags.AddFlags(f)
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "look in all namespaces")
	f.StringVarP(&o.output, "output", "o", "", "wide, json, yaml, csv or name")
	f.StringVar(&o.sortBy, "sort-by", "", "sort by a field of -o json, as in .certificates or .caNotAfter, in place of namespace and name")
	o.source.AddFlags(f)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return cmd
}

// formats are what -o takes.
func formats() []string { return []string{"wide", "json", "yaml", "csv", "name"} }

func (o *options) run(ctx context.Context, streams plugin.Streams) error {
	people := o.output == "" || o.output == "wide"
	if o.output != "" && !slices.Contains(formats(), o.output) {
		return fmt.Errorf("--output is wide, json, yaml, csv or name, not %q", o.output)
	}
	c, namespace, err := plugin.ConnectIn(o.flags)
	if err != nil {
		return err
	}
	if o.all {
		namespace = ""
	}
	progress := plugin.StartProgress(streams, !people, "reading the issuers")
	rows, notes, err := o.read(ctx, c, namespace)
	progress.Stop()
	if err != nil {
		return err
	}
	if err := plugin.SortBy(rows, o.sortBy); err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprintln(streams.ErrOut, note)
	}
	switch {
	case o.output == "csv":
		return commas(streams.Out, rows)
	case o.output == "name":
		for _, r := range rows {
			fmt.Fprintln(streams.Out, strings.ToLower(r.Kind)+"/"+r.Name)
		}
		return nil
	case !people:
		return status.Encode(streams.Out, o.output, rows)
	case len(rows) == 0:
		fmt.Fprintln(streams.ErrOut, "no issuers are found")
		return nil
	default:
		return table(streams.Out, rows, o.output == "wide", time.Now())
	}
}

// read lists the issuers. notes say what is left out because the user may not read it.
func (o *options) read(ctx context.Context, c client.Client, namespace string) (rows []explain.IssuerRow, notes []string, err error) {
	var objects []metav1.Object
	unread := 0
	for _, l := range []struct {
		name string
		list client.ObjectList
		in   string
	}{
		{"Issuers", &certmanagerv1.IssuerList{}, namespace},
		{"ClusterIssuers", &certmanagerv1.ClusterIssuerList{}, ""},
		{"Certificates", &certmanagerv1.CertificateList{}, ""}, // those of other namespaces may use a ClusterIssuer
		{"Challenges", &acmev1.ChallengeList{}, ""},
	} {
		err := c.List(ctx, l.list, client.InNamespace(l.in))
		if apierrors.IsForbidden(err) && l.in == "" && namespace != "" && l.name != "ClusterIssuers" {
			notes = append(notes, fmt.Sprintf("%s of other namespaces are not counted: you need the right to list them", l.name))
			err = c.List(ctx, l.list, client.InNamespace(namespace))
		}
		switch {
		case apierrors.IsForbidden(err):
			unread++
			notes = append(notes, fmt.Sprintf("%s are left out: you need the right to list them: %s", l.name, terminal.Line(err.Error())))
		case err != nil:
			return nil, nil, fmt.Errorf("list the %s: %w", l.name, err)
		}
		_ = meta.EachListItem(l.list, func(item runtime.Object) error { // the function gives no error
			if object, is := item.(metav1.Object); is {
				objects = append(objects, object)
			}
			return nil
		})
	}
	if unread == 4 {
		return nil, nil, errors.New("you may read nothing of this: the role view is enough in a namespace: name yours with --namespace")
	}
	rows = explain.IssuerRows(objects, time.Now())
	if !hasACME(rows) {
		return rows, notes, nil
	}
	parks, err := o.source.Read(ctx, o.flags)
	if err != nil {
		return rows, append(notes, "LIMITED UNTIL is left out: only the controller knows it: "+terminal.Line(err.Error())), nil
	}
	park(rows, parks)
	return rows, notes, nil
}

func hasACME(rows []explain.IssuerRow) bool {
	for _, r := range rows {
		if r.Account != "" {
			return true
		}
	}
	return false
}

// park notes which issuers a CA wants to leave it alone.
func park(rows []explain.IssuerRow, all []engine.Wait) {
	for _, w := range all {
		for i := range rows {
			if r := &rows[i]; w.What == engine.WaitPark && r.Kind == w.Kind && r.Namespace == w.Namespace && r.Name == w.Name {
				r.Park(w.Until, w.Detail)
			}
		}
	}
}

func stamp(at *metav1.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

func commas(out io.Writer, rows []explain.IssuerRow) error {
	lines := [][]string{{
		"kind", "namespace", "name", "type", "server", "state", "parkedUntil", "inFlight", "queued", "parked", "certificates", "notReady",
		"nextRenewal", "nextRenewalOf", "account", "caNotAfter", "cause", "nextTry", "whatToDo",
	}}
	for _, r := range rows {
		lines = append(lines, []string{
			r.Kind, r.Namespace, r.Name, r.Type, r.Server, r.State, stamp(r.ParkedUntil), strconv.Itoa(r.Challenges.InFlight),
			strconv.Itoa(r.Challenges.Queued), strconv.Itoa(r.Challenges.Parked), strconv.Itoa(r.Certificates), strconv.Itoa(r.NotReady),
			stamp(r.NextRenewal), r.NextRenewalOf, r.Account, stamp(r.CANotAfter), r.Cause, r.NextTry, r.WhatToDo,
		})
	}
	return csv.NewWriter(out).WriteAll(lines)
}

// causeWidth is how much of a cause a narrow table shows.
const causeWidth = 80

func table(out io.Writer, rows []explain.IssuerRow, wide bool, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "NAMESPACE\tNAME\tTYPE\tSERVER\tSTATE\tLIMITED UNTIL\tIN FLIGHT\tQUEUED\tPOSTPONED\tCERTIFICATES\tNEXT RENEWAL\tCA EXPIRES\t")
	if wide {
		fmt.Fprint(w, "ACCOUNT\tWHAT TO DO\t")
	}
	fmt.Fprintln(w, "CAUSE")
	for _, r := range rows {
		certificates, renewal, limited, authority, cause := strconv.Itoa(r.Certificates), "-", "-", "-", r.Cause
		if r.NotReady > 0 {
			certificates += fmt.Sprintf(" (%d not ready)", r.NotReady)
		}
		if r.NextRenewal != nil {
			renewal = explain.Away(r.NextRenewal, now)
		}
		if r.CANotAfter != nil {
			authority = explain.Away(r.CANotAfter, now)
		}
		if r.ParkedUntil != nil {
			limited = stamp(r.ParkedUntil)
		}
		cells := []string{
			cmp.Or(r.Namespace, "(cluster)"), r.Name, r.Type, cmp.Or(r.Server, "-"), r.State, limited, strconv.Itoa(r.Challenges.InFlight),
			strconv.Itoa(r.Challenges.Queued), strconv.Itoa(r.Challenges.Parked), certificates, renewal, authority,
		}
		if wide {
			cells = append(cells, cmp.Or(r.Account, "-"), cmp.Or(r.WhatToDo, "-"))
		} else {
			cause = plugin.Cut(cause, causeWidth)
		}
		plugin.Row(w, append(cells, cause)...)
	}
	return w.Flush()
}
