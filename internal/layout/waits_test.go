package layout_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// waiters are those who wait after failures, or for as long as the other side asks.
var waiters = []string{
	"Orders", "Challenges", "polls", "parks", "renewal", "ARI", "registration", "contact", "key change", "revocation", "Vault", "Venafi",
	"DNS programs", "breaker",
}

// parts are rows of their own in the tables of waits, each for a part of what waiters do.
var parts = []string{"calls", "solvers", "self checks", "finalize", "ARI errors"}

// TestWaitsAreInTables: the waits of each caller are in a table, golden.Waits, of the one package that decides them.
func TestWaitsAreInTables(t *testing.T) {
	for _, problem := range checkWaits(readTexts(t)) {
		t.Error(problem)
	}
}

// checkWaits says which waits are not in the tables as they should be.
func checkWaits(all texts) (problems []string) {
	decides := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		dir, is := strings.CutSuffix(name, "/testdata/waits.txt")
		if !is {
			continue
		}
		if !writesWaits(all, dir) {
			problems = append(problems, fmt.Sprintf("%s: no test of %s writes it by golden.Waits", name, dir))
		}
		for line := range strings.Lines(all[name]) {
			caller, _, is := strings.Cut(line, " after ")
			if is && !strings.HasPrefix(line, "#") && !slices.Contains(decides[caller], dir) {
				decides[caller] = append(decides[caller], dir)
			}
		}
	}
	for _, caller := range slices.Concat(waiters, parts) {
		switch in := decides[caller]; len(in) {
		case 0:
			problems = append(problems, fmt.Sprintf("the waits of %q are in no testdata/waits.txt", caller))
		case 1:
		default:
			problems = append(problems, fmt.Sprintf("the waits of %q are in several packages: %s", caller, strings.Join(in, ", ")))
		}
		delete(decides, caller)
	}
	for _, caller := range slices.Sorted(maps.Keys(decides)) {
		problems = append(problems, fmt.Sprintf("%s has waits of %q: name it in internal/layout/waits_test.go", decides[caller][0], caller))
	}
	return problems
}

// writesWaits reports whether a test in a directory writes the table of waits there.
func writesWaits(all texts, dir string) bool {
	for name, text := range all {
		if path.Dir(name) == dir && strings.HasSuffix(name, "_test.go") && strings.Contains(text, "golden.Waits") {
			return true
		}
	}
	return false
}

// TestWaitsRulesBite shows that each rule can fail.
func TestWaitsRulesBite(t *testing.T) {
	var table strings.Builder
	for _, caller := range slices.Concat(waiters, parts) {
		table.WriteString("\n" + caller + " after Refused\n  asked 0 1s×6\n")
	}
	const at, test = "internal/a/testdata/waits.txt", "internal/a/waits_test.go"
	for name, c := range map[string]struct {
		change func(texts)
		want   string
	}{
		"in order":   {func(texts) {}, ""},
		"missing":    {func(all texts) { all[at] = strings.Replace(all[at], "\ncontact after", "\n# contact after", 1) }, `"contact" are in no`},
		"twice":      {func(all texts) { all["b/testdata/waits.txt"], all["b/b_test.go"] = "ARI after x\n", all[test] }, `"ARI" are in several packages: b, internal/a`},
		"unknown":    {func(all texts) { all[at] += "\nnobody after x\n" }, `waits of "nobody"`},
		"not tested": {func(all texts) { all[test] = "package a" }, "no test of internal/a writes it"},
	} {
		all := texts{at: table.String(), test: "var waits golden.Waits"}
		c.change(all)
		if got := strings.Join(checkWaits(all), "\n"); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, got, c.want)
		}
	}
}
