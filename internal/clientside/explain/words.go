package explain

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"chancery.dev/internal/fault"
)

// Title returns the name of the object for people.
func (n Node) Title() string {
	if n.About != "" {
		return n.About
	}
	return Name(n.Kind, n.Namespace, n.Name)
}

// OwnReason returns the reason of the object; empty if an object that was made for it says the same.
func (n Node) OwnReason() string {
	if repeated(n.Children, n.Reason) {
		return ""
	}
	return n.Reason
}

// repeated reports whether an object below says all there is in a reason.
func repeated(nodes []Node, reason string) bool {
	for _, n := range nodes {
		if n.Reason != "" && strings.Contains(reason, n.Reason) || repeated(n.Children, reason) {
			return true
		}
	}
	return false
}

// Chain is the issuer of the object, and what was made for the object.
func (r Report) Chain() []Node {
	if r.Issuer.Kind == "" { // it is one itself
		return r.Children
	}
	if r.Issuer.State == "" {
		r.Issuer.State = "not read"
	}
	return append([]Node{r.Issuer}, r.Children...)
}

// Line is a labelled line of text.
type Line struct {
	Label, Text string
}

// StateAndCause is the first line of a report without its object: the state, and the cause if there is one.
func (r Report) StateAndCause(now time.Time) string {
	switch {
	case r.Cause != "":
		return r.State + ": " + r.Cause
	case r.Outcome != Issued.String() && r.Since != nil:
		return r.State + ": under way for " + duration.HumanDuration(now.Sub(r.Since.Time)) + ", and nothing is wrong so far"
	case r.Outcome != Issued.String():
		return r.State + ": nothing is wrong so far"
	default:
		return r.State
	}
}

// Advice is what follows the first line: what to do and the next try, or when the certificate expires.
func (r Report) Advice(now time.Time) (lines []Line) {
	add := func(label, text string) {
		if text != "" {
			lines = append(lines, Line{label, text})
		}
	}
	if r.Cause != "" {
		add("what to do", r.WhatToDo)
		add("next try", r.NextTry)
	}
	if r.Outcome == Issued.String() {
		add("expires", moment(r.Expires, now))
		add("renewal", moment(r.Renews, now))
	}
	for _, a := range r.Announced {
		add("announced", a.Message)
		add("what to do", a.WhatToDo)
	}
	if r.CA != nil {
		lines = append(lines, r.CA.lines(now)...)
	}
	return lines
}

// soonerThan is what to do where a certificate expires before the next try.
func soonerThan(t Trouble) string {
	const late = "Do not wait: the certificate expires before the next try. "
	if strings.EqualFold(t.Class, string(fault.ClassRateLimited)) {
		return late + "Another issuer can help sooner, or another set of hosts if the limit is for this set"
	}
	return late + t.WhatToDo
}

// clock is a time and how far it is, or that it is now.
func clock(at *metav1.Time, now time.Time) string {
	if !at.After(now) {
		return "now"
	}
	return at.UTC().Format(time.RFC3339) + " (" + far(at, now) + ")"
}

// moment is a time and how far it is.
func moment(at *metav1.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339) + ", " + far(at, now)
}

// Away returns the day of a time, and how far away it is.
func Away(at *metav1.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.DateOnly) + " (" + far(at, now) + ")"
}

func far(at *metav1.Time, now time.Time) string {
	if away := at.Sub(now); away >= 0 {
		return "in " + duration.HumanDuration(away)
	}
	return duration.HumanDuration(now.Sub(at.Time)) + " ago"
}
