// Package move moves issuers and Certificates from one cluster to another, with the objects that belong to them, their
// status and their Secrets, so that no certificate is issued again.
//
// All state of a move is in the objects: on both clusters, the annotation chancery.dev/paused records the progress of
// each object. So a move that was killed continues when the user runs the command again. The package decides nothing
// about Certificates: internal/machine/certificate does.
package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/kubectl/internal/plugin"
)

// cluster is one of the two sides.
type cluster struct {
	client.Client

	// name is what the user calls it, and uid what tells it from all others.
	name string
	uid  types.UID
	// resources is the namespace of the Secrets of ClusterIssuers.
	resources string
	// as returns a client with the rights of somebody else.
	as func(rest.ImpersonationConfig) (client.Client, error)
}

// options are what the user asks for.
type options struct {
	from, to                   string
	fromResources, toResources string
	namespace, selector        string
	all, dryRun, deleteSource  bool
	wait                       time.Duration
	progress                   *plugin.Progress
}

const long = `Moves issuers, Certificates and what belongs to them from one cluster to another: CertificateRequests, Orders and
Secrets, with their status. Nothing is renewed, and no ACME account is registered again.

The objects are paused on both sides while they are moved, by the annotation chancery.dev/paused. When the target has
everything, and each Certificate there needs nothing, the objects of the target are released. Those of the source stay,
paused, until you delete them or run the command again with --delete-source. A move that was interrupted goes on when
the command is run again.

--from and --to name a kubeconfig, a context of it (KUBECONFIG/CONTEXT), or a context of your own kubeconfig.`

// New returns the command.
func New(streams plugin.Streams) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "move --from KUBECONFIG/CONTEXT --to KUBECONFIG/CONTEXT",
		Short: "Moves Certificates, their issuers and their Secrets to another cluster",
		Long:  long, Args: cobra.NoArgs,
		Example: `  kubectl chancery move --from old --to new --all-namespaces --dry-run
  kubectl chancery move --from ~/.local/share/chancery/kubeconfig --to new --namespace team`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "the source: a kubeconfig, KUBECONFIG/CONTEXT, or a context of your kubeconfig")
	f.StringVar(&o.to, "to", "", "the target, named in the same way")
	f.StringVarP(&o.namespace, "namespace", "n", "", "move the objects of this namespace; by default, of the namespace of the source's context")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "move the objects of all namespaces, and the ClusterIssuers")
	f.StringVarP(&o.selector, "selector", "l", "", "move only issuers, Certificates and CertificateRequests with these labels")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be done, and do nothing")
	f.BoolVar(&o.deleteSource, "delete-source", false, "delete in the source what was moved, but for Secrets")
	f.DurationVar(&o.wait, "wait", 2*time.Minute, "how long to wait for issuances that are under way")
	f.StringVar(&o.fromResources, "cluster-resource-namespace", "cert-manager", "the namespace of the Secrets of ClusterIssuers in the source")
	f.StringVar(&o.toResources, "to-cluster-resource-namespace", "", "the same in the target; by default, as in the source")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	for _, name := range []string{"from", "to"} {
		_ = cmd.MarkFlagRequired(name) // the flag is there
	}
	return cmd
}

// run connects to both clusters and moves.
func (o *options) run(ctx context.Context, streams plugin.Streams) error {
	o.progress = plugin.StartProgress(streams, false, "connecting")
	defer o.progress.Stop()
	fromFlags, toFlags := locate(o.from), locate(o.to)
	if o.namespace == "" && !o.all {
		var err error
		if o.namespace, _, err = fromFlags.ToRawKubeConfigLoader().Namespace(); err != nil {
			return err
		}
	}
	if o.toResources == "" {
		o.toResources = o.fromResources
	}
	from, err := connect(ctx, fromFlags, o.from, o.fromResources)
	if err != nil {
		return err
	}
	to, err := connect(ctx, toFlags, o.to, o.toResources)
	if err != nil {
		return err
	}
	return move(ctx, from, to, o, streams.Out)
}

// locate finds the kubeconfig and the context that a value of --from or --to names. The names of contexts may contain
// slashes, too.
func locate(value string) *genericclioptions.ConfigFlags {
	flags := genericclioptions.NewConfigFlags(false)
	for end := len(value); end > 0; end = strings.LastIndexByte(value[:end], '/') {
		if info, err := os.Stat(value[:end]); err == nil && info.Mode().IsRegular() {
			file, contextName := value[:end], strings.TrimPrefix(value[end:], "/")
			flags.KubeConfig, flags.Context = &file, &contextName
			return flags
		}
	}
	flags.Context = &value
	return flags
}

func connect(ctx context.Context, flags *genericclioptions.ConfigFlags, name, resources string) (*cluster, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("%q is neither a kubeconfig file that there is nor a context that can be used: %w", name, err)
	}
	return newCluster(ctx, config, name, resources)
}

// newCluster returns one side, given the administrator's connection.
func newCluster(ctx context.Context, config *rest.Config, name, resources string) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the API server knows itself how much it can take
	config.UserAgent = fieldManager
	scheme, err := api.Scheme()
	if err != nil {
		return nil, err
	}
	c := &cluster{name: name, resources: resources}
	c.as = func(who rest.ImpersonationConfig) (client.Client, error) {
		config := rest.CopyConfig(config)
		config.Impersonate = who
		return client.New(config, client.Options{Scheme: scheme})
	}
	if c.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	system := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, system); err != nil {
		return nil, fmt.Errorf("ask %s which cluster it is: %w", name, err)
	}
	c.uid = system.UID
	return c, nil
}

// move moves from one cluster to another what the options say.
func move(ctx context.Context, from, to *cluster, o *options, out io.Writer) error {
	if from.uid == to.uid {
		return errors.New("--from and --to are the same cluster")
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return err
	}
	m := &mover{from: from, to: to, options: o, selector: selector, out: out, now: time.Now}
	return m.run(ctx)
}
