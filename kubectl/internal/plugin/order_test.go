package plugin

import (
	"strings"
	"testing"
)

// TestSortBy: rows are sorted by any field that programs see, in kubectl's ways to write it.
func TestSortBy(t *testing.T) {
	t.Parallel()
	type row struct {
		Name    string `json:"name"`
		Expires string `json:"expires,omitempty"`
		Count   int    `json:"count,omitempty"`
	}
	for field, want := range map[string]string{
		"":           "b c a",
		"name":       "a b c",
		".name":      "a b c",
		"{.expires}": "c b a",
		".count":     "c b a",
		".metadata":  "there are count, expires, name",
	} {
		rows := []row{{"b", "2026-01-02T00:00:00Z", 9}, {"c", "", 0}, {"a", "2026-01-10T00:00:00Z", 10}}
		var got []string
		err := SortBy(rows, field)
		for _, r := range rows {
			got = append(got, r.Name)
		}
		if said := strings.Join(got, " "); err == nil && said != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v, want %s", field, said, err, want)
		}
	}
	if err := SortBy([]row(nil), "anything"); err != nil {
		t.Error(err)
	}
}
