package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Group is the Certificates of one issuer that have the same trouble.
type Group struct {
	// Class is that of the trouble, Issuer the kind, the namespace if there is one, and the name of the issuer.
	Class  string `json:"class"`
	Issuer string `json:"issuer"`
	// Cause, WhatToDo and NextTry are those of the first Certificate.
	Cause    string `json:"cause"`
	WhatToDo string `json:"whatToDo,omitempty"`
	NextTry  string `json:"nextTry,omitempty"`
	// Expired and NotReady are how many of the Certificates have expired, and how many are not ready.
	Expired  int `json:"expired"`
	NotReady int `json:"notReady"`
	// Certificates are their namespaces and names.
	Certificates []string `json:"certificates"`
}

// Troubled reports whether a certificate is not ready, is in trouble, or has expired.
func (r Report) Troubled(now time.Time) bool {
	return r.Outcome != Issued.String() || r.Cause != "" || expired(r, now)
}

// Groups gathers Certificates that are not ready, or in trouble, by the class of the trouble and the issuer. Groups
// with the most expired Certificates come first, then those with the most that are not ready.
func Groups(reports []Report, now time.Time) []Group {
	found := map[[2]string]*Group{}
	for _, r := range reports {
		if !r.Troubled(now) {
			continue
		}
		key := [2]string{r.Class, strings.Replace(Name(r.Issuer.Kind, r.Issuer.Namespace, r.Issuer.Name), " ", "/", 1)}
		g := found[key]
		if g == nil {
			g = &Group{Class: key[0], Issuer: key[1], Cause: cmp.Or(r.Cause, r.StateAndCause(now)), WhatToDo: r.WhatToDo, NextTry: r.NextTry}
			found[key] = g
		}
		if expired(r, now) {
			g.Expired++
		}
		if r.Outcome != Issued.String() {
			g.NotReady++
		}
		g.Certificates = append(g.Certificates, r.Namespace+"/"+r.Name)
	}
	groups := make([]Group, 0, len(found))
	for _, g := range found {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.Expired, x.Expired), cmp.Compare(y.NotReady, x.NotReady),
			cmp.Compare(len(y.Certificates), len(x.Certificates)), strings.Compare(x.Class+x.Issuer, y.Class+y.Issuer))
	})
	return groups
}
