// Package docs_test does what the documentation says: it runs the commands of docs/*.md as a reader would, one after
// the other, and lets an API server look at the manifests. It tests nothing else.
//
// The first line of a fenced block says what is done with it:
//
//	```sh run               the block runs, after those above it on the page, in one shell
//	```sh run background    the same, beside those below it: they begin once it has printed a line "ready"
//	```sh example           its here-documents are manifests, and are applied as a server-side dry run
//	```sh not-run: REASON   nobody runs it, because of the reason
//	```yaml                 a manifest, which is applied as a server-side dry run
//	```yaml fragment        a part of a manifest, or of a file that is none
//
// A page whose commands bring their own API server says so by using chancery-standalone; all others find one on which
// Chancery works, as $KUBECONFIG.
package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"chancery.dev/internal/rig/slow"
)

// pages are the documents whose blocks are read. README.md has a test of its own.
const pages = "../../docs/*.md"

// block is a fenced block of a page.
type block struct {
	page, lang, tag, text string
	line                  int
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// manifests returns what an API server can look at.
func (b block) manifests() []string {
	switch {
	case b.lang == "yaml" && b.tag == "":
		return []string{b.text}
	case b.lang == "sh" && b.tag == "example":
		return hereDocuments(b.text)
	}
	return nil
}

// problem says what is wrong with the first line of the block.
func (b block) problem() string {
	reason, notRun := strings.CutPrefix(b.tag, "not-run:")
	switch {
	case b.lang == "yaml" && b.tag != "" && b.tag != "fragment":
		return "a manifest is tagged `fragment` or not at all"
	case b.lang != "sh", b.tag == "run", b.tag == "run background", notRun && strings.TrimSpace(reason) != "":
		return ""
	case b.tag == "example" && len(hereDocuments(b.text)) == 0:
		return "an example has a here-document for kubectl: <<'END'"
	case b.tag == "example", b.tag == "" && strings.HasPrefix(b.text, "#!"): // a program has a test of its own
		return ""
	}
	return "say whether it runs: `run`, `example`, or `not-run:` and why"
}

var hereDocument = regexp.MustCompile(`(?ms)<<'END'$\n(.*?)^END$`)

func hereDocuments(text string) []string {
	var all []string
	for _, m := range hereDocument.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// A block may stand in an item of a list: then each of its lines is indented.
var fence = regexp.MustCompile("(?ms)^( *)```(\\w+)(?: ([^\\n]+))?\\n(.*?)^ *```$")

// blocksOf returns the blocks of a page whose first line names a language.
func blocksOf(page, text string) []block {
	var all []block
	for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
		inside := strings.ReplaceAll("\n"+text[m[8]:m[9]], "\n"+text[m[2]:m[3]], "\n")[1:]
		b := block{page: page, lang: text[m[4]:m[5]], text: inside, line: strings.Count(text[:m[0]], "\n") + 1}
		if m[6] >= 0 {
			b.tag = text[m[6]:m[7]]
		}
		all = append(all, b)
	}
	return all
}

// readPages returns the blocks of each page.
func readPages(t *testing.T) map[string][]block {
	t.Helper()
	files, err := filepath.Glob(pages)
	if err != nil || len(files) < 10 {
		t.Fatal("where are the pages?", files, err)
	}
	all := map[string][]block{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		page := filepath.Base(file)
		all[page] = blocksOf(page, string(text))
	}
	return all
}

// TestBlocksAreTagged: of each command the page says whether a test runs it, or why none does.
func TestBlocksAreTagged(t *testing.T) {
	for _, blocks := range readPages(t) {
		for _, b := range blocks {
			if problem := b.problem(); problem != "" {
				t.Errorf("%s: %s", b, problem)
			}
		}
	}
}

// TestBlocksAreTaggedBites shows that each rule can fail.
func TestBlocksAreTaggedBites(t *testing.T) {
	for first, good := range map[string]bool{
		"sh": false, "sh run": true, "sh run background": true, "sh not-run: no nodes": true, "sh not-run:": false,
		"sh often": false, "sh example": false, "yaml": true, "yaml fragment": true, "yaml example": false, "json": true,
	} {
		b := blocksOf("page", "words\n\n```"+first+"\na\n```\n")
		if len(b) != 1 || (b[0].problem() == "") != good {
			t.Errorf("%s: %v %q", first, b, b[0].problem())
		}
	}
	text := "```sh example\nkubectl apply -f - <<'END'\na: b\nEND\n```\n"
	if got := blocksOf("page", text)[0]; got.problem() != "" || got.manifests()[0] != "a: b\n" {
		t.Errorf("an example: %q %q", got.problem(), got.manifests())
	}
}

// TestPagesRun runs the commands of each page.
func TestPagesRun(t *testing.T) {
	slow.Test(t, slow.Docs)
	ran := 0
	for page, blocks := range readPages(t) {
		script, own := scriptOf(blocks)
		if script == "" {
			continue
		}
		ran++
		t.Run(page, func(t *testing.T) {
			t.Parallel() // much of it is waiting
			home := newHome(t)
			if !own {
				home.up()
			}
			// What is there before the reader comes, for pages that are about something that exists.
			if before, err := os.ReadFile(filepath.Join("testdata", strings.TrimSuffix(page, ".md")+".sh")); err == nil {
				script = string(before) + script
			}
			out, err := home.shell(script)
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			} else {
				t.Log(out)
			}
		})
	}
	if ran == 0 {
		t.Error("no page has a block that runs")
	}
}

// scriptOf joins the blocks of a page that run, and tells whether they bring their own API server.
func scriptOf(blocks []block) (script string, own bool) {
	var s strings.Builder
	for _, b := range blocks {
		if b.lang != "sh" || !strings.HasPrefix(b.tag, "run") {
			continue
		}
		own = own || strings.Contains(b.text, "chancery-standalone ")
		fmt.Fprintf(&s, "echo '== %s'\n", b)
		if b.tag == "run" {
			s.WriteString(b.text)
			continue
		}
		fmt.Fprintf(&s, `( %s ) >background.log 2>&1 & background=$!
trap 'kill $background; wait $background || true' EXIT
until grep -qx ready background.log; do kill -0 $background || { cat background.log; exit 1; }; sleep 0.1; done
`, strings.TrimSpace(b.text))
	}
	return s.String(), own
}

// TestManifestsAreAccepted: an API server on which Chancery is installed takes every manifest of every page.
func TestManifestsAreAccepted(t *testing.T) {
	slow.Test(t, slow.Docs)
	home := newHome(t)
	home.up()
	home.installGatewayAPI()
	looked := 0
	for _, blocks := range readPages(t) {
		for _, b := range blocks {
			for _, manifest := range b.manifests() {
				looked++
				if out, err := home.dryRun(manifest); err != nil {
					t.Errorf("%s: %v\n%s", b, err, out)
				}
			}
		}
	}
	if looked < 20 {
		t.Errorf("found %d manifests only", looked)
	}
}
