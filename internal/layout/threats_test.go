package layout_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThreatModelNamesTests: each test that docs/threat-model.md names is there.
func TestThreatModelNamesTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	names := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(page), -1)
	if len(names) == 0 {
		t.Error("the page names no test")
	}
	for _, name := range names {
		if !tests[name[1]] {
			t.Errorf("there is no %s", name[1])
		}
	}
}

// testNames are the names of the test functions of all modules.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for name := range functionsOfTests(t, "Test") {
		names[name] = true
	}
	return names
}

// functionsOfTests counts the functions of tests whose names begin with a word, in all modules.
func functionsOfTests(t *testing.T, word string) map[string]int {
	t.Helper()
	names, function := map[string]int{}, regexp.MustCompile(`(?m)^func (`+word+`[A-Za-z0-9_]+)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range function.FindAllSubmatch(text, -1) {
			names[string(name[1])]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
