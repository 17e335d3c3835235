package egress

import (
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
)

// Transport sends HTTP requests to servers that the operator does not run. A Policy judges their hosts. No error quotes
// what such a server sends: errors end in the status of objects, which tenants read.
type Transport struct {
	// Direct sends requests without a proxy. Its connections have to be made by the Policy.
	Direct *http.Transport
	// Proxied sends requests through the proxy that its Proxy names, which is the operator's.
	Proxied *http.Transport
	// Target judges a host that a proxy is to be asked for.
	Target func(ctx context.Context, host string) error
	// MaxBody bounds the body of an answer, in bytes; 0 means no bound.
	MaxBody int
}

// Transport makes a Transport with the settings of t, whose connections d makes.
func (p *Policy) Transport(t *http.Transport, d net.Dialer) *Transport {
	direct, proxied := t, t.Clone()
	direct.Proxy, direct.DialContext = nil, p.Dialer(d).DialContext
	proxied.DialContext, proxied.OnProxyConnectResponse = d.DialContext, connected
	return &Transport{Direct: direct, Proxied: proxied, Target: func(ctx context.Context, host string) error {
		return p.Target(ctx, host, SystemLookup)
	}}
}

// Client returns a client with a time limit that follows no redirect: what requests carry is for the server that the
// configuration names, and for no other.
func (p *Policy) Client(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: p.Transport(&http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: timeout, IdleConnTimeout: idleTimeout,
			MaxResponseHeaderBytes: maxHeader,
		}, net.Dialer{Timeout: timeout}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

const (
	idleTimeout = 90 * time.Second
	// maxHeader bounds, in bytes, the headers of an answer.
	maxHeader = 64 << 10
)

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
	if err != nil {
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
	resp.Body = &plainBody{ReadCloser: resp.Body, max: t.MaxBody, left: t.MaxBody}
	return resp, nil
}

// choose returns what sends a request.
func (t *Transport) choose(req *http.Request) (*http.Transport, error) {
	if t.Proxied.Proxy == nil {
		return t.Direct, nil
	}
	proxy, err := t.Proxied.Proxy(req)
	switch {
	case err != nil:
		return nil, err
	case proxy == nil:
		return t.Direct, nil
	}
	return t.Proxied, t.Target(req.Context(), req.URL.Hostname())
}

// CloseIdleConnections is called by http.Client's method of this name.
func (t *Transport) CloseIdleConnections() {
	t.Direct.CloseIdleConnections()
	t.Proxied.CloseIdleConnections()
}

// errNotHTTP stands for all errors of net/http that quote the answer.
var errNotHTTP = errors.New("the server does not answer in HTTP, or ends the answer early")

// plain returns an error that quotes nothing of what the server has sent.
func plain(err error) error {
	var (
		network net.Error
		errno   syscall.Errno
		record  tls.RecordHeaderError
		alert   tls.AlertError
		unknown *tls.CertificateVerificationError
		denied  *Denied
		proxy   proxyRefusal
	)
	switch {
	case errors.As(err, &network), errors.As(err, &errno), errors.As(err, &denied), errors.As(err, &proxy),
		errors.As(err, &record), errors.As(err, &alert), errors.As(err, &unknown),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, http.ErrSchemeMismatch),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.HasPrefix(err.Error(), "tls: "):
		return err
	}
	return errNotHTTP
}

// plainBody is a body whose errors quote nothing, and whose length is bounded.
type plainBody struct {
	io.ReadCloser

	max, left int
}

// Read implements io.Reader.
func (b *plainBody) Read(p []byte) (int, error) {
	if b.max > 0 {
		if b.left <= 0 {
			return 0, fmt.Errorf("the answer is longer than %d MiB", b.max>>20)
		}
		p = p[:min(len(p), b.left)]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		err = plain(err)
	}
	return n, err
}
