package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

const (
	// completionPatience is how long a shell waits for the names of objects.
	completionPatience = 2 * time.Second
	// completions is how many names are offered at most.
	completions = 500
)

// Kind is a kind whose names a shell completes.
type Kind struct {
	// Prefix stands before the name, as in "ingress/"; empty for a bare name.
	Prefix string
	schema.GroupVersionKind
}

// Certificates are named by a bare name.
func Certificates() Kind { return ofManager("Certificate") }

// CertificateRequests are named by a bare name.
func CertificateRequests() Kind { return ofManager("CertificateRequest") }

// Issuers are named by a bare name, and ClusterIssuers as in clusterissuer/NAME.
func Issuers() []Kind {
	cluster := ofManager("ClusterIssuer")
	cluster.Prefix = "clusterissuer/"
	return []Kind{ofManager("Issuer"), cluster}
}

func ofManager(kind string) Kind {
	return Kind{GroupVersionKind: certmanagerv1.SchemeGroupVersion().WithKind(kind)}
}

// Complete offers the names of objects for at most so many arguments, or for any number of arguments if most is 0. If
// the cluster does not answer at once, Complete offers no names.
func Complete(most int, kinds ...Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		var names, prefixes []string
		for _, kind := range kinds {
			switch {
			case strings.HasPrefix(begun, kind.Prefix) && (kind.Prefix != "" || !strings.Contains(begun, "/")):
				names = append(names, namesOf(ctx, cmd, kind, begun)...)
			case strings.HasPrefix(kind.Prefix, begun):
				prefixes = append(prefixes, kind.Prefix)
			}
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) })
		if len(names) == 0 {
			return prefixes, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return append(names, prefixes...), cobra.ShellCompDirectiveNoFileComp
	}
}

// namesOf are the names of a kind's objects that begin with what is typed already.
func namesOf(ctx context.Context, cmd *cobra.Command, kind Kind, begun string) (names []string) {
	c, namespace, err := ConnectIn(flagsOf(cmd))
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	mapping, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err == nil {
		if mapping.Scope.Name() == "root" {
			namespace = ""
		}
		err = c.List(ctx, list, client.InNamespace(namespace), client.Limit(completions))
	}
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil
	}
	for i := range list.Items {
		if name := kind.Prefix + list.Items[i].Name; strings.HasPrefix(name, begun) {
			names = append(names, name)
		}
	}
	return names
}

// completeFlags completes the flags that all commands share.
func completeFlags(cmd *cobra.Command) {
	if cmd.Flags().Lookup("kubeconfig") == nil {
		return
	}
	register := func(flag string, complete cobra.CompletionFunc) {
		if _, there := cmd.GetFlagCompletionFunc(flag); !there && cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the flag is there, and has no completion yet
		}
	}
	register("namespace", Complete(0, Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")}))
	register("context", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		config, err := flagsOf(cmd).ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
	})
}

// flagsOf are the flags by which a command finds its cluster, as they are on the command line.
func flagsOf(cmd *cobra.Command) *genericclioptions.ConfigFlags {
	flags, copied := genericclioptions.NewConfigFlags(true), pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.AddFlags(copied)
	copied.VisitAll(func(f *pflag.Flag) {
		if given := cmd.Flags().Lookup(f.Name); given != nil && given.Changed && given.Value.Type() == f.Value.Type() {
			_ = f.Value.Set(given.Value.String()) // it was read from the same type
		}
	})
	return flags
}

// ofKubectl is the program that kubectl asks for completions of `kubectl chancery`: it looks for that name in PATH.
const ofKubectl = "kubectl_complete-chancery"

// AddCompletion adds the command that prints the completion of each shell, and the program that kubectl asks.
func AddCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.AddCommand(&cobra.Command{
			Use:   "kubectl",
			Short: "Print the program that kubectl asks for completions of kubectl chancery",
			Long: fmt.Sprintf("Print a program. Put it into a directory of your PATH by the name %s, and where your shell completes\n"+
				"kubectl, it completes kubectl chancery.", ofKubectl),
			Example: fmt.Sprintf("  kubectl chancery completion kubectl >~/.local/bin/%[1]s\n  chmod +x ~/.local/bin/%[1]s", ofKubectl),
			Args:    cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprint(cmd.OutOrStdout(), "#!/bin/sh\nexec kubectl-chancery __complete \"$@\"\n")
				return err
			},
		})
		for _, shell := range cmd.Commands() {
			if shell.Example == "" {
				shell.Example = fmt.Sprintf("  kubectl chancery completion %s", shell.Name())
			}
		}
	}
}
