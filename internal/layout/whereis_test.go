package layout_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// leastAnswers is how many questions of a stranger CONTRIBUTING answers.
const leastAnswers = 15

// TestWhereIs: each file of the table "Where is …?" in CONTRIBUTING has the words that its row says to begin at.
func TestWhereIs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, problems := whereIs(string(page), func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(root, name)) })
	for _, p := range problems {
		t.Error(p)
	}
	if rows < leastAnswers {
		t.Errorf("the table has %d rows, %d at least are wanted", rows, leastAnswers)
	}
}

// TestWhereIsBites: a file that is gone, words that are gone, and a row of another form are found.
func TestWhereIsBites(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a.go": "func A() {}"}
	for row, want := range map[string]string{
		"| a | [a.go](a.go) | `func A` |": "",
		"| a | [b.go](b.go) | `func A` |": "b.go",
		"| a | [a.go](a.go) | `func B` |": "func B",
		"| a | a.go | `func A` |":         "form",
		"| a | [a.go](b.go) | `func A` |": "form",
	} {
		rows, problems := whereIs("## Where is …?\n\n| where is … | file | begin at |\n|---|---|---|\n"+row+"\n\n## Next\n| b |\n", func(name string) ([]byte, error) {
			if text, is := files[name]; is {
				return []byte(text), nil
			}
			return nil, os.ErrNotExist
		})
		if got := strings.Join(problems, "\n"); rows != 1 || (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %d rows, %q, want %q", row, rows, got, want)
		}
	}
}

// whereIs reads the table: how many rows it has, and what is wrong with them.
func whereIs(page string, read func(string) ([]byte, error)) (rows int, problems []string) {
	_, table, _ := strings.Cut(page, "\n## Where is …?\n")
	if strings.HasPrefix(page, "## Where is …?\n") {
		table = page
	}
	if end := strings.Index(table[min(3, len(table)):], "\n## "); end >= 0 {
		table = table[:end+3]
	}
	form := regexp.MustCompile("^\\| [^|]+ \\| \\[([^]]+)\\]\\(([^)]+)\\) \\| `([^`]+)` \\|$")
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") || strings.HasPrefix(line, "| where is") {
			continue
		}
		rows++
		m := form.FindStringSubmatch(line)
		if m == nil || m[1] != m[2] {
			problems = append(problems, "not of the form of the other rows: "+line)
			continue
		}
		if text, err := read(m[1]); err != nil || !strings.Contains(string(text), m[3]) {
			problems = append(problems, fmt.Sprintf("%s does not have %q: %v", m[1], m[3], err))
		}
	}
	return rows, problems
}
