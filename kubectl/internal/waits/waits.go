// Package waits is the command `kubectl chancery waits`. For each object, the command shows what the object waits for.
// Other commands use the package to reach the controller. The package changes no object.
package waits

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/engine"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/status"
)

const examples = `  # What do the objects of this namespace wait for?
  kubectl chancery waits

  # Which calls are under way or in a queue, in all namespaces?
  kubectl chancery waits -A --for call,lane

  # Which challenges wait for a slot, and which issuers does a CA want to leave it alone?
  kubectl chancery waits -A --for slot --kind challenge
  kubectl chancery waits -A --for park -o json

  # Of chancery-standalone
  kubectl chancery waits -A --socket ~/.local/share/chancery/waits.sock`

// options are the flags of the command.
type options struct {
	flags  *genericclioptions.ConfigFlags
	all    bool
	output string
	source Source
	filter filter
}

// Source is where the list of waits is read.
type Source struct {
	// Controller is the namespace of the controller; empty for the one where its Pods are found.
	Controller string

	socket string
}

// AddFlags adds the flags for a Source.
func (s *Source) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&s.Controller, "controller-namespace", "", "namespace of the controller (default: the one where its Pods are found)")
	f.StringVar(&s.socket, "socket", "", "Unix socket of a controller on this machine, to ask in place of the cluster's")
}

// filter says which waits to show; the zero value shows all.
type filter struct {
	namespace  string
	kinds, why []string
	lane       string
}

// New returns the command waits.
func New(streams plugin.Streams) *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:   "waits",
		Short: "Shows what every object waits for, and until when, as the controller knows it",
		Long: "Asks the controller that leads which objects wait, for what, and until when; those that wait for the shortest time are\n" +
			"on top. Objects that are in order are not shown. The API server's port forwarding leads to the controller: you need\n" +
			"the rights to list pods, and to get and create pods/portforward, in the namespace of the controller.",
		Example: examples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.flags.AddFlags(f)
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "show the objects of all namespaces, and those without one")
	f.StringVarP(&o.output, "output", "o", "", "wide, json or yaml")
	f.StringSliceVar(&o.filter.kinds, "kind", nil, "only objects of these kinds, as in challenge,order")
	f.StringSliceVar(&o.filter.why, "for", nil, "only those that wait for this: event, time, call, lane, slot, park or backoff")
	f.StringVar(&o.filter.lane, "lane", "", "only calls of the lanes whose name has this text, as in letsencrypt.org")
	o.source.AddFlags(f)
	return cmd
}

func (o *options) run(ctx context.Context, streams plugin.Streams) error {
	switch o.output {
	case "", "wide", "json", "yaml":
	default:
		return fmt.Errorf("--output is wide, json or yaml, not %q", o.output)
	}
	var err error
	if !o.all {
		if o.filter.namespace, _, err = o.flags.ToRawKubeConfigLoader().Namespace(); err != nil {
			return err
		}
	}
	people := o.output == "" || o.output == "wide"
	progress := plugin.StartProgress(streams, !people, "asking the controller")
	all, err := o.source.Read(ctx, o.flags)
	progress.Stop()
	if err != nil {
		return err
	}
	shown := o.filter.of(all)
	if !people {
		return status.Encode(streams.Out, o.output, shown)
	}
	if len(shown) == 0 {
		fmt.Fprintln(streams.ErrOut, "nothing waits")
		return nil
	}
	return table(streams.Out, shown, o.all, o.output == "wide", time.Now())
}

// Read returns what every object waits for.
func (s *Source) Read(ctx context.Context, flags *genericclioptions.ConfigFlags) ([]engine.Wait, error) {
	if s.socket != "" {
		code, body, err := waitsAt(ctx, s.socket)
		if err != nil {
			return nil, fmt.Errorf("ask the controller at %s: %w: does chancery-standalone run, and as this user?", s.socket, err)
		}
		return decode(code, body)
	}
	c, err := plugin.Connect(flags)
	if err != nil {
		return nil, err
	}
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	pods, err := Controllers(ctx, c, s.Controller)
	if err != nil {
		return nil, err
	}
	return Of(ctx, config, pods)
}

// errNotLeading is the answer of a controller that does not lead.
var errNotLeading = errors.New("this controller does not lead")

// Of asks the Pods of the controller, one after the other, what objects wait for, until the leader answers.
func Of(ctx context.Context, config *rest.Config, pods []corev1.Pod) ([]engine.Wait, error) {
	if len(pods) == 0 {
		return nil, errors.New("no Pod of the controller runs: see " + SeePods + "; " +
			"for chancery-standalone, name the socket in its data directory with --socket")
	}
	var failed error
	for i := range pods {
		port, err := portOf(&pods[i])
		if err == nil {
			var code int
			var body []byte
			if code, body, err = Get(ctx, config, client.ObjectKeyFromObject(&pods[i]), port, waitsPath); err == nil {
				var all []engine.Wait
				if all, err = decode(code, body); err == nil {
					return all, nil
				}
			}
		}
		failed = errors.Join(failed, fmt.Errorf("Pod %s/%s: %w", pods[i].Namespace, pods[i].Name, err))
	}
	return nil, failed
}

// portOf is the port that a controller serves its waits at.
func portOf(pod *corev1.Pod) (int, error) {
	for _, c := range pod.Spec.Containers {
		for _, arg := range slices.Concat(c.Command, c.Args) {
			address, given := strings.CutPrefix(arg, "--waits-address=")
			if !given {
				continue
			}
			_, text, err := net.SplitHostPort(address)
			if err != nil {
				return 0, fmt.Errorf("its --waits-address is %q, which port forwarding does not reach", address)
			}
			return strconv.Atoi(text)
		}
	}
	return defaultPort, nil
}

// Where a controller serves the list: the port is that of the default of its flag --waits-address.
const (
	defaultPort = 9412
	waitsPath   = "/waits"
)

func decode(code int, body []byte) ([]engine.Wait, error) {
	switch code {
	case http.StatusOK:
	case http.StatusMisdirectedRequest:
		return nil, errNotLeading
	default:
		return nil, fmt.Errorf("the controller answers %d: %s", code, strings.TrimSpace(string(body[:min(len(body), 200)])))
	}
	var list struct {
		Items []engine.Wait `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the answer is no list of waits: %w", err)
	}
	return list.Items, nil
}

// of are the waits to show, those that end first on top, and those that only an event ends last.
func (f filter) of(all []engine.Wait) []engine.Wait {
	shown := slices.DeleteFunc(slices.Clone(all), func(w engine.Wait) bool {
		is := func(text string) func(string) bool {
			return func(wanted string) bool { return strings.EqualFold(wanted, text) }
		}
		return f.namespace != "" && w.Namespace != f.namespace || len(f.kinds) > 0 && !slices.ContainsFunc(f.kinds, is(w.Kind)) ||
			len(f.why) > 0 && !slices.ContainsFunc(f.why, is(string(w.What))) || !strings.Contains(w.Lane, f.lane)
	})
	slices.SortStableFunc(shown, func(a, b engine.Wait) int {
		if a.Until.IsZero() != b.Until.IsZero() {
			return cmp.Compare(zero(a.Until), zero(b.Until))
		}
		return a.Until.Compare(b.Until)
	})
	return shown
}

func zero(t time.Time) int {
	if t.IsZero() {
		return 1
	}
	return 0
}

// detailWidth and laneWidth are how much of a detail and of the name of a lane a narrow table shows.
const (
	detailWidth = 80
	laneWidth   = 40
)

func table(out io.Writer, shown []engine.Wait, namespaces, wide bool, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	line := func(cells ...string) {
		if !namespaces {
			cells = cells[1:]
		}
		plugin.Row(w, cells...)
	}
	line("NAMESPACE", "OBJECT", "FOR", "SINCE", "UNTIL", "LANE", "DETAIL")
	for _, wait := range shown {
		since, until, lane, detail := "-", "-", cmp.Or(wait.Lane, "-"), strings.Join(strings.Fields(wait.Detail), " ")
		if !wait.Since.IsZero() {
			since = duration.HumanDuration(now.Sub(wait.Since)) + " ago"
		}
		if !wait.Until.IsZero() {
			until = "in " + duration.HumanDuration(max(wait.Until.Sub(now), 0))
		}
		if !wide {
			lane, detail = plugin.Cut(lane, laneWidth), plugin.Cut(detail, detailWidth)
		}
		line(wait.Namespace, wait.Kind+"/"+wait.Name, string(wait.What), since, until, lane, detail)
	}
	return w.Flush()
}
