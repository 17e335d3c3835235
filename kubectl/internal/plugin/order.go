package plugin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// SortBy sorts rows by a field that they have for programs, as kubectl does: name, .name and {.name} are the same.
// Rows without the field come first. An empty field leaves the order as it is.
func SortBy[T any](rows []T, field string) error {
	name := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(field, "{"), "}"), ".")
	if name == "" || len(rows) == 0 {
		return nil
	}
	type keyed struct {
		key any
		row T
	}
	all, there := make([]keyed, len(rows)), map[string]bool{}
	for i, row := range rows {
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			return err
		}
		all[i] = keyed{fields[name], row}
		for f := range fields {
			there[f] = true
		}
	}
	if !there[name] {
		return fmt.Errorf("--sort-by: no row has the field %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(there)), ", "))
	}
	slices.SortStableFunc(all, func(x, y keyed) int { return compare(x.key, y.key) })
	for i := range all {
		rows[i] = all[i].row
	}
	return nil
}

// compare compares two values of JSON: times are texts that sort by time.
func compare(x, y any) int {
	if a, is := x.(float64); is {
		b, _ := y.(float64) // a field that is missing is a zero
		return cmp.Compare(a, b)
	}
	if b, is := y.(float64); is {
		return cmp.Compare(0, b)
	}
	return cmp.Compare(text(x), text(y))
}

func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
