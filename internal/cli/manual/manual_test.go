package manual

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"chancery.dev/internal/rig/tool"
)

// TestManual: each command that is not hidden has a page with its flags, its example and the pages around it. What
// roff(7) would read as a command is escaped: groff has nothing to say against the pages.
func TestManual(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "tool", Short: "Does things"}
	below := &cobra.Command{
		Use: "make NAME", Short: "Makes - it", Long: ".SH not a heading\n'nor this\na \\ backslash", Example: "  tool make --dir /tmp x",
		Run: func(*cobra.Command, []string) {},
	}
	below.Flags().StringP("dir", "d", "", "where to, a `PATH`")
	below.Flags().Bool("secret", false, "not shown")
	if err := below.Flags().MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	root.AddCommand(below, &cobra.Command{Use: "hidden", Hidden: true, Run: func(*cobra.Command, []string) {}})
	Add(root)
	root.CompletionOptions.DisableDefaultCmd = true
	dir := filepath.Join(t.TempDir(), "man1")
	root.SetArgs([]string{"man", "--dir", dir})
	root.SetOut(io.Discard)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(pages) != 2 {
		t.Fatalf("%v, %v", pages, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "tool-make.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		".SH NAME\ntool\\-make \\- Makes \\- it\n", ".SH DESCRIPTION\n\\&.SH not a heading\n\\&'nor this\na \\e backslash\n",
		".TP\n\\-d, \\-\\-dir PATH\nwhere to, a PATH\n", ".SH EXAMPLES\n.nf\n", ".SH SEE ALSO\ntool(1)\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("a hidden flag is shown:\n%s", text)
	}
	said, err := exec.CommandContext(t.Context(), tool.Path(t, "groff"), append([]string{"-man", "-ww", "-z", "-Tutf8", "-K", "utf8"}, pages...)...).CombinedOutput()
	if err != nil || len(said) > 0 {
		t.Errorf("groff: %v\n%s", err, said)
	}
}
