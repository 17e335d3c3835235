package layout_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the table of layers into CONTRIBUTING.md, docs/limits.md and docs/terms.md")

// TestLinks: what a document links to is in the repository.
func TestLinks(t *testing.T) {
	all := readTexts(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, problem := range checkLinks(all, name) {
			t.Error(problem)
		}
	}
}

// TestLinksBite shows that each rule can fail.
func TestLinksBite(t *testing.T) {
	all := texts{
		"README.md":    "# A project\n\n## What it costs, measured\n\n```\n# not a heading\n```\n",
		"docs/a.md":    "# A\n",
		"api/crd.yaml": "a: b\n",
	}
	for link, want := range map[string]string{
		"../README.md":                           "",
		"../README.md#what-it-costs-measured":    "",
		"../README.md#not-a-heading":             "no heading",
		"../README.md#prices":                    "no heading",
		"#b":                                     "",
		"#c":                                     "no heading",
		"b.md":                                   "not there",
		"../api/":                                "",
		"../api/crd.yaml":                        "",
		"../api/crd.json":                        "not there",
		"https://www.rfc-editor.org/rfc/rfc8555": "",
		"https://www.rfc-editor.org/rfc/rfc8555#a": "",
	} {
		t.Run(link, func(t *testing.T) {
			all["docs/c.md"] = "# B\n\n[link](" + link + ")\n"
			got := strings.Join(checkLinks(all, "docs/c.md"), "\n")
			if (want == "") != (got == "") || !strings.Contains(got, want) {
				t.Errorf("got %q, want %q in it", got, want)
			}
		})
	}
}

// TestNoGoTemplates: a go-template that fails prints the whole object, so that the private key of a Secret ends in the
// file where its certificate was meant to be. jsonpath prints nothing for an entry that is not there.
func TestNoGoTemplates(t *testing.T) {
	for name, text := range readTexts(t) {
		if (strings.HasPrefix(name, "docs/") || name == "README.md") && strings.Contains(text, "go-template") {
			t.Errorf("%s: kubectl's go-template dumps a Secret where an entry is missing: use jsonpath", name)
		}
	}
}

// maxColumns is the longest line of prose.
const maxColumns = 120

// TestProseIsReflowed: comments and paragraphs are read in windows and diffs that are no wider. Code, tables, manifests
// and the markers of the generator are as long as they have to be.
func TestProseIsReflowed(t *testing.T) {
	all := readTexts(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, problem := range checkColumns(name, all[name]) {
			t.Error(problem)
		}
	}
}

// TestProseIsReflowedBites shows that the rule can fail, and what it leaves alone.
func TestProseIsReflowedBites(t *testing.T) {
	words := strings.Repeat("word ", 24) // 120 columns with its last blank
	for name, tc := range map[string]struct {
		file, text string
		long       bool
	}{
		"paragraph":          {"docs/a.md", words + "and", true},
		"in 120 columns":     {"docs/a.md", words, false},
		"table":              {"docs/a.md", "| " + words, false},
		"output":             {"docs/a.md", "    " + words, false},
		"item":               {"docs/a.md", "* " + words, true},
		"quoted":             {"docs/a.md", "```\n" + words + "word\n```\n", false},
		"comment":            {"a.go", "\t// " + words, true},
		"code":               {"a.go", "x := " + words, false},
		"marker":             {"a.go", "// +kubebuilder:" + words, false},
		"of others":          {"api/zz_generated.go", "// " + words, false},
		"neither of the two": {"a.txt", words + "word", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := checkColumns(tc.file, tc.text); (len(got) > 0) != tc.long {
				t.Errorf("got %q", got)
			}
		})
	}
}

var prose = map[string]*regexp.Regexp{
	".md": regexp.MustCompile(`^(  )?[^\s|<#]`),
	".go": regexp.MustCompile(`^\t*// [^\s+]`),
}

// checkColumns says which lines of prose in a file are too long.
func checkColumns(name, text string) []string {
	rule, known := prose[path.Ext(name)]
	if !known || strings.HasPrefix(path.Base(name), "zz_generated") {
		return nil
	}
	if path.Ext(name) == ".md" {
		text = fenced.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
	}
	var problems []string
	for i, line := range strings.Split(text, "\n") {
		if n := utf8.RuneCountInString(strings.TrimRight(line, " ")); n > maxColumns && rule.MatchString(line) {
			problems = append(problems, fmt.Sprintf("%s:%d: %d columns of prose, the bar is %d", name, i+1, n, maxColumns))
		}
	}
	return problems
}

var (
	fenced   = regexp.MustCompile("(?ms)^```.*?^```")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	title    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// checkLinks says which links of a document lead nowhere.
func checkLinks(all texts, name string) []string {
	if path.Ext(name) != ".md" {
		return nil
	}
	var problems []string
	for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(all[name], ""), -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		target := name
		if file != "" {
			target = path.Join(path.Dir(name), file)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(n string) bool {
			return n == target || strings.HasPrefix(n, target+"/")
		}) {
			problems = append(problems, fmt.Sprintf("%s: %s is not there", name, m[1]))
			continue
		}
		if anchor != "" && !slices.Contains(anchors(all[target]), anchor) {
			problems = append(problems, fmt.Sprintf("%s: %s: %s has no heading of that name", name, m[1], target))
		}
	}
	return problems
}

// anchors returns the names by which links reach the headings of a document.
func anchors(text string) []string {
	var all []string
	for _, m := range title.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// What stands around the table of layers in CONTRIBUTING.md.
const (
	tableBegins = "<!-- The table of internal/layout/layers_test.go: go test ./internal/layout -update writes it. -->\n\n"
	tableEnds   = "\n<!-- The end of the table. -->\n"
)

// TestContributingHasTheLayers: the table in CONTRIBUTING.md is that of the layers.
func TestContributingHasTheLayers(t *testing.T) {
	file := filepath.Join(root, "CONTRIBUTING.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegins)
	table, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatal("CONTRIBUTING.md has no place for the table of layers")
	}
	want := layerTable(rooms)
	if table == want {
		return
	}
	if !*update {
		t.Fatal("the table of layers in CONTRIBUTING.md is not that of internal/layout/layers_test.go: " +
			"go test ./internal/layout -update writes it")
	}
	if err := os.WriteFile(file, []byte(before+tableBegins+want+tableEnds+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// layerTable is the plan for people, the highest layer first.
func layerTable(plan []room) string {
	sorted := slices.Clone(plan)
	slices.SortStableFunc(sorted, func(a, b room) int {
		if a.layer != b.layer {
			return b.layer - a.layer
		}
		return strings.Compare(a.path, b.path)
	})
	out := "| layer | room | what it is for |\n|---|---|---|\n"
	for _, r := range sorted {
		why := r.why
		if r.rig {
			why += " (for tests)"
		}
		out += fmt.Sprintf("| %d | `%s` | %s |\n", r.layer, r.path, why)
	}
	return out
}

// TestDecisionsAreNumbered: each decision has a number of its own, which its heading repeats.
func TestDecisionsAreNumbered(t *testing.T) {
	number := regexp.MustCompile(`^docs/decisions/0*(\d+)-[a-z-]+\.md$`)
	all, seen := readTexts(t), map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := number.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		if other := seen[m[1]]; other != "" {
			t.Errorf("%s and %s have the same number", other, name)
		}
		seen[m[1]] = name
		if heading, _, _ := strings.Cut(all[name], "\n"); !strings.HasPrefix(heading, "# "+m[1]+". ") {
			t.Errorf("%s: the heading is %q, and does not begin with the number", name, heading)
		}
	}
	if len(seen) == 0 {
		t.Fatal("found no decision at all: wrong directory?")
	}
}
