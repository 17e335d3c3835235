package stories

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// broken is a row of testdata/broken.md.
type broken struct {
	name, setUp, cause, cure, refusedBy string
}

// brokenSetUps reads the table of broken set-ups.
func brokenSetUps(t *testing.T) (rows []broken) {
	t.Helper()
	text, err := os.ReadFile("testdata/broken.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 6 || !strings.HasPrefix(line, "| ") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == "#" {
			continue
		}
		if n, err := strconv.Atoi(cells[0]); err != nil || n != len(rows)+1 {
			t.Fatalf("row %d has the number %q", len(rows)+1, cells[0])
		}
		rows = append(rows, broken{cells[1], cells[2], cells[3], cells[4], cells[5]})
	}
	return rows
}

// TestBrokenSetUps: the table has what it promises.
func TestBrokenSetUps(t *testing.T) {
	rows, refused := brokenSetUps(t), 0
	var names []string
	for _, row := range rows {
		if !slices.Contains([]string{"nobody", "the API server", "DNS", "a CA"}, row.refusedBy) {
			t.Errorf("%s: %q refuses", row.name, row.refusedBy)
		}
		if row.refusedBy != "nobody" {
			refused++
		}
		if slices.Contains(names, row.name) || row.setUp == "" || row.cause == "" || row.cure == "" {
			t.Errorf("%+v is not told from others, or not whole", row)
		}
		names = append(names, row.name)
	}
	if len(rows) < 30 || refused < 10 {
		t.Errorf("%d rows, %d of them refused for real", len(rows), refused)
	}
}
