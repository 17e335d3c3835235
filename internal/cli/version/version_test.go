package version

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The command and the flag say the same, and that is the version, the commit and the platform.
func TestCommandAndFlagAreAlike(t *testing.T) {
	said := map[string]string{}
	for _, arg := range []string{"version", "--version"} {
		root := &cobra.Command{Use: "chancery-test", Run: func(*cobra.Command, []string) {}}
		Add(root)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{arg})
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		said[arg] = out.String()
	}
	if said["version"] != said["--version"] {
		t.Errorf("they differ: %q", said)
	}
	for _, want := range []string{"chancery-test version " + Number() + ", commit ", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH + "\n"} {
		if !strings.Contains(said["version"], want) {
			t.Errorf("%q does not say %q", said["version"], want)
		}
	}
}

// The version of a module that another one replaces is that of the other one.
func TestKubernetes(t *testing.T) {
	got := kubernetes([]*debug.Module{
		{Path: "github.com/spf13/cobra", Version: "v1.10.2"},
		{Path: "k8s.io/apimachinery", Version: "v0.0.0", Replace: &debug.Module{Path: "k8s.io/apimachinery", Version: "v0.36.3"}},
		{Path: "k8s.io/kubernetes", Version: "v1.36.3"},
	})
	if want := []string{"Kubernetes libraries v0.36.3", "Kubernetes v1.36.3"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := kubernetes(nil); len(got) != 0 {
		t.Errorf("a binary without Kubernetes says %q", got)
	}
}
