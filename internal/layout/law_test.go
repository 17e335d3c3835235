package layout_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// texts holds the files that people wrote, by path below the repository.
type texts map[string]string

// law is what code and documents may cite.
type law struct {
	// sections of docs/spec by number or by letter ("2.1", "B"), with their items. An item of a list that has a
	// heading is also there with the first word of that heading: "4" and "policy 4".
	sections map[string]map[string]bool
	// rules of docs/mission.md and decisions of docs/decisions, by number.
	rules, decisions map[string]bool
	// pages are the paths of all documents, each with a slash in front.
	pages []string
	// paths are those of all files and directories.
	paths map[string]bool
}

// TestCitations: what code and documents cite is there.
func TestCitations(t *testing.T) {
	all := readTexts(t)
	l := readLaw(all)
	if len(l.sections) < 50 || len(l.rules) != 8 || len(l.decisions) < 5 {
		t.Fatalf("%d sections of the spec, %d mission rules, %d decisions: are they where they were?",
			len(l.sections), len(l.rules), len(l.decisions))
	}
	cited := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "internal/layout/") {
			continue // has what is not there in its own tests
		}
		problems, n := l.check(name, all[name])
		cited += n
		for _, problem := range problems {
			t.Errorf("%s: %s", name, problem)
		}
	}
	if cited < 200 {
		t.Errorf("found %d citations only: are they written otherwise?", cited)
	}
}

// TestMissionRulesHaveTests: each rule has a test that names it.
func TestMissionRulesHaveTests(t *testing.T) {
	all := readTexts(t)
	named := map[string]bool{}
	for name, text := range all {
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func TestRule(\d+)`).FindAllStringSubmatch(text, -1) {
				named[m[1]] = true
			}
		}
	}
	for rule := range readLaw(all).rules {
		if !named[rule] {
			t.Errorf("no test is called TestRule%s…", rule)
		}
	}
}

// TestCitationsBite shows that each rule can fail.
func TestCitationsBite(t *testing.T) {
	l := readLaw(texts{
		"docs/spec/02-a.md": "# 2. A\n\n## 2.1 B\n\n1. one\n2. two\n\n### Policy chain\n\n1. one\n9. nine\n\n## 2.2 C\n\n" +
			"* a. first\n* b. second\n\n```\n7. not an item\n```\n",
		"docs/spec/10-b.md":             "# Appendix A – names\n",
		"docs/mission.md":               "# Rules\n\n1. one\n2. two\n",
		"docs/decisions/0003-layers.md": "# 3. Layers\n",
	})
	for name, tc := range map[string]struct{ file, text, want string }{
		"section":         {"a.go", "// as spec §2.1 has it", ""},
		"chapter":         {"a.go", "// (spec §2)", ""},
		"no section":      {"a.go", "// (spec §2.7)", "§2.7"},
		"over two lines":  {"a.go", "// as the spec\n// (spec\n// §2.7) has it", "§2.7"},
		"in a row":        {"a.go", "// spec §2.1, §2.2 and §2.9", "§2.9"},
		"two":             {"a.go", "// spec §2.1 to §2.2, and spec §2.2 b.", ""},
		"item":            {"a.go", "// spec §2.1, 2", ""},
		"step":            {"a.go", "// spec §2.1, step 2, says", ""},
		"no item":         {"a.go", "// spec §2.1, 7", "§2.1, 7"},
		"items":           {"a.go", "// spec §2.1, 1 to 2", ""},
		"too many items":  {"a.go", "// spec §2.1, steps 1 to 3", "§2.1, 3"},
		"of a list":       {"a.go", "// spec §2.1, policy 9", ""},
		"not of the list": {"a.go", "// spec §2.1, policy 2", "§2.1, policy 2"},
		"letter":          {"a.go", "// spec §2.2 b", ""},
		"no letter":       {"a.go", "// spec §2.2 c", "§2.2 c"},
		"in a fence":      {"a.go", "// spec §2.2, 7", "§2.2, 7"},
		"article":         {"a.go", "// by spec §2.1 a Secret is", ""},
		"half a range":    {"a.go", "// spec §2.1-2.2", "§2.1"},
		"appendix":        {"a.go", "// spec appendix A", ""},
		"no appendix":     {"a.go", "// spec appendix C", "appendix C"},
		"RFC":             {"a.go", "// RFC 8555 §7.1", ""},
		"in the spec":     {"docs/spec/02-a.md", "as in §2.9", "§2.9"},
		"rule":            {"a.go", "// mission rules 1 and 2", ""},
		"no rule":         {"a.go", "// Mission rule 9, by the letter", "mission rule 9"},
		"no last rule":    {"a.go", "// mission rules 1 to 3", "mission rule 3"},
		"decision":        {"docs/a.md", "see decision 3", ""},
		"no decision":     {"docs/a.md", "see decision 4", "decision 4"},
		"page":            {"docs/a.md", "see layers in mission.md", ""},
		"no page":         {"a.go", "// as design.md has it", "design.md"},
		"page of another": {"a.go", "// as README.md has it", "README.md"},
		"path":            {"docs/a.md", "see `docs/spec/` and `docs/mission.md`", ""},
		"no path":         {"docs/a.md", "see `docs/mission`", "docs/mission"},
		"issue":           {"a.go", "// (issue 4)", "issue 4"},
	} {
		t.Run(name, func(t *testing.T) {
			problems, _ := l.check(tc.file, tc.text)
			got := strings.Join(problems, "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q in it", got, tc.want)
			}
		})
	}
}

// The parts of a citation.
var (
	newLine   = regexp.MustCompile(`\s*\n[ \t]*(?://|#+|\*|>)?[ \t]*`)
	ofSpec    = regexp.MustCompile(`\b[Ss]pec,? ((?:§|[Aa]ppendix ).*)`)
	section   = regexp.MustCompile(`^§(\d+(?:\.\d+)*)(-\d)?`)
	appendix  = regexp.MustCompile(`^[Aa]ppendix ([A-Z])\b`)
	numbered  = regexp.MustCompile(`^, (?:steps? )?((?:policy )?)(\d+)\b(?: (?:to|and) (\d+)\b)?`)
	lettered  = regexp.MustCompile(`^ ([a-z])\b(?: (?:to|and) ([a-z])\b)?`)
	more      = regexp.MustCompile(`^(?:, and|,| and| or| to) (§.*)`)
	ofMission = regexp.MustCompile(`\b[Mm]ission rules? (\d+)((?:, \d+)*)(?: (?:and|to) (\d+))?`)
	decision  = regexp.MustCompile(`\b[Dd]ecisions? (\d+)\b`)
	page      = regexp.MustCompile(`[\w./-]*\b[\w-]+\.md\b`)
	inside    = regexp.MustCompile("`((?:internal|cmd|api|examples|standalone|dnsproviders|kubectl|e2e|docs|tools)/[\\w./-]+)`")
	issue     = regexp.MustCompile(`\b[Ii]ssues? #?\d+\b`)
)

// check returns what a text cites that is not there, and how much it cites.
func (l law) check(name, text string) (problems []string, cited int) {
	missing := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf(format, args...)+" is not there")
	}
	text = newLine.ReplaceAllString(text, " ")
	for rest := text; ; {
		m := ofSpec.FindStringSubmatch(rest)
		if m == nil {
			break
		}
		cited++
		rest = l.checkSpec(m[1], missing)
	}
	if strings.HasPrefix(name, "docs/spec/") {
		for _, m := range regexp.MustCompile(`§\d.*`).FindAllString(strings.ReplaceAll(text, "§", "\n§"), -1) {
			l.checkSpec(m, missing)
		}
	}
	for _, m := range ofMission.FindAllStringSubmatch(text, -1) {
		cited++
		for _, rule := range slices.Concat(m[1:2], regexp.MustCompile(`\d+`).FindAllString(m[2], -1), m[3:]) {
			if rule != "" && !l.rules[rule] {
				missing("mission rule %s", rule)
			}
		}
	}
	for _, m := range decision.FindAllStringSubmatch(text, -1) {
		if !l.decisions[m[1]] {
			missing("%s", m[0])
		}
	}
	for _, m := range page.FindAllString(text, -1) {
		m = strings.TrimLeft(m, "./")
		if !slices.ContainsFunc(l.pages, func(p string) bool { return strings.HasSuffix(p, "/"+m) }) {
			missing("%s", m)
		}
	}
	if path.Ext(name) == ".md" {
		for _, m := range inside.FindAllStringSubmatch(text, -1) {
			if !l.paths[strings.TrimSuffix(m[1], "/")] {
				missing("%s", m[1])
			}
		}
	}
	for _, m := range issue.FindAllString(text, -1) {
		missing("%s (nobody who has the repository can read it: say what it says)", m)
	}
	return problems, cited
}

// checkSpec checks the citations that a text begins with, and returns the rest of it.
func (l law) checkSpec(text string, missing func(string, ...any)) string {
	if m := appendix.FindStringSubmatch(text); m != nil {
		if l.sections[m[1]] == nil {
			missing("spec appendix %s", m[1])
		}
		return text[len(m[0]):]
	}
	for {
		m := section.FindStringSubmatch(text)
		if m == nil {
			return text[1:]
		}
		text = text[len(m[0]):]
		items := l.sections[m[1]]
		if items == nil {
			missing("spec §%s", m[1])
		}
		if m[2] != "" {
			missing("spec §%s%s", m[1], m[2])
		}
		item := func(format string, which ...string) {
			for _, w := range which {
				if w != "" && items != nil && !items[w] {
					missing(format, m[1], w)
				}
			}
		}
		if n := numbered.FindStringSubmatch(text); n != nil {
			last := n[3]
			if last != "" {
				last = n[1] + last
			}
			item("spec §%s, %s", n[1]+n[2], last)
			text = text[len(n[0]):]
		} else if n := lettered.FindStringSubmatch(text); n != nil && items["a"] {
			item("spec §%s %s", n[1], n[2])
			text = text[len(n[0]):]
		}
		next := more.FindStringSubmatch(text)
		if next == nil {
			return text
		}
		text = next[1]
	}
}

var (
	heading  = regexp.MustCompile(`^(#+) (?:(\d+(?:\.\d+)*)\.? |Appendix ([A-Z])\b)?(\w*)`)
	itemLine = regexp.MustCompile(`^ *(?:\* )?(\d+|[a-z])\. `)
)

func readLaw(all texts) law {
	l := law{sections: map[string]map[string]bool{}, rules: map[string]bool{}, decisions: map[string]bool{}, paths: map[string]bool{}}
	for name, text := range all {
		for p := name; p != "."; p = path.Dir(p) {
			l.paths[p] = true
		}
		if path.Ext(name) == ".md" {
			l.pages = append(l.pages, "/"+name)
		}
		switch {
		case strings.HasPrefix(name, "docs/spec/"):
			l.readChapter(text)
		case name == "docs/mission.md":
			for _, m := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(text, -1) {
				l.rules[m[1]] = true
			}
		case strings.HasPrefix(name, "docs/decisions/"):
			for _, m := range regexp.MustCompile(`^# (\d+)\. `).FindAllStringSubmatch(text, -1) {
				l.decisions[m[1]] = true
			}
		}
	}
	return l
}

func (l law) readChapter(text string) {
	items, list := map[string]bool{}, ""
	text = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		if m := heading.FindStringSubmatch(line); m != nil {
			list = strings.ToLower(m[4]) + " "
			if number := m[2] + m[3]; number != "" {
				items, list = map[string]bool{}, ""
				l.sections[number] = items
			}
		} else if m := itemLine.FindStringSubmatch(line); m != nil {
			items[m[1]], items[list+m[1]] = true, true
		}
	}
}

// readTexts reads what people wrote: code, documents, configuration, test data.
func readTexts(t *testing.T) texts {
	t.Helper()
	all := texts{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if slices.Contains([]string{".git", ".cache", "bin"}, rel) {
				return fs.SkipDir
			}
			return nil
		}
		if slices.Contains([]string{"go.sum", "go.mod", "LICENSE"}, path.Base(rel)) || !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(name)
		if err == nil && path.Ext(rel) == ".png" {
			content = nil // a document may link to it
		}
		if err != nil || bytes.IndexByte(content, 0) >= 0 {
			return err
		}
		all[rel] = string(content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
