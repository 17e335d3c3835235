package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"chancery.dev/internal/cli/version"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/status"
	"chancery.dev/kubectl/internal/waits"
)

// Program is a program of Chancery, and its version.
type Program struct {
	// Program is kubectl-chancery, or the name of the controller's Pod.
	Program string `json:"program"`
	Version string `json:"version"`
	// Image is that of the controller.
	Image string `json:"image,omitempty"`
}

// NewVersion returns the command version.
func NewVersion(streams plugin.Streams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	var own, short bool
	var output, home string
	cmd := &cobra.Command{
		Use: "version", Short: "Prints the versions of this program and of the controllers that run", Args: cobra.NoArgs,
		Long: "Prints the version of this program, and that of each controller that runs, by the image of its Pod. You need the right\n" +
			"to list Pods, in all namespaces or in that of the controller.",
		Example: "  kubectl chancery version\n  kubectl chancery version --client --short",
		RunE: func(cmd *cobra.Command, _ []string) error {
			programs := []Program{{Program: "kubectl-chancery", Version: cmd.Root().Version}}
			if short {
				programs[0].Version = version.Number()
			}
			var err error
			if !own {
				var running []Program
				running, err = controllers(cmd.Context(), flags, home)
				programs = append(programs, running...)
			}
			if output != "" {
				return cmp.Or(err, status.Encode(streams.Out, output, programs))
			}
			show(streams.Out, programs, short)
			if !own && err == nil && len(programs) == 1 {
				fmt.Fprintln(streams.ErrOut, "no Pods of a controller are found: name their namespace with --controller-namespace")
			}
			return err
		},
	}
	f := cmd.Flags()
	flags.AddFlags(f)
	f.BoolVar(&own, "client", false, "only this program: no cluster is asked")
	f.BoolVar(&short, "short", false, "only the numbers")
	f.StringVarP(&output, "output", "o", "", "json or yaml")
	f.StringVar(&home, "controller-namespace", "", "namespace of the controller; all are searched by default")
	return cmd
}

// controllers returns the controllers that run.
func controllers(ctx context.Context, flags *genericclioptions.ConfigFlags, namespace string) ([]Program, error) {
	c, err := plugin.Connect(flags)
	if err != nil {
		return nil, err
	}
	pods, err := waits.Controllers(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	var programs []Program
	for _, pod := range pods {
		image := pod.Spec.Containers[0].Image
		programs = append(programs, Program{Program: pod.Namespace + "/" + pod.Name, Version: tagOf(image), Image: image})
	}
	return programs, nil
}

// tagOf is the tag of an image, or else its digest.
func tagOf(image string) string {
	image, digest, _ := strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return cmp.Or(tag, digest, "latest")
}

func show(out io.Writer, programs []Program, short bool) {
	for _, p := range programs {
		switch {
		case short:
			fmt.Fprintln(out, p.Version)
		case p.Image != "":
			fmt.Fprintf(out, "controller %s version %s, image %s\n", p.Program, p.Version, p.Image)
		default:
			fmt.Fprintf(out, "%s version %s\n", p.Program, p.Version)
		}
	}
}
