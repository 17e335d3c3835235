package plugin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Helpful finishes a command, and all commands below. Their errors say what helps: see Help. For an unknown flag or
// argument, the error names the nearest one, or says how to use the command. Shells complete the flags that all
// commands share.
func Helpful(cmd *cobra.Command) *cobra.Command {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) {
			if near := nearest(cmd.Flags(), unknown.GetSpecifiedName()); near != "" {
				return fmt.Errorf("%w: do you mean --%s?", err, near)
			}
		}
		return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
	})
	help(cmd)
	return cmd
}

func help(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		help(below)
	}
	completeFlags(cmd)
	path := cmd.CommandPath()
	if take := cmd.Args; take != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := take(cmd, args); err != nil {
				return fmt.Errorf("%w: use it as in %s; see %s --help", err, strings.TrimSuffix(cmd.UseLine(), " [flags]"), path)
			}
			return nil
		}
	}
	switch run := cmd.RunE; {
	case run != nil:
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			var file *fs.PathError
			if f := cmd.Flags().Lookup("kubeconfig"); f != nil && errors.As(err, &file) && file.Path == f.Value.String() {
				return fmt.Errorf("--kubeconfig: %w: see which clusters you have: kubectl config get-contexts", err)
			}
			return Help(err)
		}
	case cmd.HasParent() && cmd.HasSubCommands() && cmd.Run == nil:
		cmd.SuggestionsMinimumDistance = 2
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			near := cmd.SuggestionsFor(args[0])
			if len(near) == 0 {
				return fmt.Errorf("unknown command %q: see %s --help", args[0], path)
			}
			return fmt.Errorf("unknown command %q: do you mean %s %s?", args[0], path, near[0])
		}
	}
}

// nearest is the flag that a name is a misspelling of; empty for none.
func nearest(flags *pflag.FlagSet, name string) string {
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	if near := names.SuggestionsFor(name); len(near) > 0 {
		return near[0]
	}
	return ""
}

// missing says in which namespace an object was not found.
type missing struct {
	key client.ObjectKey
	err error
}

func (m missing) Error() string { return m.err.Error() }

func (m missing) Unwrap() error { return m.err }

// placed makes the client say where it has looked for what it does not find.
func placed(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if apierrors.IsNotFound(err) {
				return missing{key: key, err: err}
			}
			return err
		},
	})
}

// Help adds to an error of the API server, or of the way there, what is wrong and what to do.
func Help(err error) error {
	var (
		gone     missing
		untaught *meta.NoKindMatchError
		exit     ExitError
	)
	if many, are := err.(interface{ Unwrap() []error }); are {
		var all []error
		for _, one := range many.Unwrap() {
			all = append(all, Help(one))
		}
		return errors.Join(all...)
	}
	switch details, failed := detailsOf(err), unreachable(err); {
	case err == nil, errors.As(err, &exit), errors.Is(err, context.Canceled):
		return err
	case failed != nil:
		return fmt.Errorf("cannot connect to %s: is it the right cluster, and does it run? See kubectl config get-contexts, and kubectl cluster-info",
			reason(failed))
	case errors.As(err, &untaught):
		return fmt.Errorf("the cluster does not have the kind %s: %s", untaught.GroupKind, installation(untaught.GroupKind.Group))
	case apierrors.IsNotFound(err) && (details == nil || details.Name == "" || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)):
		resource := "what was asked for"
		if details != nil {
			resource = details.Kind
		}
		return fmt.Errorf("%w: the cluster does not have the resource %s: %s", err, resource, installation(groupOf(details)))
	case apierrors.IsNotFound(err) && details.Kind == "namespaces":
		return fmt.Errorf("%w: name another with -n; see which there are: kubectl get namespaces", err)
	case errors.As(err, &gone):
		where, kind := "", details.Kind
		if gone.key.Namespace != "" {
			where = " in the namespace " + gone.key.Namespace
		}
		return fmt.Errorf("%s %q is not found%s: see which there are: kubectl get %s -A", kind, gone.key.Name, where, kind)
	case apierrors.IsForbidden(err) && details != nil && details.Kind != "":
		return fmt.Errorf("%w: ask an administrator for a role that allows it, or see what you may do: kubectl auth can-i --list", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the cluster does not know you: log in again, or choose another user with --context or --user: %w", err)
	case clientcmd.IsEmptyConfig(err), clientcmd.IsContextNotFound(err), clientcmd.IsConfigurationInvalid(err):
		return fmt.Errorf("%w: name a cluster with --context or --kubeconfig; see which there are: kubectl config get-contexts", err)
	default:
		return err
	}
}

// unreachable is the error of a Kubernetes API that cannot be connected to; nil for other errors.
func unreachable(err error) *url.Error {
	var many utilerrors.Aggregate
	if errors.As(err, &many) {
		for _, one := range many.Errors() {
			if failed := unreachable(one); failed != nil {
				return failed
			}
		}
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		if u, err := url.Parse(failed.URL); err == nil && (strings.HasPrefix(u.Path, "/api") || u.Path == "/version") {
			return failed
		}
	}
	return nil
}

// reason says which server could not be connected to, and why.
func reason(failed *url.Error) string {
	host := failed.URL
	if u, err := url.Parse(failed.URL); err == nil {
		host = u.Scheme + "://" + u.Host
	}
	var unverified *tls.CertificateVerificationError
	if errors.As(failed, &unverified) {
		return fmt.Sprintf("%s: its certificate is not trusted: %v", host, unverified.Err)
	}
	return fmt.Sprintf("%s: %v", host, failed.Err)
}

func detailsOf(err error) *metav1.StatusDetails {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Details
	}
	return nil
}

func groupOf(details *metav1.StatusDetails) string {
	if details == nil {
		return ""
	}
	return details.Group
}

// installation says how a kind comes to a cluster.
func installation(group string) string {
	if strings.HasSuffix(group, "cert-manager.io") {
		return "is Chancery installed there? If not: chancery install, and then chancery check api --wait 1m"
	}
	return "is it the right cluster? See kubectl config get-contexts"
}
