package layout_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chancery.dev/internal/limits"
)

// limitsIntro stands above the tables of docs/limits.md.
const limitsIntro = `# Limits: how large things from outside may be

You want to know how large things may be, and what happens above that. A tenant, a server or a client of the API server
chooses the size of much that the controller reads. This page lists each such size: who chooses it, its bound, what one
unit costs, and what happens above the bound. The cost of a thing grows with its size, never with the square of the
size: each test that is named here says so, or holds the bound. Run one with ` + "`go test -run NAME ./internal/...`" + `.
Each parser of ours has a fuzz target: a property that holds whatever the bytes are. ` + "`make fuzz`" + ` looks for bytes
that break one.

The page is written from ` + "`internal/limits`" + ` by ` + "`go test ./internal/layout -update`" + `.
`

// limitsPage is docs/limits.md.
func limitsPage() string {
	var page strings.Builder
	page.WriteString(limitsIntro)
	for _, section := range limits.Table() {
		page.WriteString("\n## " + section.Title + "\n\n")
		page.WriteString("| What comes from outside | Who chooses its size | Bound | What it costs | Above the bound | Test | Fuzz target |\n|---|---|---|---|---|---|---|\n")
		for _, r := range section.Rows {
			fuzz := "none: " + r.Parser
			if len(r.Fuzz) > 0 {
				fuzz = inCode(r.Fuzz)
			}
			page.WriteString("| " + strings.Join([]string{r.What, r.Who, r.Bound, r.Costs, r.Above, inCode(r.Tests), fuzz}, " | ") + " |\n")
		}
	}
	page.WriteString(`
## How you see that it worked

An event of the object, or a condition, says which bound it is above; the object is looked at again when it changes.
`)
	return page.String()
}

// inCode are names in a cell.
func inCode(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }

// otherParsers are the fuzz targets of parsers of what somebody else writes, and whose size is not in the table.
var otherParsers = []string{
	"FuzzCSRDuration", "FuzzHost", "FuzzHostRule", "FuzzManagedFields", "FuzzOldCAs", "FuzzPrintable", "FuzzRedactedText",
	"FuzzResponder", "FuzzSearch", "FuzzSignerName", "FuzzWaits",
}

// TestFuzzTargets: each row of the table names the targets of its parsers, or says why there is none; each target that
// is named is there once, and each that is there is named.
func TestFuzzTargets(t *testing.T) {
	there, named := functionsOfTests(t, "Fuzz"), map[string]bool{}
	for _, name := range otherParsers {
		named[name] = true
	}
	for _, section := range limits.Table() {
		for _, r := range section.Rows {
			if (len(r.Fuzz) > 0) == (r.Parser != "") || strings.Contains(r.Parser, "|") {
				t.Errorf("%s: %s: it has either fuzz targets, or a reason why there are none", section.Title, r.What)
			}
			for _, name := range r.Fuzz {
				if slices.Contains(otherParsers, name) {
					t.Errorf("%s is in the table, and among the other parsers", name)
				}
				named[name] = true
			}
		}
	}
	for name := range named {
		if there[name] != 1 {
			t.Errorf("there are %d functions %s", there[name], name)
		}
	}
	for name := range there {
		if !named[name] {
			t.Errorf("no row of internal/limits names %s", name)
		}
	}
}

// TestLimitsPage: docs/limits.md is the table of internal/limits, whose rows are whole and name tests that exist.
func TestLimitsPage(t *testing.T) {
	tests := testNames(t)
	for _, section := range limits.Table() {
		for _, r := range section.Rows {
			for _, cell := range []string{r.What, r.Who, r.Bound, r.Costs, r.Above} {
				if cell == "" || strings.Contains(cell, "|") {
					t.Errorf("%s: a cell is empty, or would end in the middle: %+v", section.Title, r)
				}
			}
			if len(r.Tests) == 0 {
				t.Errorf("%s: %s: no test holds it", section.Title, r.What)
			}
			for _, name := range r.Tests {
				if !tests[name] {
					t.Errorf("%s: %s: there is no %s", section.Title, r.What, name)
				}
			}
		}
	}
	written(t, "limits.md", limitsPage())
}

// written holds a page of docs to what a table of the code says, or writes it.
func written(t *testing.T, page, want string) {
	t.Helper()
	file := filepath.Join(root, "docs", page)
	text, err := os.ReadFile(file)
	if err == nil && string(text) == want {
		return
	}
	if !*update {
		t.Fatalf("docs/%s is not the table in the code (%v): go test ./internal/layout -update writes it", page, err)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
