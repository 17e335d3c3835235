package layout_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"chancery.dev/internal/limits"
)

// limitsIntro stands above the tables of docs/limits.md.
const limitsIntro = `# Limits: how large things from outside may be

A tenant, a server or a client of the API server chooses the size of much that the controller reads. This page lists
each such size: who chooses it, its bound, what one unit costs, and what happens above the bound. The cost of a thing
grows with its size, never with the square of the size: each test that is named here says so, or holds the bound. Run
one with ` + "`go test -run NAME ./internal/...`" + `.

The page is written from ` + "`internal/limits`" + ` by ` + "`go test ./internal/layout -update`" + `.
`

// limitsPage is docs/limits.md.
func limitsPage() string {
	var page strings.Builder
	page.WriteString(limitsIntro)
	for _, section := range limits.Table() {
		page.WriteString("\n## " + section.Title + "\n\n")
		page.WriteString("| What comes from outside | Who chooses its size | Bound | What it costs | Above the bound | Test |\n|---|---|---|---|---|---|\n")
		for _, r := range section.Rows {
			page.WriteString("| " + strings.Join([]string{r.What, r.Who, r.Bound, r.Costs, r.Above, "`" + strings.Join(r.Tests, "`, `") + "`"}, " | ") + " |\n")
		}
	}
	return page.String()
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
	file := filepath.Join(root, "docs", "limits.md")
	text, err := os.ReadFile(file)
	if err == nil && string(text) == limitsPage() {
		return
	}
	if !*update {
		t.Fatalf("docs/limits.md is not the table of internal/limits (%v): go test ./internal/layout -update writes it", err)
	}
	if err := os.WriteFile(file, []byte(limitsPage()), 0o644); err != nil {
		t.Fatal(err)
	}
}
