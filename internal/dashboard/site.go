package dashboard

import (
	"bytes"
	"cmp"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"chancery.dev/internal/clientside/explain"
)

const (
	// pageRows is how many rows a page of a table has. CauseText and hostText are how much of its cause and of its hosts
	// a row shows, in bytes of HTML. Of a group of Certificates it shows so much of all causes together, otherText of
	// each but the first, and cureText of what to do.
	pageRows, causeText, hostText, otherText, cureText = 75, 700, 150, 200, 200
	// nameMost is how long the name of an object with its namespace and kind may be, and shortText how much is shown of
	// what is a word.
	nameMost, shortText = 350, 60
	// treeText, lineText and nameText are how much text a page about one certificate shows: of its chain and history, of
	// each line of the conclusion, and of its names.
	treeText, lineText, nameText = 110_000, 10_000, 20_000
	// branchTags is what an object of the tree, or a line of the history, takes beside its text.
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
	funcs := template.FuncMap{
		"cut": cut, "soft": soft, "because": because, "issuer": issuer, "day": day10, "far": far, "stamp": stamp, "plural": plural, "hosts": hosts, "cure": cure, "name": longest, "short": short, "unbroken": unbroken, "renewal": renewal, "at": at,
		"certificate": certificatePath, "mark": mark, "find": find, "outcome": outcome,
	}
	for _, name := range []string{"certificates", "certificate", "issuers", "queue", "pods", "none"} {
		s.pages[name] = template.Must(template.New("frame.html").Funcs(funcs).ParseFS(files, "page/frame.html", "page/"+name+".html"))
	}
	s.mux.HandleFunc("/{$}", s.certificates)
	s.mux.HandleFunc("/certificate/{namespace}/{name}", s.certificate)
	s.mux.HandleFunc("/issuers", s.issuers)
	s.mux.HandleFunc("/queue", s.queue)
	s.mux.HandleFunc("/pods", s.pods)
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

	Title, Cluster, Namespace, Problem string
	// Seen is the time of the data. Now is the time that words such as "in 3 days" are relative to.
	Seen, Now time.Time
	// Here is the page's own entry in the navigation.
	Here string
	// Issuers and Queued are how many issuers and challenges the pages for them show. Requests is how many requests of
	// Pods there are, and BadRequests how many of them are in trouble.
	Issuers, Queued, Requests, BadRequests int
	// BadIssuers is how many issuers have a cause.
	BadIssuers int
	// News is a text that a screen reader reads out when the text has changed.
	News string
}

func (s *site) frame(title string) frame {
	p, seen := s.board.picture(time.Now())
	bad := 0
	for _, i := range p.issuers {
		if i.Cause != "" {
			bad++
		}
	}
	badRequests := 0
	for _, g := range p.pods {
		badRequests += len(g.Certificates)
	}
	return frame{
		picture: p, Requests: p.requests, BadRequests: badRequests, Title: title, Here: title, Cluster: s.board.cluster, Namespace: s.board.namespace, Problem: p.problem,
		Seen: seen, Now: p.at, Issuers: len(p.issuers), Queued: len(p.queue), BadIssuers: bad,
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

// tile is a number that filters.
type tile struct {
	Health explain.Health
	Label  string
	Count  int
	// On says that the list shows only the Certificates of this tile. To is the link of the tile.
	On bool
	To string
}

// tiles are the four numbers, and that of the Certificates which are being issued.
func tiles(counts map[explain.Health]int, search string) []tile {
	var all []tile
	for _, t := range []tile{
		{Health: explain.Expired, Label: "expired, or with an expired CA"},
		{Health: explain.Late, Label: "expires before renewal"},
		{Health: explain.Failing, Label: "failing"},
		{Health: explain.Healthy, Label: "healthy"},
		{Health: explain.Issuing, Label: "being issued, and nothing is wrong so far"},
	} {
		own := "state:" + string(t.Health)
		var rest []string
		for word := range strings.FieldsSeq(search) {
			if strings.EqualFold(word, own) {
				t.On = true
			} else if !strings.HasPrefix(word, "state:") {
				rest = append(rest, word)
			}
		}
		if !t.On {
			rest = append([]string{own}, rest...)
		}
		t.Count, t.To = counts[t.Health], find(strings.Join(rest, " "))
		all = append(all, t)
	}
	return all
}

// certificates shows the tiles, and the table of all that the search finds.
func (s *site) certificates(w http.ResponseWriter, r *http.Request) {
	f := s.frame("Certificates")
	search := strings.Join(strings.Fields(strings.ToLower(cut(r.URL.Query().Get("q")))), " ")
	found := explain.NewSearch(search).Find(f.reports)
	certificates := explain.WorstFirst(found, f.at)
	rows := fold(certificates, found, search, f.at)
	all := tiles(f.healths, search)
	view := struct {
		frame
		pager

		Search     string
		All, Found int
		Tiles      []tile
		// Issuing is the number that has no tile.
		Issuing tile
		Line    *timeline
		Rows    []row
		// Begin are the first commands for a user who has no Certificate, in the namespace Place. Own says that they make
		// an issuer, too.
		Begin, Place string
		Own          bool
	}{frame: f, Search: search, All: len(f.reports), Found: len(found), Tiles: all[:4], Issuing: all[4], Line: newTimeline(certificates, f.at), pager: newPager(r.URL, len(rows))}
	view.Rows = rows[view.First:view.Last]
	if view.All == 0 {
		view.Place = cmp.Or(f.Namespace, "default")
		view.Begin, view.Own = firstSteps(f.picture, view.Place)
	}
	for _, t := range all[:3] {
		view.News += strconv.Itoa(t.Count) + " " + t.Label + ". "
	}
	s.show(w, http.StatusOK, "certificates", view)
}

// issuers shows the issuers, those in trouble and those with most certificates in trouble first.
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

// pods shows the requests of Pods in trouble, by cause and issuer.
func (s *site) pods(w http.ResponseWriter, r *http.Request) {
	f := s.frame("Pods")
	view := struct {
		frame
		pager

		Rows           []*group
		Unread, Silent bool
	}{frame: f, pager: newPager(r.URL, len(f.picture.pods)), Unread: f.unread["PodCertificateRequest"], Silent: f.unread["Event"]}
	view.Rows = f.picture.pods[view.First:view.Last]
	s.show(w, http.StatusOK, "pods", view)
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
