package dashboard

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/explain"
)

const (
	// pageRows is how many rows a page of a table has, and cutAt how much of a long text a row shows.
	pageRows, cutAt = 75, 160
	// treeText, lineText and nameText are how much text a page about one certificate shows: of its chain, of each line
	// of the conclusion, and of its names.
	treeText, lineText, nameText = 120_000, 10_000, 20_000
	// branchTags is what an object of the tree takes beside its text.
	branchTags = 150
)

//go:embed page
var files embed.FS

// site is the pages.
type site struct {
	board *board
	pages map[string]*template.Template
	mux   *http.ServeMux
}

func newSite(b *board) *site {
	s := &site{board: b, pages: map[string]*template.Template{}, mux: http.NewServeMux()}
	for _, name := range []string{"certificates", "certificate", "issuers", "queue", "none"} {
		funcs := template.FuncMap{"cut": cut, "away": explain.Away, "certificate": certificatePath}
		s.pages[name] = template.Must(template.New("frame.html").Funcs(funcs).ParseFS(files, "page/frame.html", "page/"+name+".html"))
	}
	s.mux.HandleFunc("/{$}", s.certificates)
	s.mux.HandleFunc("/certificate/{namespace}/{name}", s.certificate)
	s.mux.HandleFunc("/issuers", s.issuers)
	s.mux.HandleFunc("/queue", s.queue)
	s.mux.HandleFunc("/style.css", serveFile("style.css"))
	s.mux.HandleFunc("/live.js", serveFile("live.js"))
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.show(w, http.StatusNotFound, "none", s.frame("Not found"))
	})
	return s
}

// ServeHTTP serves the pages.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func serveFile(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, "page/"+name) }
}

// frame is what all pages show.
type frame struct {
	*picture

	Title, Namespace, At, Problem string
	// Here is the entry of the navigation that the page is.
	Here string
	// News is what a screen reader is told when it has changed.
	News string
}

func (s *site) frame(title string) frame {
	p := s.board.picture(time.Now())
	return frame{
		picture: p, Title: title, Here: title, Namespace: s.board.namespace, Problem: p.problem,
		At: p.at.UTC().Format("2006-01-02 15:04:05 UTC"),
	}
}

func (s *site) show(w http.ResponseWriter, code int, page string, data any) {
	var text bytes.Buffer
	if err := s.pages[page].Execute(&text, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = text.WriteTo(w) // a browser that is gone need not be told
}

// row is a certificate in the table, with its place on the time line.
type row struct {
	explain.Row

	Mood string
	// Ends and Renews are in hundredths of the line.
	Ends, RenewsAt float64
}

// certificates shows the time line and the table of all that the filter takes.
func (s *site) certificates(w http.ResponseWriter, r *http.Request) {
	f := s.frame("Certificates")
	q := r.URL.Query()
	filter := explain.Filter{Namespace: q.Get("namespace"), Issuer: q.Get("issuer"), Class: q.Get("cause")}
	rows := explain.Rows(f.reports, filter, f.at)
	line := newTimeline(rows, f.at)
	view := struct {
		frame
		pager

		Filter explain.Filter
		Now    time.Time
		All    int
		Line   *timeline
		Rows   []row
	}{frame: f, Filter: filter, Now: f.at, All: len(f.reports), Line: line, pager: newPager(r.URL, len(rows))}
	for _, x := range rows[view.First:view.Last] {
		view.Rows = append(view.Rows, row{x, mood(x), line.at(x.Expires), line.at(x.Renews)})
	}
	s.show(w, http.StatusOK, "certificates", view)
}

// mood is the colour of a state.
func mood(r explain.Row) string {
	switch {
	case r.Cause != "" || strings.HasPrefix(r.State, "expired"):
		return "bad"
	case strings.HasPrefix(r.State, "ready"):
		return "good"
	default:
		return "waiting"
	}
}

// certificate shows one certificate in the words of status.
func (s *site) certificate(w http.ResponseWriter, r *http.Request) {
	key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	f := s.frame("Certificate " + key.String())
	crt := f.picture.certificates[key]
	if crt == nil {
		s.show(w, http.StatusNotFound, "none", f)
		return
	}
	now := time.Now()
	report := f.world.At(now).Certificate(crt)
	left, leftOfNames := space(treeText), space(nameText)
	view := struct {
		frame

		Report     explain.Report
		Names      string
		Top        branch
		Conclusion []explain.Line
		More       bool
	}{frame: f, Report: report, Conclusion: append([]explain.Line{{Label: "state", Text: report.Head(now)}}, report.Advice(now)...), Names: leftOfNames.take(strings.Join(report.Names, ", "))}
	for i := range view.Conclusion {
		leftOfLine := space(lineText)
		view.Conclusion[i].Text = leftOfLine.take(view.Conclusion[i].Text)
	}
	top := report.Node
	top.Children = nil
	view.Top = branchOf(top, &left)
	for _, n := range report.Chain() {
		if left > 0 {
			view.Top.Children = append(view.Top.Children, branchOf(n, &left))
		}
	}
	view.More = left <= 0
	view.News = report.Title() + ": " + report.State
	s.show(w, http.StatusOK, "certificate", view)
}

// space is how many bytes of text a page has room for.
type space int

// take returns as much of a text as there is room for.
func (s *space) take(text string) string {
	for i, r := range text {
		if *s <= 0 {
			return text[:i] + "…"
		}
		*s -= space(utf8.RuneLen(r))
		if strings.ContainsRune("\"'&+<>", r) {
			*s -= 4 // HTML writes five bytes
		}
	}
	return text
}

// branch is an object of the tree, in the words of status.
type branch struct {
	Title, State, Says, Outcome string
	Children                    []branch
}

// branchOf stops when no text is left.
func branchOf(n explain.Node, left *space) branch {
	*left -= branchTags
	b := branch{Title: left.take(n.Title()), State: left.take(n.State), Says: left.take(n.Says()), Outcome: n.Outcome}
	for _, child := range n.Children {
		if *left <= 0 {
			break
		}
		b.Children = append(b.Children, branchOf(child, left))
	}
	return b
}

// issuers shows the issuers, those with most certificates in trouble first.
func (s *site) issuers(w http.ResponseWriter, r *http.Request) {
	f := s.frame("Issuers")
	view := struct {
		frame
		pager

		Rows   []issuerRow
		Unread bool
	}{frame: f, pager: newPager(r.URL, len(f.picture.issuers)), Unread: f.unread["ClusterIssuer"] || f.unread["Issuer"]}
	view.Rows = f.picture.issuers[view.First:view.Last]
	s.show(w, http.StatusOK, "issuers", view)
}

// queue shows the Challenges under way, in the order of the scheduler's states, the oldest first.
func (s *site) queue(w http.ResponseWriter, r *http.Request) {
	f := s.frame("Queue")
	view := struct {
		frame
		pager

		Rows   []challengeRow
		Unread bool
	}{frame: f, pager: newPager(r.URL, len(f.picture.queue)), Unread: f.unread["Challenge"]}
	view.Rows = f.picture.queue[view.First:view.Last]
	s.show(w, http.StatusOK, "queue", view)
}

// pager is the part of a table that a page shows.
type pager struct {
	Number, Pages, Total, First, Last int
	Previous, Next                    string
}

func newPager(at *url.URL, total int) pager {
	p := pager{Pages: max(1, (total+pageRows-1)/pageRows), Total: total}
	number, _ := strconv.Atoi(at.Query().Get("page")) // none, or no number, is the first page
	p.Number = min(max(number, 1), p.Pages)
	p.First, p.Last = (p.Number-1)*pageRows, min(p.Number*pageRows, total)
	link := func(number int) string {
		q := at.Query()
		q.Set("page", strconv.Itoa(number))
		return at.Path + "?" + q.Encode()
	}
	if p.Number > 1 {
		p.Previous = link(p.Number - 1)
	}
	if p.Number < p.Pages {
		p.Next = link(p.Number + 1)
	}
	return p
}

func certificatePath(namespace, name string) string {
	return "/certificate/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

func cut(text string) string {
	if runes := []rune(text); len(runes) > cutAt {
		return string(runes[:cutAt-1]) + "…"
	}
	return text
}
