package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// row is a difference, as often as it comes.
type row struct {
	// kind is that of the objects, where the place in them. Numbers in names are masked.
	kind, where string
	// other and ours are what it says there; empty for nothing.
	other, ours string
	count       int
	// example is an object with it.
	example string
	// named is what names the difference; nil for nothing.
	named *naming
}

// report is what a comparison has found.
type report struct {
	sides   [2]*side
	objects [2]int
	kinds   map[string][2]int
	facts   int
	equal   int
	rows    []*row
}

// numbers are those in the names of generated objects.
var numbers = regexp.MustCompile(`\b(crt|tls|ing)-\d{3}`)

// newReport compares the objects of two sides.
func newReport(sides [2]*side, found [2][]object) *report {
	r := &report{sides: sides, kinds: map[string][2]int{}}
	byName := [2]map[string]object{{}, {}}
	for i := range found {
		r.objects[i] = len(found[i])
		for _, o := range found[i] {
			byName[i][o.kind+" "+o.name] = o
			n := r.kinds[o.kind]
			n[i]++
			r.kinds[o.kind] = n
		}
	}
	rows := map[string]*row{}
	note := func(o object, where, other, ours string) {
		d := &row{kind: o.kind, where: numbers.ReplaceAllString(where, "$1-N"), other: numbers.ReplaceAllString(other, "$1-N"), ours: numbers.ReplaceAllString(ours, "$1-N"), example: o.name}
		key := strings.Join([]string{d.kind, d.where, d.other, d.ours}, "\x00")
		if rows[key] == nil {
			rows[key] = d
			d.named = nameOfDifference(d)
		}
		rows[key].count++
	}
	all := maps.Clone(byName[0])
	maps.Copy(all, byName[1])
	for _, key := range slices.Sorted(maps.Keys(all)) {
		a, there := byName[0][key]
		b, here := byName[1][key]
		switch {
		case !there:
			note(b, theObject, "", "there"+about(b))
		case !here:
			note(a, theObject, "there"+about(a), "")
		default:
			r.compareFacts(a, b, note)
		}
	}
	r.rows = slices.SortedFunc(maps.Values(rows), func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), -cmp.Compare(a.count, b.count), cmp.Compare(a.where, b.where), cmp.Compare(a.other+a.ours, b.other+b.ours))
	})
	return r
}

// theObject is where an object differs that only one side has.
const theObject = "(the object)"

// about says of an object that only one side has what a reader needs to tell why.
func about(o object) string {
	if !strings.HasPrefix(o.kind, "Event of ") {
		return ""
	}
	var told []string
	for _, where := range slices.Sorted(maps.Keys(o.facts)) {
		told = append(told, where+": "+strings.ReplaceAll(o.facts[where], ";", ","))
	}
	return ": " + strings.Join(told, "; ")
}

// compareFacts compares two objects of one name.
func (r *report) compareFacts(a, b object, note func(o object, where, other, ours string)) {
	all := maps.Clone(a.facts)
	maps.Copy(all, b.facts)
	for _, where := range slices.Sorted(maps.Keys(all)) {
		r.facts++
		if a.facts[where] == b.facts[where] {
			r.equal++
			continue
		}
		note(a, where, a.facts[where], b.facts[where])
	}
}

// unnamed are the differences that nothing names.
func (r *report) unnamed() []*row {
	return slices.DeleteFunc(slices.Clone(r.rows), func(d *row) bool { return d.named != nil })
}

// write prints the report: what has no name first.
func (r *report) write(w io.Writer) {
	unnamed, count := r.unnamed(), 0
	for _, d := range unnamed {
		count += d.count
	}
	fmt.Fprintf(w, "DIFFERENCES WITHOUT A NAME: %d kinds, %d in all\n", len(unnamed), count)
	for _, d := range unnamed {
		fmt.Fprintf(w, "\n  %s: %s (%d, in %s for example)\n    the other: %s\n    Chancery:  %s\n", d.kind, d.where, d.count, d.example, shown(d.other), shown(d.ours))
	}
	fmt.Fprintf(w, "\nDIFFERENCES WITH A NAME\n")
	by, times := map[naming][]*row{}, map[naming]int{}
	for _, d := range r.rows {
		if d.named != nil {
			by[*d.named] = append(by[*d.named], d)
			times[*d.named] += d.count
		}
	}
	named := 0
	for _, n := range slices.SortedFunc(maps.Keys(by), func(a, b naming) int { return cmp.Or(-cmp.Compare(times[a], times[b]), cmp.Compare(a.text, b.text)) }) {
		named += times[n]
		d := by[n][0]
		fmt.Fprintf(w, "\n  %s: %s\n    %d in all, of %d kinds. One is %s: %s (%s)\n    the other: %s\n    Chancery:  %s\n", n.page, n.text, times[n], len(by[n]), d.kind, d.where, d.example, shown(d.other), shown(d.ours))
	}
	fmt.Fprintf(w, "\nOBJECTS %31s %8s\n", "OTHER", "CHANCERY")
	for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
		n := r.kinds[kind]
		fmt.Fprintf(w, "  %-28s %8d %8d\n", strings.Replace(kind, "Event of", "with Events:", 1), n[0], n[1])
	}
	for _, s := range r.sides {
		fmt.Fprintf(w, "%s: %s, finished after %.0f s\n", s.name, s.path, s.took.Seconds())
		for _, n := range s.notes {
			fmt.Fprintf(w, "  NOTE: %s\n", n)
		}
	}
	o := r.sides[0].options
	fmt.Fprintf(w, "\nSeed %d: %d Certificates and %d Ingresses given to both; %d objects refused by both API servers as invalid\n", o.seed, o.certificates, o.ingresses, r.sides[0].refused)
	fmt.Fprintf(w, "%d and %d objects, %d fields compared: %d equal, %d differences with a name, %d without in %s\n", r.objects[0], r.objects[1], r.facts, r.equal, named, count,
		max(r.sides[0].took, r.sides[1].took).Round(time.Second))
}

// shown is a value as it is printed.
func shown(s string) string {
	const longest = 300
	if s == "" {
		return "(nothing)"
	}
	if runes := []rune(s); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return s
}
