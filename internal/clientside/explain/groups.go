package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Group is the Certificates of one issuer that have the same kind of trouble.
type Group struct {
	// Class is that of the trouble, Issuer the kind, the namespace if there is one, and the name of the issuer.
	Class  string `json:"class"`
	Issuer string `json:"issuer"`
	// Cause, WhatToDo and NextTry are those of the first Certificate that has the most frequent message. OtherCauses are
	// the other messages, the most frequent first.
	Cause       string    `json:"cause"`
	WhatToDo    string    `json:"whatToDo,omitempty"`
	NextTry     string    `json:"nextTry,omitempty"`
	OtherCauses []Wording `json:"otherCauses,omitempty"`
	// Expired and NotReady are how many of the Certificates have expired, and how many are not ready.
	Expired  int `json:"expired"`
	NotReady int `json:"notReady"`
	// Certificates are their namespaces and names, those that expire first first.
	Certificates []string `json:"certificates"`

	// Reports are those of the Certificates, and First is that of the Certificate whose Cause it is. Differs says that
	// the words are not those of all.
	Reports []Report `json:"-"`
	First   Report   `json:"-"`
	Differs bool     `json:"-"`
}

// Troubled reports whether a certificate is not ready, is in trouble, or has expired.
func (r Report) Troubled(now time.Time) bool {
	return r.Outcome != Issued.String() || r.Cause != "" || r.Health.IsTrouble() || expired(r, now)
}

// Groups gathers Certificates that are not ready, or in trouble, by the class of the trouble and the issuer. Groups
// with the most expired Certificates come first, then those with the most that are not ready.
func Groups(reports []Report, now time.Time) []Group {
	reports = slices.DeleteFunc(slices.Clone(reports), func(r Report) bool { return !r.Troubled(now) })
	slices.SortFunc(reports, func(x, y Report) int {
		return cmp.Or(ends(x.Expires).Compare(ends(y.Expires)), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	found := map[[2]string]*Group{}
	for _, r := range reports {
		key := [2]string{classWord(r.Class), strings.Replace(Name(r.Issuer.Kind, r.Issuer.Namespace, r.Issuer.Name), " ", "/", 1)}
		g := found[key]
		if g == nil {
			g = &Group{Class: r.Class, Issuer: key[1]}
			found[key] = g
		}
		g.Reports = append(g.Reports, r)
	}
	groups := make([]Group, 0, len(found))
	for _, g := range found {
		g.tell(now)
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.Expired, x.Expired), cmp.Compare(y.NotReady, x.NotReady),
			cmp.Compare(len(y.Certificates), len(x.Certificates)), strings.Compare(x.Class+x.Issuer, y.Class+y.Issuer))
	})
	return groups
}

// tell counts the Certificates of a group and their messages, and makes the most frequent message that of the group.
func (g *Group) tell(now time.Time) {
	wordings := map[string]*Wording{}
	for i, r := range g.Reports {
		if expired(r, now) {
			g.Expired++
		}
		if r.Outcome != Issued.String() {
			g.NotReady++
		}
		wording := wordingOf(r)
		if wordings[wording] == nil {
			wordings[wording] = &Wording{Cause: cmp.Or(r.Cause, r.StateAndCause(now)), first: r, place: i}
		}
		wordings[wording].Certificates++
		g.Certificates = append(g.Certificates, r.Namespace+"/"+r.Name)
	}
	for _, w := range wordings {
		g.OtherCauses = append(g.OtherCauses, *w)
	}
	slices.SortFunc(g.OtherCauses, func(x, y Wording) int {
		return cmp.Or(cmp.Compare(y.Certificates, x.Certificates), cmp.Compare(x.place, y.place))
	})
	g.Cause, g.First, g.OtherCauses = g.OtherCauses[0].Cause, g.OtherCauses[0].first, g.OtherCauses[1:]
	g.WhatToDo, g.NextTry = g.First.WhatToDo, g.First.NextTry
	g.Differs = slices.ContainsFunc(g.Reports, func(r Report) bool { return r.Cause != g.First.Cause || r.WhatToDo != g.First.WhatToDo })
}

// Others are the other messages that people are shown, and how many there are beside these.
func (g *Group) Others() (shown []Wording, more int) {
	shown = g.OtherCauses[:min(OthersShown, len(g.OtherCauses))]
	return shown, len(g.OtherCauses) - len(shown)
}
