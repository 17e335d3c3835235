package dashboard

import (
	"bytes"
	"context"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chancery.dev/internal/rig/browser"
	"chancery.dev/internal/rig/slow"
)

// docs is where the pictures are.
const docs = "../../docs"

var update = flag.Bool("update", false, "write the pictures of docs/dashboard.md")

// look is a window of the browser.
type look struct {
	width int
	dark  bool
}

// looks are those of a telephone, a tablet and a desk, in both colours: all by night, and one otherwise.
func looks(otherwise look) (all []look) {
	if os.Getenv("CHANCERY_NIGHTLY") == "" {
		return []look{otherwise}
	}
	for _, width := range []int{420, 1024, 1440} {
		all = append(all, look{width, false}, look{width, true})
	}
	return all
}

// TestInABrowser: each page in Chromium has no error in the console, fits its width, breaks no word, leads nowhere that
// does not exist, and tells a screen reader the names of all that can be used.
func TestInABrowser(t *testing.T) {
	slow.Test(t, slow.Docs)
	t.Parallel()
	b := browser.Start(t)
	opened := serve(t, cluster(t, append(scene(t), podScene()...)...), "")
	b.Size(1280, 900, false)
	b.Open(opened)
	b.Loaded() // the page behind the one that opens
	origin, _, _ := strings.Cut(opened, opening)
	for i, look := range looks(look{420, false}) {
		b.Size(look.width, 900, look.dark)
		todo, seen, others := slices.Clone(kinds(origin)), map[string]bool{}, 0
		for len(todo) > 0 {
			at := todo[0]
			todo = todo[1:]
			one := !slices.Contains(kinds(origin), at) // of many that are alike
			if seen[at] || one && others == 3 {
				continue
			}
			seen[at] = true
			if one {
				others++
			}
			b.Open(at)
			inspect(t, b, at, look.width)
			var links []string
			b.Eval(`[...document.querySelectorAll("a[href]")].map(a => a.href.split("#")[0])`, &links)
			for _, link := range links {
				if !strings.HasPrefix(link, origin+"/") {
					t.Errorf("%s leads to %s", at, link)
				} else if i == 0 && !slices.Contains(todo, link) {
					todo = append(todo, link)
				}
			}
		}
	}
}

// kinds are pages of each kind.
func kinds(origin string) (all []string) {
	for _, path := range []string{"/", "/?q=none-such", "/issuers", "/queue", "/pods", "/certificate/shop/web", "/certificate/bank/api"} {
		all = append(all, origin+path)
	}
	return all
}

// TestAxe: axe-core finds nothing on any kind of page that keeps people from using it.
func TestAxe(t *testing.T) {
	slow.Test(t, slow.Docs)
	t.Parallel()
	axe, b := browser.Axe(t), browser.Start(t)
	opened, empty := serve(t, cluster(t, append(scene(t), podScene()...)...), ""), serve(t, cluster(t), "shop")
	origin, _, _ := strings.Cut(opened, opening)
	nothing, _, _ := strings.Cut(empty, opening)
	for _, at := range []string{opened, empty} {
		b.Open(at)
		b.Loaded()
	}
	for _, look := range looks(look{1440, true}) {
		b.Size(look.width, 900, look.dark)
		for _, at := range append(kinds(origin), nothing+"/") {
			b.Open(at)
			for _, violation := range b.Violations(axe) {
				t.Errorf("%s at %+v: %s", at, look, violation)
			}
		}
	}
	b.Open(origin + "/")
	b.Eval(`document.querySelector("label").remove(), document.getElementById("q").placeholder = ""`, nil)
	if found := b.Violations(axe); len(found) != 1 || !strings.HasPrefix(found[0], "label: ") {
		t.Errorf("axe-core does not miss a label: %q", found)
	}
}

// brokenWords finds words of which a part is on the next line. A line may end after a hyphen, or a dot of a long name.
const brokenWords = `function brokenWords() {
	const found = [], nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
	while (nodes.nextNode()) {
		const text = nodes.currentNode, around = text.parentElement;
		if (around.closest(".unseen, .skip, script, details:not([open]), thead")) continue;
		for (const word of text.data.matchAll(/[^\s\-\/?&=]+/g)) {
			range.setStart(text, word.index);
			range.setEnd(text, word.index + word[0].length);
			if (new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1) found.push(word[0]);
		}
	}
	return found;
}`

// inspect looks at one page.
func inspect(t *testing.T, b *browser.Browser, at string, width int) {
	t.Helper()
	if errors := b.Errors(); len(errors) > 0 {
		t.Errorf("%s: errors in the console: %v", at, errors)
	}
	b.Eval(brokenWords, nil)
	var page struct {
		Title, Heading       string
		Status, Width, Heads int
		Broken, Outside      []string
	}
	b.Eval(`({title: document.title, heading: document.querySelector("main h1").textContent,
		status: performance.getEntriesByType("navigation")[0].responseStatus, width: document.documentElement.scrollWidth,
		heads: [...document.querySelectorAll("table")].filter(t => !t.querySelector("thead th[scope=col]") ||
			t.querySelector("tbody tr") && !t.querySelector("tbody th[scope=row]")).length,
		broken: brokenWords(), outside: [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 &&
			!e.closest(".unseen, .skip, details:not([open])")).map(e => e.outerHTML.slice(0, 100))})`, &page)
	if len(page.Broken)+len(page.Outside) > 0 || page.Status != 200 || page.Heads > 0 || page.Width > width || !strings.HasPrefix(page.Title, page.Heading) && !strings.HasPrefix(page.Heading, "Certificate ") {
		t.Errorf("%s at a width of %d: %+v", at, width, page)
	}
	elements := b.Accessible()
	for _, e := range elements {
		named := []string{"link", "button", "textbox", "combobox", "searchbox", "MenuListPopup", "region", "navigation", "search", "heading", "columnheader", "rowheader", "image", "img"}
		if e.Name == "" && slices.Contains(named, e.Role) && e.Role != "MenuListPopup" {
			t.Errorf("%s: a screen reader is told no name of a %s", at, e.Role)
		}
	}
	for _, role := range []string{"main", "navigation", "banner", "heading"} {
		if !slices.ContainsFunc(elements, func(e browser.Element) bool { return e.Role == role }) {
			t.Errorf("%s has no %s: %v", at, role, elements)
		}
	}
}

// shot is a picture of the documentation.
type shot struct {
	look

	path   string
	height int
}

func pictures() map[string]shot {
	return map[string]shot{
		"dashboard-1440.png": {look{1440, false}, "/", 780},
		"dashboard-1024.png": {look{1024, true}, "/certificate/shop/web", 768},
		"dashboard-420.png":  {look{420, false}, "/", 900},
	}
}

// TestPictures writes those of the documentation, with -update. They have to be small, and of the sizes that the page
// is judged at.
func TestPictures(t *testing.T) {
	t.Parallel()
	if *update {
		b := browser.Start(t)
		opened := serve(t, cluster(t, scene(t)...), "")
		origin, _, _ := strings.Cut(opened, opening)
		b.Open(opened)
		b.Loaded()
		for name, shot := range pictures() {
			b.Size(shot.width, shot.height, shot.dark)
			b.Open(origin + shot.path)
			if err := os.WriteFile(filepath.Join(docs, name), b.Picture(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, shot := range pictures() {
		picture, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			t.Fatal(err)
		}
		if size, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || len(picture) > 200_000 || size.Width != shot.width {
			t.Errorf("%s: %v, %d bytes, %d pixels wide", name, err, len(picture), size.Width)
		}
	}
}

// TestByKeyboard: the first key leads to the content, and a link opens with Enter; the page follows changes by itself
// and tells a screen reader.
func TestByKeyboard(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	c := cluster(t, scene(t)...)
	opened := serve(t, c, "")
	b.Open(opened)
	b.Loaded()
	b.Press("Tab")
	var focus string
	b.Eval(`document.activeElement.textContent`, &focus)
	if focus != "To the content" {
		t.Errorf("the first key leads to %q", focus)
	}
	b.Press("Enter")
	b.Eval(`document.activeElement.id`, &focus)
	if focus != "main" {
		t.Errorf("the link to the content leads to %q", focus)
	}
	b.Eval(`document.querySelector("tbody th a[href$='/shop/web']").focus()`, nil)
	b.Press("Enter")
	b.Loaded()
	heals(t, c)
	var news string
	b.Eval(`new Promise(done => { const look = () => {
		const text = document.getElementById("news").textContent;
		if (text) done(text); else setTimeout(look, 50);
	}; look(); })`, &news)
	if news != "Certificate shop/web: ready" {
		t.Errorf("a screen reader is told %q", news)
	}
	if errors := b.Errors(); len(errors) > 0 {
		t.Error(errors)
	}
}

// serve serves the page of a cluster until the test ends, and returns the address that works once.
func serve(t *testing.T, c *counted, namespace string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	url, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, Options{Client: c, Cluster: "prod-eu-1", Namespace: namespace, Address: "127.0.0.1:0"}, func(at string) { url <- at })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case at := <-url:
		return at
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return ""
	}
}
