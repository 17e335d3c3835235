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
)

var update = flag.Bool("update", false, "write the pictures of docs/dashboard.md")

// widths are those of a telephone, a tablet and a desk: all three by night, and one otherwise.
func widths() []int {
	if os.Getenv("CHANCERY_NIGHTLY") != "" {
		return []int{360, 800, 1280}
	}
	return []int{800}
}

// TestInABrowser: each page in Chromium has no error in the console, fits its width, leads nowhere that does not exist,
// and tells a screen reader the names of all that can be used.
func TestInABrowser(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	c := cluster(t, scene(t)...)
	opened := serve(t, c, "")
	b.Size(1280, 900, false)
	b.Open(opened)
	b.Loaded() // the page behind the one that opens
	home := strings.SplitAfterN(opened, "/", 4)
	origin := strings.TrimSuffix(strings.Join(home[:3], ""), "/")
	for _, width := range widths() {
		b.Size(width, 900, false)
		todo, seen, others := []string{origin + "/"}, map[string]bool{}, 0
		for len(todo) > 0 {
			at := todo[0]
			todo = todo[1:]
			one := strings.Contains(at, "/certificate/") && !strings.HasSuffix(at, "/shop/web")
			if seen[at] || one && others == 3 { // they are all alike
				continue
			}
			seen[at] = true
			if one {
				others++
			}
			b.Open(at)
			inspect(t, b, at, width)
			var links []string
			b.Eval(`[...document.querySelectorAll("a[href]")].map(a => a.href.split("#")[0])`, &links)
			for _, link := range links {
				if !strings.HasPrefix(link, origin+"/") {
					t.Errorf("%s leads to %s", at, link)
				} else if !slices.Contains(todo, link) {
					todo = append(todo, link)
				}
			}
		}
		for _, path := range []string{"/", "/issuers", "/queue", "/certificate/shop/web"} {
			if !seen[origin+path] {
				t.Errorf("no link leads to %s", path)
			}
		}
	}
	if *update {
		pictures(t, b, origin)
	}
}

// inspect looks at one page.
func inspect(t *testing.T, b *browser.Browser, at string, width int) {
	t.Helper()
	if errors := b.Errors(); len(errors) > 0 {
		t.Errorf("%s: errors in the console: %v", at, errors)
	}
	var page struct {
		Title, Heading       string
		Status, Width, Heads int
	}
	b.Eval(`({title: document.title, heading: document.querySelector("main h1").textContent,
		status: performance.getEntriesByType("navigation")[0].responseStatus, width: document.documentElement.scrollWidth,
		heads: [...document.querySelectorAll("table")].filter(t => !t.querySelector("thead th[scope=col]") ||
			t.querySelector("tbody tr") && !t.querySelector("tbody th[scope=row]")).length})`, &page)
	if page.Status != 200 || page.Heads > 0 || page.Width > width || !strings.HasPrefix(page.Title, page.Heading) && !strings.HasPrefix(page.Heading, "Certificate ") {
		t.Errorf("%s at a width of %d: %+v", at, width, page)
	}
	elements := b.Accessible()
	for _, e := range elements {
		named := []string{"link", "button", "textbox", "combobox", "searchbox", "MenuListPopup", "region", "navigation", "search", "heading", "columnheader", "rowheader", "image", "img"}
		if e.Name == "" && slices.Contains(named, e.Role) && e.Role != "MenuListPopup" {
			t.Errorf("%s: a screen reader is told no name of a %s", at, e.Role)
		}
	}
	for _, role := range []string{"main", "navigation", "banner", "contentinfo", "heading"} {
		if !slices.ContainsFunc(elements, func(e browser.Element) bool { return e.Role == role }) {
			t.Errorf("%s has no %s: %v", at, role, elements)
		}
	}
}

// pictures writes those of the documentation.
func pictures(t *testing.T, b *browser.Browser, origin string) {
	t.Helper()
	for name, shot := range map[string]struct {
		path          string
		width, height int
		dark          bool
	}{
		"dashboard-certificates.png": {"/", 1000, 760, false},
		"dashboard-certificate.png":  {"/certificate/shop/web", 1000, 620, true},
	} {
		b.Size(shot.width, shot.height, shot.dark)
		b.Open(origin + shot.path)
		picture := b.Picture()
		if _, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || len(picture) > 100<<10 {
			t.Errorf("%s: %v, %d bytes", name, err, len(picture))
		}
		if err := os.WriteFile(filepath.Join("..", "..", "docs", name), picture, 0o644); err != nil {
			t.Fatal(err)
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
		ended <- Serve(ctx, Options{Client: c, Namespace: namespace, Address: "127.0.0.1:0"}, func(at string) { url <- at })
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
