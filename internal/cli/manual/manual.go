// Package manual adds the hidden command `man` to each binary. The command `man` writes the manual pages of the binary,
// for Linux packages and for releases. The package does not know what the commands do: the manual page of a command
// contains the text that --help prints.
package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Add adds the hidden command man, which writes the manual pages.
func Add(root *cobra.Command) {
	dir := "."
	cmd := &cobra.Command{
		Use:     "man",
		Short:   "Write a manual page for each command",
		Long:    "Writes a manual page for each command into a directory, for man(1).",
		Example: "  " + root.DisplayName() + " man --dir ~/.local/share/man/man1",
		Args:    cobra.NoArgs,
		Hidden:  true,
		RunE:    func(cmd *cobra.Command, _ []string) error { return write(cmd.Root(), dir) },
	}
	cmd.Flags().StringVar(&dir, "dir", dir, "where to write the pages; made if it is not there")
	root.AddCommand(cmd)
}

// write writes the page of a command, and those of the commands below.
func write(cmd *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // manual pages are for everybody
		return err
	}
	for _, below := range cmd.Commands() {
		if below.Hidden || below.Name() == "help" {
			continue
		}
		if err := write(below, dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, nameOf(cmd)+".1"), []byte(page(cmd)), 0o644) //nolint:gosec // as above
}

// nameOf is the name of a page, as in kubectl-chancery-status.
func nameOf(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// page is the page of a command.
func page(cmd *cobra.Command) string {
	var b strings.Builder
	name := nameOf(cmd)
	fmt.Fprintf(&b, ".TH %q 1\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n%s\n", strings.ToUpper(name), roff(name), roff(cmd.Short), roff(cmd.UseLine()))
	if cmd.Long != "" {
		fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(cmd.Long))
	}
	if cmd.HasAvailableFlags() {
		b.WriteString(".SH OPTIONS\n")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			short := ""
			if f.Shorthand != "" {
				short = "-" + f.Shorthand + ", "
			}
			kind, usage := pflag.UnquoteUsage(f)
			fmt.Fprintf(&b, ".TP\n%s\n%s\n", roff(strings.TrimSpace(short+"--"+f.Name+" "+kind)), roff(usage))
		})
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, nameOf(cmd.Parent()))
	}
	for _, below := range cmd.Commands() {
		if !below.Hidden && below.Name() != "help" {
			others = append(others, nameOf(below))
		}
	}
	if len(others) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", roff(strings.Join(others, "(1), ")+"(1)"))
	}
	return b.String()
}

// roff escapes what roff(7) would read as a command. A hyphen of an option stays one when it is copied.
func roff(text string) string {
	text = strings.NewReplacer("\\", "\\e", "-", "\\-").Replace(strings.Trim(text, "\n"))
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = "\\&" + line
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
