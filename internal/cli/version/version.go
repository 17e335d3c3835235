// Package version makes all binaries print their version in the same words. The package does not know what the binaries
// do.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Both are set at link time: -X chancery.dev/internal/cli/version.number=…
var (
	number = "unknown"
	commit = "unknown"
)

// Number is the version of the release alone, for a user agent.
func Number() string { return number }

// Add gives the root command of a binary the command `version` and the flag --version, which print the same line.
func Add(root *cobra.Command) {
	root.Version = Describe()
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version, the commit and the version of the Kubernetes libraries", Args: cobra.NoArgs,
		Example: "  " + root.DisplayName() + " version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s version %s\n", cmd.Root().Name(), cmd.Root().Version)
			return err
		},
	})
}

// Describe is the line after the name of the binary.
func Describe() string {
	parts := []string{number, "commit " + commit}
	if info, ok := debug.ReadBuildInfo(); ok {
		parts = append(parts, kubernetes(info.Deps)...)
	}
	return strings.Join(append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH), ", ")
}

// kubernetes names what the binary holds of Kubernetes: the libraries, the API server, or neither.
func kubernetes(modules []*debug.Module) []string {
	var parts []string
	for _, module := range modules {
		used := cmp.Or(module.Replace, module)
		switch module.Path {
		case "k8s.io/apimachinery":
			parts = append(parts, "Kubernetes libraries "+used.Version)
		case "k8s.io/kubernetes":
			parts = append(parts, "Kubernetes "+used.Version)
		}
	}
	return parts
}
