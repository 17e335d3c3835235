package layout_test

import (
	"slices"
	"strings"
	"testing"
)

const (
	// pageBegins and pageEnds are how a page for users begins, and its last section.
	pageBegins = "You want "
	pageEnds   = "## How you see that it worked\n\n"
)

// TestPages: each page begins with what the reader wants, and ends with how he sees that it worked.
func TestPages(t *testing.T) {
	read := 0
	for name, text := range readTexts(t) {
		page, is := strings.CutPrefix(name, "docs/")
		if !is || strings.Contains(page, "/") || !strings.HasSuffix(page, ".md") || slices.Contains([]string{"README.md", "mission.md", "terms.md"}, page) {
			continue
		}
		read++
		_, body, _ := strings.Cut(text, "\n\n")
		if !strings.HasPrefix(body, pageBegins) {
			t.Errorf("%s does not begin with what the reader wants: %q …", name, pageBegins)
		}
		if last := strings.LastIndex(text, "\n## "); last < 0 || !strings.HasPrefix(text[last+1:], pageEnds) {
			t.Errorf("%s does not end with the section %q", name, pageEnds)
		}
	}
	if read < 30 {
		t.Errorf("only %d pages: are they elsewhere?", read)
	}
}
