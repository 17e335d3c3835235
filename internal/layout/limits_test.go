package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"chancery.dev/internal/limits"
)

// limitsIntro stands above the tables of docs/limits.md.
const limitsIntro = `# Limits: how large things from outside may be

You want to know how large things may be, and what happens above that. A tenant, a server or a client of the API server
chooses the size of much that the controller reads. This page lists each such size: who chooses it, its bound, what one
unit costs, and what happens above the bound. The cost of a thing grows with its size, never with the square of the
size: each test that is named here says so, or tries the bound and one more. The words in italics say what becomes of
one more, or why no test tries it. Run a test with ` + "`go test -run NAME ./internal/...`" + `. Each parser of ours has a
fuzz target: a property that holds whatever the bytes are. ` + "`make fuzz`" + ` looks for bytes that break one.

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
			page.WriteString("| " + strings.Join([]string{r.What, r.Who, r.Text(), r.Costs, above(r), inCode(r.Tests), fuzz}, " | ") + " |\n")
		}
	}
	page.WriteString(`
## How you see that it worked

An event of the object, or a condition, says which bound it is above; the object is looked at again when it changes.
`)
	return page.String()
}

// above says what becomes of one more than each bound, or why no test tries it.
func above(r limits.Row) string {
	var all, each []string
	for _, n := range r.Numbers {
		becomes := string(n.Above) + string(n.Untried)
		each = append(each, n.String()+": "+becomes)
		if !slices.Contains(all, becomes) {
			all = append(all, becomes)
		}
	}
	switch len(all) {
	case 0:
		return r.Above
	case 1:
		return "*" + all[0] + "*: " + r.Above
	}
	return "*" + strings.Join(each, "; ") + "*: " + r.Above
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
			for _, cell := range []string{r.What, r.Who, r.Text(), r.Costs, r.Above} {
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

// TestNumbersAreTried: each number of the table is tried by bounds.Holds in a test that its row names, or has a reason
// why not; it has a name of its own, and no other number is in the text of its bound.
func TestNumbersAreTried(t *testing.T) {
	tried, seen := triedNumbers(t), map[string]bool{}
	for _, section := range limits.Table() {
		for _, r := range section.Rows {
			if strings.Count(r.Bound, "%s") != len(r.Numbers) && r.Bound != "" || strings.ContainsAny(r.Bound, "0123456789") {
				t.Errorf("%s: %q has not one %%s for each of its %d numbers, or digits", r.What, r.Bound, len(r.Numbers))
			}
			for _, n := range r.Numbers {
				if seen[n.Name] || (n.Above == "") == (n.Untried == "") {
					t.Errorf("%s: %+v: another number has its name, or it has not either an outcome or a reason that it is not tried", r.What, n)
				}
				seen[n.Name] = true
				by := func(test string) bool { return tried[test][n.Name] }
				if slices.ContainsFunc(r.Tests, by) != (n.Untried == "") {
					t.Errorf("%s: bounds.Holds(t, %q, …) is in none of %q, and the row has no reason for that; or it is, and the row has one", r.What, n.Name, r.Tests)
				}
			}
		}
	}
}

// triedNumbers are the names that each test function hands to bounds.Holds.
func triedNumbers(t *testing.T) map[string]map[string]bool {
	t.Helper()
	tried := map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				if tried[f.Name.Name] == nil {
					tried[f.Name.Name] = map[string]bool{}
				}
				ast.Inspect(f, func(n ast.Node) bool {
					if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 3 && types.ExprString(call.Fun) == "bounds.Holds" {
						name, _ := strconv.Unquote(types.ExprString(call.Args[1])) // a name that is no literal is none
						tried[f.Name.Name][name] = true
					}
					return true
				})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tried
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
