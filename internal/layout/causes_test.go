package layout_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
)

// causesBegin stands before the table of causes in docs/alerts.md.
const causesBegin = "<!-- The table of internal/cause: go test ./internal/layout -update writes it. -->\n\n"

// TestCausesInAlerts: the page of the alerts says of each class of a Challenge's failure what the one table of causes
// says of it.
func TestCausesInAlerts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), causesBegin)
	table, after, _ := strings.Cut(rest, "\n**Impact.**")
	if !found || strings.Contains(table, "\n\n") {
		t.Fatal("docs/alerts.md has no table of causes, or more between its mark and the impact")
	}
	written(t, "alerts.md", before+causesBegin+causes()+"\n**Impact.**"+after)
}

func causes() string {
	var table strings.Builder
	table.WriteString("| cause | what is in the way | what to do |\n|---|---|---|\n")
	for _, class := range []fault.Class{
		fault.ClassSelfCheck, fault.ClassValidation, fault.ClassSolver, fault.ClassCredential, fault.ClassConfiguration, fault.ClassPermanent,
		fault.ClassRefused, fault.ClassPaused, fault.ClassRateLimited, fault.ClassUnavailable,
	} {
		for _, row := range cause.Table() {
			if row.Class != cause.Class(class) {
				continue
			}
			says := row.Meaning
			if says == "" {
				says = "what the message says"
			}
			table.WriteString("| `" + string(class) + "` | " + says + " | " + row.Helps + " |\n")
		}
	}
	table.WriteString("| empty | nothing has failed: it waits for its turn behind others | see below |\n")
	return table.String()
}
