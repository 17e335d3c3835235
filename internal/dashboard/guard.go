package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// policy lets a page load its own style, script and pictures, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// opening is where the address that works once begins.
const opening = "/open/"

// maxPending is how many browsers may be on their way at once: whoever has the address can open it again and again.
const maxPending = 16

// opened is the page that sets the cookie, and leads on.
const opened = `<!doctype html><html lang="en"><head><meta http-equiv="refresh" content="0; url=/"><link rel="icon" href="data:,">` +
	`<title>Certificates</title></head><body><p><a href="/">Certificates</a></p></body></html>`

// guard admits one browser: the first that opens the address with the token, and comes back with the cookie that it got
// there. A browser that does not come back, because it failed to start, does not use the address up. The Host of each
// request has to be the address that is served: no other name of the loopback address (DNS rebinding) leads here.
type guard struct {
	host, token, cookie string
	next                http.Handler

	mu sync.Mutex
	// session is the cookie of the browser that was admitted; empty before. Pending are those of browsers that have
	// opened the address and have not come back yet, the latest last.
	session string
	pending []string
}

func newGuard(host string, next http.Handler) *guard {
	_, port, _ := net.SplitHostPort(host) // the address of a listener has a port
	return &guard{host: host, token: rand.Text(), cookie: "chancery-dashboard-" + port, next: next}
}

// url is the address that works once.
func (g *guard) url() string { return "http://" + g.host + opening + g.token }

// ServeHTTP serves the page to the browser that was admitted, and refuses all others.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	switch token, opens := strings.CutPrefix(r.URL.Path, opening); {
	case r.Host != g.host:
		http.Error(w, "open http://"+g.host, http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the dashboard changes nothing", http.StatusMethodNotAllowed)
	case opens && r.Method == http.MethodGet && same(token, g.token) && g.opens(w, r):
		h.Set("Content-Type", "text/html; charset=utf-8")
		// A redirect by HTTP would count as one by the site that led here, and get no cookie.
		fmt.Fprint(w, opened)
	case opens || !g.admits(r):
		http.Error(w, "This address works once, and in one browser. Stop the command and start it again: it prints a new address.", http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// opens reports whether the address still opens: until a browser was admitted, and after that for that browser. It
// gives each new browser a cookie of its own.
func (g *guard) opens(w http.ResponseWriter, r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.session != "" {
		return same(g.shown(r), g.session)
	}
	session := rand.Text()
	g.pending = append(g.pending[max(0, len(g.pending)+1-maxPending):], session)
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	return true
}

// admits reports whether a request is by the browser that was admitted. The first that comes back with a cookie is.
func (g *guard) admits(r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	shown := g.shown(r)
	if g.session == "" && slices.ContainsFunc(g.pending, func(session string) bool { return same(shown, session) }) {
		g.session, g.pending = shown, nil
	}
	return g.session != "" && same(shown, g.session)
}

// shown is the cookie of a request; empty if it has none.
func (g *guard) shown(r *http.Request) string {
	cookie, err := r.Cookie(g.cookie)
	if err != nil {
		return ""
	}
	return cookie.Value
}

func same(x, y string) bool { return subtle.ConstantTimeCompare([]byte(x), []byte(y)) == 1 }
