package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/leader/term"
	"chancery.dev/internal/limits"
)

// Transport sends HTTP requests to servers that the operator does not run. A Policy judges their hosts, and bounds hold
// what they answer. No error quotes what such a server sends: errors end in the status of objects, which tenants read.
// Use NewTransport, or the Transport or Client of a Policy.
type Transport struct {
	// direct sends requests without a proxy, and proxied through the proxy that its Proxy names, which is the operator's.
	direct, proxied *http.Transport
	// target judges a host that a proxy is to be asked for.
	target func(ctx context.Context, host string) error
	// maxBody bounds the body of an answer, in bytes.
	maxBody int
}

// NewTransport makes a Transport. A Policy MUST make the connections of direct. proxied asks the operator's proxy, and
// target judges a host before proxied asks for it. Reading an answer fails after limits.Headers bytes of headers, and
// after maxBody bytes of body. If the status is 400 or above, the body ends after limits.ErrorBody bytes instead, so
// that the caller sees the status. A maxBody of 0 does not mean "no bound": then only an empty body is read.
func NewTransport(direct, proxied *http.Transport, target func(ctx context.Context, host string) error, maxBody int) *Transport {
	direct.MaxResponseHeaderBytes, proxied.MaxResponseHeaderBytes = limits.Headers, limits.Headers
	return &Transport{direct: direct, proxied: proxied, target: target, maxBody: maxBody}
}

// Transport makes a Transport with the settings of t. d makes its connections. See NewTransport for maxBody. Transport
// speaks HTTP/1.1 with servers of tenants: there, bytes that nobody has asked for end the connection. By HTTP/2 such a
// server could send frames without end, even on connections without a request, and each frame takes time.
func (p *Policy) Transport(t *http.Transport, d net.Dialer, maxBody int) *Transport {
	if p != nil {
		t.ForceAttemptHTTP2, t.HTTP2 = false, nil
	}
	direct, proxied := t, t.Clone()
	direct.Proxy, direct.DialContext = nil, p.Dialer(d).DialContext
	proxied.DialContext, proxied.OnProxyConnectResponse = d.DialContext, connected
	target := func(ctx context.Context, host string) error { return p.Target(ctx, host, SystemLookup) }
	return NewTransport(direct, proxied, target, maxBody)
}

// Client returns a client with a time limit. The client follows no redirect: the contents of a request are for the
// server that the configuration names, and for no other. See NewTransport for maxBody.
func (p *Policy) Client(timeout time.Duration, maxBody int) *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: p.Transport(&http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: timeout, IdleConnTimeout: idleTimeout,
		}, net.Dialer{Timeout: timeout}, maxBody),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

const idleTimeout = 90 * time.Second

var _ http.RoundTripper = (*Transport)(nil)

// proxyRefusal is the error of a proxy that does not connect.
type proxyRefusal struct{ code int }

func (r proxyRefusal) Error() string {
	return fmt.Sprintf("the proxy answers %d %s", r.code, http.StatusText(r.code))
}

func connected(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return proxyRefusal{answer.StatusCode}
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	by, err := t.choose(req)
	if err = cmp.Or(err, term.Check(req.Context())); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as http.RoundTripper promises
		}
		return nil, err
	}
	resp, err := by.RoundTrip(req)
	if err != nil {
		return nil, plain(err)
	}
	// http.Client quotes an address that it cannot read.
	if _, err := url.Parse(resp.Header.Get("Location")); err != nil {
		resp.Header.Del("Location")
	}
	body := &plainBody{ReadCloser: resp.Body, max: t.maxBody, left: t.maxBody}
	if resp.StatusCode >= http.StatusBadRequest {
		body.left, body.cut = min(body.left, limits.ErrorBody), true
	}
	resp.Body = body
	return resp, nil
}

// choose returns what sends a request.
func (t *Transport) choose(req *http.Request) (*http.Transport, error) {
	if t.proxied.Proxy == nil {
		return t.direct, nil
	}
	proxy, err := t.proxied.Proxy(req)
	switch {
	case err != nil:
		return nil, err
	case proxy == nil:
		return t.direct, nil
	}
	return t.proxied, t.target(req.Context(), req.URL.Hostname())
}

// CloseIdleConnections is called by http.Client's method of this name.
func (t *Transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}

// errNotHTTP stands for all errors of net/http that quote the answer.
var errNotHTTP = errors.New("the server does not answer in HTTP, ends the answer early, or sends more than 64 KiB of headers")

// plain returns an error that quotes nothing of what the server has sent.
func plain(err error) error {
	switch {
	case fault.Is[net.Error](err), fault.Is[syscall.Errno](err), fault.Is[*Denied](err), fault.Is[proxyRefusal](err),
		fault.Is[tls.RecordHeaderError](err), fault.Is[tls.AlertError](err), fault.Is[*tls.CertificateVerificationError](err),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, http.ErrSchemeMismatch),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.HasPrefix(err.Error(), "tls: "):
		return err
	}
	return errNotHTTP
}

// plainBody is a body whose errors quote nothing, and whose length is bounded. A body that is cut ends at its bound;
// any other one fails there.
type plainBody struct {
	io.ReadCloser

	max, left int
	cut       bool
}

// Read implements io.Reader.
func (b *plainBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return b.readOn()
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		err = plain(err)
	}
	return n, err
}

// readOn looks whether the body goes on beyond its bound.
func (b *plainBody) readOn() (int, error) {
	if b.cut {
		return 0, io.EOF
	}
	switch n, err := b.ReadCloser.Read(make([]byte, 1)); {
	case n > 0:
		return 0, fmt.Errorf("the answer is longer than %d KiB", b.max>>10)
	case err != nil && !errors.Is(err, io.EOF):
		return 0, plain(err)
	default:
		return 0, err
	}
}
