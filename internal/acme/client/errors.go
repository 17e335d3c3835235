package client

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"chancery.dev/internal/acme"
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
	// Empty says that the body is.
	Empty bool
}

// Error says which server answered with which status. The body is not quoted: a user who may name a server in an issuer
// could otherwise read the answers of servers that only the controller reaches.
func (e *HTTPError) Error() string {
	return fmt.Sprintf("acme: %s %s: the server answered %d %s without an ACME problem document",
		e.Method, e.URL, e.Status, http.StatusText(e.Status))
}

// TransportError says that no complete answer came: the name did not resolve, the connection failed,
// broke or was too slow, or the context ended. The server may have acted on the request.
type TransportError struct {
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

// ProtocolError is an answer that breaks the RFC: no JSON, no Location, too long.
type ProtocolError struct {
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

// ErrTooLarge says that an answer is larger than what any CA needs. It would be as large if it were asked for again.
var ErrTooLarge = errors.New("the answer is too large")

// StatusOf is the HTTP status of an error answer in err's chain; 0 if no such answer came.
func StatusOf(err error) int {
	if p := acme.ProblemOf(err); p != nil {
		return p.Status
	}
	if h, ok := errors.AsType[*HTTPError](err); ok {
		return h.Status
	}
	return 0
}

// RetryAfter is how long an error answer in err's chain asked to wait; 0 if it did not say.
func RetryAfter(err error) time.Duration {
	if p := acme.ProblemOf(err); p != nil {
		return p.RetryAfter
	}
	if h, ok := errors.AsType[*HTTPError](err); ok {
		return h.RetryAfter
	}
	return 0
}

// stable strips what differs between two equal failures: the URL that the caller prints anyway, and the local port.
// Statuses that hold the text then do not change without cause.
func stable(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil { // it says what time it is now
		return fmt.Errorf("the server's certificate is good only from %s to %s",
			invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		d := *dns
		if d.IsTimeout {
			d.Err = "timeout" // the original holds the resolver socket's port
		}
		return &d
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		o := *op
		o.Source = nil
		return &o
	}
	return err
}
