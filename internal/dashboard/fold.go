package dashboard

import (
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"chancery.dev/internal/clientside/explain"
)

// row is a Certificate in the table, or a group of Certificates.
type row struct {
	// Row is that of the Certificate, or of the worst of the group.
	explain.Row

	// Group is nil for one Certificate.
	Group *group
}

// group is several Certificates in trouble by one kind of cause and one issuer.
type group struct {
	explain.Group

	// To is the search that finds them. Healths says how many have which health, if they do not all have one.
	To, Healths string
	// Others are other messages, and More is how many are not shown.
	Others []explain.Wording
	More   int
	// Without is how many have no certificate. Until is the first time at which clients stop trusting one of the others,
	// and Tries the next time at which one is tried.
	Without      int
	Until, Tries *metav1.Time
}

// fold puts Certificates in trouble by one kind of cause and one issuer into one row, where the worst of them is. So
// what is wrong is seen at once, however many Certificates it is wrong with. A search for more than a state, an issuer
// or a namespace shows each Certificate.
func fold(certificates []explain.Row, found []explain.Report, search string, now time.Time) (rows []row) {
	groups, shown := map[string]*group{}, map[*group]bool{}
	if !slices.ContainsFunc(strings.Fields(search), func(word string) bool { return !isFilter(word) }) {
		groups = groupsOf(found, search, now)
	}
	for _, c := range certificates {
		g := groups[c.Namespace+"/"+c.Name]
		if g == nil || !shown[g] {
			rows = append(rows, row{c, g})
		}
		shown[g] = true
	}
	return rows
}

// isFilter reports whether a word of a search takes all that are in a state, of an issuer or in a namespace.
func isFilter(word string) bool {
	label := explain.Label(word)
	return label != "" && label != "cause:"
}

// groupsOf returns the group of each Certificate that is not alone with its trouble.
func groupsOf(found []explain.Report, search string, now time.Time) map[string]*group {
	inTrouble := slices.DeleteFunc(slices.Clone(found), func(r explain.Report) bool { return !r.Health.IsTrouble() })
	groups := map[string]*group{}
	for _, g := range explain.Groups(inTrouble, now) {
		to := g.Search()
		if len(g.Certificates) == 1 || to == "" {
			continue
		}
		one := newGroup(g, now)
		for word := range strings.FieldsSeq(search) {
			if !strings.Contains(" "+to+" ", " "+word+" ") {
				to += " " + word
			}
		}
		one.To = find(to)
		for _, name := range g.Certificates {
			groups[name] = one
		}
	}
	return groups
}

func newGroup(g explain.Group, now time.Time) *group {
	one := &group{Group: g}
	one.Others, one.More = g.Others()
	one.Others = slices.Clone(one.Others)
	left := space(causeText - len(one.Others)*otherText)
	one.Cause = left.take(g.Cause)
	for i := range one.Others {
		left = space(otherText)
		one.Others[i].Cause = left.take(one.Others[i].Cause)
	}
	for _, r := range explain.WorstFirst(g.Reports, now) {
		if r.Expires == nil {
			one.Without++
		} else {
			one.Until = earlier(one.Until, r.Until())
		}
		if r.Tries != nil && r.Tries.After(now) {
			one.Tries = earlier(one.Tries, r.Tries)
		}
	}
	var said []string
	counts := explain.Count(g.Reports)
	for _, h := range explain.Healths() {
		if counts[h] > 0 {
			said = append(said, strconv.Itoa(counts[h])+" "+string(h))
		}
	}
	if len(said) > 1 {
		one.Healths = strings.Join(said, ", ")
	}
	one.Reports = nil
	return one
}

func earlier(x, y *metav1.Time) *metav1.Time {
	if x == nil || y.Before(x) {
		return y
	}
	return x
}
