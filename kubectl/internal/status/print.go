package status

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"chancery.dev/internal/explain"
)

// Colours of a terminal.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	bold   = "\x1b[1m"
	plain  = "\x1b[0m"
)

// printer writes reports for people.
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

// one writes a report. Its last lines are the cause, the next try, and what to do.
func (p printer) one(r explain.Report) {
	p.node(r.Node, "", "")
	if r.Issuer.State == "" {
		r.Issuer.State = "not read"
	}
	children := append([]explain.Node{r.Issuer}, r.Children...)
	p.children(children, "")
	fmt.Fprintln(p.out)
	switch {
	case r.Cause != "":
		p.line("cause", r.Cause)
		p.line("next try", r.NextTry)
		p.line("what to do", r.WhatToDo)
	case r.Outcome == explain.Issued.String():
		p.line("expires", p.moment(r.Expires))
		p.line("renewal", p.moment(r.Renews))
	case r.Since != nil:
		p.line("cause", "nothing is wrong so far: under way for "+duration.HumanDuration(p.now.Sub(r.Since.Time)))
	default:
		p.line("cause", "nothing is wrong so far")
	}
}

func (p printer) line(name, text string) {
	if text != "" {
		fmt.Fprintf(p.out, "%s %s\n", p.paint(bold, fmt.Sprintf("%-11s", name+":")), text)
	}
}

// moment is a time and how far it is.
func (p printer) moment(at *metav1.Time) string {
	if at == nil {
		return ""
	}
	if away := at.Sub(p.now); away >= 0 {
		return at.UTC().Format(time.RFC3339) + ", in " + duration.HumanDuration(away)
	}
	return at.UTC().Format(time.RFC3339) + ", " + duration.HumanDuration(p.now.Sub(at.Time)) + " ago"
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
	name := n.About
	if name == "" {
		name = explain.Name(n.Kind, n.Namespace, n.Name)
	}
	fmt.Fprintf(p.out, "%s%s: %s\n", branch, name, p.paint(colourOf(n), n.State))
	if n.Reason == "" || repeated(n.Children, n.Reason) {
		return
	}
	mark := "   "
	if len(n.Children) > 0 {
		mark = "│  "
	}
	fmt.Fprintf(p.out, "%s%s%s\n", below, mark, n.Reason)
}

// repeated reports whether an object below says all there is in a reason.
func repeated(nodes []explain.Node, reason string) bool {
	for _, n := range nodes {
		if n.Reason != "" && strings.Contains(reason, n.Reason) || repeated(n.Children, reason) {
			return true
		}
	}
	return false
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
