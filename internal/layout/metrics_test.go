package layout_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A metric of ours: in code as a string of its own, in the document between backquotes, or in a query.
var (
	metricInCode = regexp.MustCompile(`"((?:certmanager|chancery)_[a-z0-9_]+)"`)
	metricInText = regexp.MustCompile(`\b(?:certmanager|chancery)_[a-z0-9_]+`)
)

// TestMetricsAreDocumented: docs/metrics.md has every metric that is exported, and no other one.
func TestMetricsAreDocumented(t *testing.T) {
	exported, documented := map[string]bool{}, map[string]bool{}
	all := readTexts(t)
	for name, text := range all {
		if !strings.HasPrefix(name, "internal/") || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, found := range metricInCode.FindAllStringSubmatch(text, -1) {
			exported[found[1]] = true
		}
	}
	for _, found := range metricInText.FindAllString(all["docs/metrics.md"], -1) {
		documented[found] = true
	}
	if len(exported) < 15 {
		t.Fatalf("only %d metrics were found in code: %v", len(exported), exported)
	}
	for _, name := range slices.Sorted(maps.Keys(exported)) {
		if !documented[name] {
			t.Errorf("docs/metrics.md does not have %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if !exported[name] {
			t.Errorf("docs/metrics.md has %s, which nothing exports", name)
		}
	}
}
