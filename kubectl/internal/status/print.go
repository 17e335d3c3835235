package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/kubectl/internal/plugin"
)

// Colours of a terminal.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	bold   = "\x1b[1m"
	plain  = "\x1b[0m"
)

// printer writes reports for people. With colours, it writes to the terminal itself.
type printer struct {
	out    io.Writer
	colour bool
	now    time.Time
}

// all writes reports, with an empty line between two of them.
func (p printer) all(reports []explain.Report, now time.Time) {
	p.now = now
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(p.out)
		}
		p.one(r)
	}
	if len(reports) > 1 {
		p.numbers(reports, "\n")
	}
}

// numbers writes how many of the Certificates have which health.
func (p printer) numbers(reports []explain.Report, before string) {
	reports = slices.DeleteFunc(slices.Clone(reports), func(r explain.Report) bool { return r.Health == "" })
	if len(reports) > 0 {
		fmt.Fprintf(p.out, "%s%s: %s\n", before, count(len(reports), "Certificate"), explain.Numbers(reports))
	}
}

// one writes a report: first the state and the cause, then what to do and the next try, then the chain.
func (p printer) one(r explain.Report) {
	head, cause, _ := strings.Cut(r.StateAndCause(p.now), ": ")
	if cause != "" {
		cause = ": " + cause
	}
	fmt.Fprintf(p.out, "%s: %s%s\n", terminal.Line(r.Title()), p.paint(colourOf(r.Node), terminal.Line(head)), terminal.Line(cause))
	for _, line := range r.Advice(p.now) {
		fmt.Fprintf(p.out, "%s %s\n", p.paint(bold, fmt.Sprintf("%-11s", line.Label+":")), terminal.Line(line.Text))
	}
	if chain := r.Chain(); len(chain) > 0 {
		fmt.Fprintln(p.out)
		p.children(chain, "")
	}
}

const (
	// shown is how many Certificates of a group are named.
	shown = 3
	// lines and columns are what a terminal shows at least, with a line for the prompt.
	lines, columns = 23, 80
	// causeLength is how much of a cause is shown, and of what to do.
	causeLength = 3 * columns
)

// groups writes what is in the way, a few lines for each cause, and as many causes as a screen has room for.
func (p printer) groups(groups []explain.Group, all []explain.Report) {
	defer p.numbers(all, "")
	if len(groups) == 0 {
		fmt.Fprintln(p.out, "no Certificate is in trouble")
	}
	room := lines - 2 // for the lines that say how many there are more, and how many there are in all
	for i, g := range groups {
		said := group(g)
		for _, line := range said {
			room -= (len([]rune(line)) + columns - 1) / columns
		}
		if room < 0 && i > 0 {
			more := 0
			for _, g := range groups[i:] {
				more += len(g.Certificates)
			}
			fmt.Fprintf(p.out, "and %s more, of %s: add -o json\n", count(len(groups)-i, "cause"), count(more, "Certificate"))
			return
		}
		head, cause, _ := strings.Cut(said[0], ": ")
		said[0] = p.paint(bold, head) + ": " + cause
		fmt.Fprintln(p.out, strings.Join(said, "\n"))
	}
}

// group is a cause with what helps, and the Certificates that have it.
func group(g explain.Group) (said []string) {
	what := count(len(g.Certificates), "Certificate")
	if g.Expired > 0 {
		what += fmt.Sprintf(", %d expired", g.Expired)
	}
	said = append(said, fmt.Sprintf("%s of %s: %s", what, terminal.Line(g.Issuer), plugin.Cut(terminal.Line(g.Cause), causeLength)))
	others, more := g.Others()
	for _, other := range others {
		said = append(said, plugin.Cut(fmt.Sprintf("   %d of them: %s", other.Certificates, terminal.Line(other.Cause)), columns))
	}
	if more > 0 {
		said = append(said, "   and "+count(more, "other message"))
	}
	if g.WhatToDo != "" {
		whose := ""
		if g.Differs {
			whose = " for " + g.First.Namespace + "/" + g.First.Name
		}
		said = append(said, plugin.Cut("   what to do"+terminal.Line(whose+": "+g.WhatToDo), causeLength))
	}
	names := strings.Join(g.Certificates[:min(shown, len(g.Certificates))], ", ")
	if more := len(g.Certificates) - shown; more > 0 {
		names += fmt.Sprintf(", and %d more", more)
	}
	return append(said, "   "+terminal.Line(names))
}

// count is a number of things, in words.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (p printer) children(nodes []explain.Node, indent string) {
	for i, n := range nodes {
		branch, below := "├─ ", "│  "
		if i == len(nodes)-1 {
			branch, below = "└─ ", "   "
		}
		p.node(n, indent+branch, indent+below)
		p.children(n.Children, indent+below)
	}
}

// node writes an object on a line, and its reason below, unless an object that was made for it says the same.
func (p printer) node(n explain.Node, branch, below string) {
	fmt.Fprintf(p.out, "%s%s: %s\n", branch, terminal.Line(n.Title()), p.paint(colourOf(n), terminal.Line(n.State)))
	says := n.OwnReason()
	if says == "" {
		return
	}
	mark := "   "
	if len(n.Children) > 0 {
		mark = "│  "
	}
	fmt.Fprintf(p.out, "%s%s%s\n", below, mark, terminal.Line(says))
}

func colourOf(n explain.Node) string {
	switch n.Outcome {
	case explain.Issued.String():
		return green
	case explain.Failed.String():
		return red
	default:
		return yellow
	}
}

func (p printer) paint(colour, text string) string {
	if !p.colour {
		return text
	}
	return colour + text + plain
}
