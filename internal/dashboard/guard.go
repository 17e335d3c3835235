package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
)

// policy lets a page load its own style, script and pictures, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// opening is where the address that works once begins.
const opening = "/open/"

// opened is the page that sets the cookie, and leads on.
const opened = `<!doctype html><html lang="en"><head><meta http-equiv="refresh" content="0; url=/"><link rel="icon" href="data:,">` +
	`<title>Certificates</title></head><body><p><a href="/">Certificates</a></p></body></html>`

// guard admits one browser: the first that opens the address with the token. The Host of each request has to be the
// address that is served, so that no other name of the loopback address (DNS rebinding) leads here.
type guard struct {
	host, token, session, cookie string
	used                         atomic.Bool
	next                         http.Handler
}

func newGuard(host string, next http.Handler) *guard {
	_, port, _ := net.SplitHostPort(host) // the address of a listener has a port
	return &guard{host: host, token: rand.Text(), session: rand.Text(), cookie: "chancery-dashboard-" + port, next: next}
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
	case opens && r.Method == http.MethodGet && same(token, g.token) && g.used.CompareAndSwap(false, true):
		http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		h.Set("Content-Type", "text/html; charset=utf-8")
		// A redirect by HTTP would count as one by the site that led here, and get no cookie.
		fmt.Fprint(w, opened)
	case opens || !g.admitted(r):
		http.Error(w, "This address works once, and in one browser. Stop the command and start it again: it prints a new address.", http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

func (g *guard) admitted(r *http.Request) bool {
	cookie, err := r.Cookie(g.cookie)
	return err == nil && same(cookie.Value, g.session)
}

func same(x, y string) bool { return subtle.ConstantTimeCompare([]byte(x), []byte(y)) == 1 }
