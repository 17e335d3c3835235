package client

import (
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"chancery.dev/internal/acme"
)

const (
	// maxPage is how much of a page is read to find out what it says, and maxPageLine bounds
	// what is shown of it: an error is one line of a status.
	maxPage     = 8 << 10
	maxPageLine = 160
)

// HTTPError is an error answer that is no problem document: a proxy's page, a redirect that is
// not followed, an empty 404.
type HTTPError struct {
	// Action is what the request was for.
	Action Action
	// Method and URL are those of the request.
	Method, URL string
	// Status is the HTTP status.
	Status int
	// RetryAfter is how long the response asked to wait; 0 if it did not say.
	RetryAfter time.Duration
	// Excerpt is what the body says, in one line of at most 160 bytes without control
	// characters: the title of an HTML page, or the beginning of its text. It is empty only for
	// a body that is.
	Excerpt string
}

// Error says who answered what.
func (e *HTTPError) Error() string {
	msg := fmt.Sprintf("acme: %s %s: the server answered %d %s without an ACME problem document",
		e.Method, e.URL, e.Status, http.StatusText(e.Status))
	if e.Excerpt != "" {
		msg += fmt.Sprintf(": %q", e.Excerpt)
	}
	return msg
}

// TransportError says that no complete answer came: the name did not resolve, the connection failed,
// broke or was too slow, or the context ended. The server may have acted on the request.
type TransportError struct {
	// Action is what the request was for.
	Action Action
	// Method and URL are those of the request.
	Method, URL string
	// Err is the cause, without the local port, so that the same failure reads the same.
	Err error
}

// Error says what was asked and why no answer came.
func (e *TransportError) Error() string {
	return fmt.Sprintf("acme: %s %s: %v", e.Method, e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *TransportError) Unwrap() error { return e.Err }

// Timeout reports whether it was time that ran out.
func (e *TransportError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// ProtocolError is an answer that breaks the RFC: no JSON, no Location, too long.
type ProtocolError struct {
	// Action is what the request was for.
	Action Action
	// URL is that of the request.
	URL string
	// Err says what is wrong with the answer.
	Err error
}

// Error says what is wrong with which answer.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("acme: the answer of %s is not what RFC 8555 asks for: %v", e.URL, e.Err)
}

// Unwrap returns what is wrong.
func (e *ProtocolError) Unwrap() error { return e.Err }

// ErrTooLarge says that an answer is larger than what any CA needs. It would be as large if it
// were asked for again.
var ErrTooLarge = errors.New("the answer is too large")

// StatusOf is the HTTP status of an error answer in err's chain; 0 if no such answer came.
func StatusOf(err error) int {
	if p := acme.ProblemOf(err); p != nil {
		return p.Status
	}
	var h *HTTPError
	if errors.As(err, &h) {
		return h.Status
	}
	return 0
}

// RetryAfter is how long an error answer in err's chain asked to wait; 0 if it did not say.
func RetryAfter(err error) time.Duration {
	if p := acme.ProblemOf(err); p != nil {
		return p.RetryAfter
	}
	var h *HTTPError
	if errors.As(err, &h) {
		return h.RetryAfter
	}
	return 0
}

// stable strips what differs between two equal failures: the URL that the caller prints
// anyway, and the local port. Statuses that hold the text then do not change without cause.
func stable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		d := *dns
		if d.IsTimeout {
			d.Err = "timeout" // the original holds the resolver socket's port
		}
		return &d
	}
	var op *net.OpError
	if errors.As(err, &op) {
		o := *op
		o.Source = nil
		return &o
	}
	return err
}

var (
	titleOfPage  = regexp.MustCompile(`(?is)<title\b[^>]*>(.*?)</title`)
	markupOfPage = regexp.MustCompile(`(?is)<!--.*?(-->|$)|<(script|style)\b.*?(</(script|style)\b[^>]*>|$)|<[^>]*(>|$)`)
)

// excerpt is a line of what an answer that is not ACME says.
func excerpt(body string) string {
	body = body[:min(len(body), maxPage)]
	if strings.HasPrefix(strings.TrimSpace(body), "<") {
		said := markupOfPage.ReplaceAllString(body, " ")
		if title := titleOfPage.FindStringSubmatch(body); title != nil && strings.TrimSpace(title[1]) != "" {
			said = title[1]
		}
		if line := acme.Sanitise(html.UnescapeString(said), maxPageLine); line != "" {
			return line
		}
	}
	return acme.Sanitise(body, maxPageLine)
}
