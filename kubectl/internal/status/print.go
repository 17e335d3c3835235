package status

import (
	"fmt"
	"io"
	"strings"
	"time"

	"chancery.dev/internal/explain"
	"chancery.dev/internal/printable"
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
}

// one writes a report: first the state and the cause, then what to do and the next try, then the chain.
func (p printer) one(r explain.Report) {
	head, cause, _ := strings.Cut(r.Head(p.now), ": ")
	if cause != "" {
		cause = ": " + cause
	}
	fmt.Fprintf(p.out, "%s: %s%s\n", printable.Line(r.Title()), p.paint(colourOf(r.Node), printable.Line(head)), printable.Line(cause))
	for _, line := range r.Advice(p.now) {
		fmt.Fprintf(p.out, "%s %s\n", p.paint(bold, fmt.Sprintf("%-11s", line.Label+":")), printable.Line(line.Text))
	}
	fmt.Fprintln(p.out)
	p.children(r.Chain(), "")
}

// shown is how many Certificates of a group are named.
const shown = 3

// groups writes what is in the way, a few lines for each cause.
func (p printer) groups(groups []explain.Group) {
	if len(groups) == 0 {
		fmt.Fprintln(p.out, "no Certificate is in trouble")
	}
	for _, g := range groups {
		what := "1 Certificate"
		if n := len(g.Certificates); n != 1 {
			what = fmt.Sprintf("%d Certificates", n)
		}
		if g.Expired > 0 {
			what += fmt.Sprintf(", %d expired", g.Expired)
		}
		fmt.Fprintf(p.out, "%s of %s: %s\n", p.paint(bold, what), printable.Line(g.Issuer), printable.Line(g.Cause))
		if g.WhatToDo != "" {
			fmt.Fprintf(p.out, "   what to do: %s\n", printable.Line(g.WhatToDo))
		}
		names := strings.Join(g.Certificates[:min(shown, len(g.Certificates))], ", ")
		if more := len(g.Certificates) - shown; more > 0 {
			names += fmt.Sprintf(", and %d more", more)
		}
		fmt.Fprintf(p.out, "   %s\n", printable.Line(names))
	}
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
	fmt.Fprintf(p.out, "%s%s: %s\n", branch, printable.Line(n.Title()), p.paint(colourOf(n), printable.Line(n.State)))
	says := n.Says()
	if says == "" {
		return
	}
	mark := "   "
	if len(n.Children) > 0 {
		mark = "│  "
	}
	fmt.Fprintf(p.out, "%s%s%s\n", below, mark, printable.Line(says))
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
