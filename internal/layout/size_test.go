package layout_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sizes are how many lines a module has at most, without tests, generated code and internal/rig, in hundreds, and what
// the last raise was for. Who adds lines first looks for those that become unnecessary; a raise says its reason here,
// and a module that has become smaller by two hundred lines gets its new size.
var sizes = map[string]struct {
	hundreds int
	why      string
}{
	".":             {659, "Kubernetes 1.35 and 1.36 have the kinds for Pods as v1beta1, and kubelets of 1.35 send no PKCS#10 request"},
	"deploy/images": {4, "as it was at the first count"},
	"dnsproviders":  {29, "as it was at the first count"},
	"e2e":           {14, "as it was at the first count"},
	"kubectl":       {119, "list and support-bundle have Pods with certificates of their own"},
	"standalone":    {100, "the demo shows a Pod with a certificate, and has the part of a kubelet for it"},
}

// checkSizes compares the lines of each module with the table.
func checkSizes(modules []string, sources map[string][]source) []string {
	lines := map[string]int{}
	for dir, files := range sources {
		if dir == "internal/rig" || strings.HasPrefix(dir, "internal/rig/") {
			continue
		}
		for _, s := range files {
			if !s.test {
				lines[moduleOf(modules, dir)] += s.lines
			}
		}
	}
	var problems []string
	for _, m := range slices.Sorted(maps.Keys(lines)) {
		row := sizes[m]
		switch hundreds := (lines[m] + 99) / 100; {
		case hundreds > row.hundreds:
			problems = append(problems, fmt.Sprintf("module %s has %d lines, and %d at most: what does the change make unnecessary? A raise says its reason in internal/layout/size_test.go",
				m, lines[m], 100*row.hundreds))
		case hundreds < row.hundreds-1:
			problems = append(problems, fmt.Sprintf("module %s has %d lines: write %d hundreds in internal/layout/size_test.go, so that they stay away", m, lines[m], hundreds))
		case row.why == "":
			problems = append(problems, fmt.Sprintf("module %s: its row says no reason", m))
		}
	}
	return problems
}

// moduleOf is the folder of the module that a folder belongs to: the longest that it lies in.
func moduleOf(modules []string, dir string) string {
	in := "."
	for _, m := range modules {
		if len(m) > len(in) && (dir == m || strings.HasPrefix(dir, m+"/")) {
			in = m
		}
	}
	return in
}

// moduleFolders are the folders of all modules.
func moduleFolders(t *testing.T) []string {
	t.Helper()
	var folders []string
	for dir := range readSources(t) {
		for ; !slices.Contains(folders, dir); dir = path.Dir(dir) {
			if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil {
				folders = append(folders, dir)
			}
			if dir == "." {
				break
			}
		}
	}
	return folders
}

// TestSize: no module grows without a reason.
func TestSize(t *testing.T) {
	for _, problem := range checkSizes(moduleFolders(t), readSources(t)) {
		t.Error(problem)
	}
}

// TestSizeBites shows that each rule can fail.
func TestSizeBites(t *testing.T) {
	of := func(dir string, lines int) map[string][]source {
		return map[string][]source{dir: {{lines: lines}, {lines: 1e6, test: true}}, "internal/rig/a": {{lines: 1e6}}}
	}
	for name, tc := range map[string]struct {
		sources map[string][]source
		want    string
	}{
		"more":    {of("kubectl/internal/a", 100*sizes["kubectl"].hundreds+1), "module kubectl has"},
		"as many": {of("kubectl/internal/a", 100*sizes["kubectl"].hundreds), ""},
		"fewer":   {of("kubectl", 100*sizes["kubectl"].hundreds-200), "so that they stay away"},
		"new":     {of("tools/a", 1), "module tools has 1 lines, and 0 at most"},
	} {
		problems := strings.Join(checkSizes([]string{".", "kubectl", "tools"}, tc.sources), "\n")
		if (tc.want == "") != (problems == "") || !strings.Contains(problems, tc.want) {
			t.Errorf("%s: got %q, want %q in it", name, problems, tc.want)
		}
	}
}
