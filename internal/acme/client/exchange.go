package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault/retryafter"
	"chancery.dev/internal/limits"
)

const (
	// maxBody bounds, in bytes, every answer that is neither an order nor a certificate, and every
	// answer that is an error.
	maxBody = limits.ACMEBody
	// maxOrderBody bounds an order: it lists an identifier and an authorization for each name.
	maxOrderBody = limits.ACMEOrder
	// maxCertificateBody bounds a certificate chain. It is pki.MaxChainPEM: a longer chain is decoded nowhere.
	maxCertificateBody = limits.ChainPEM
	// maxURL bounds an address that a server gives.
	maxURL = 4 << 10
	// maxNonceTries bounds how often one request is signed anew after badNonce.
	maxNonceTries = 10
)

// call is one HTTP request.
type call struct {
	action      Action
	method, url string
	body        []byte
	limit       int64
}

// response is an answer whose body is read.
type response struct {
	call   call
	status int
	url    *url.URL
	header http.Header
	body   []byte
	nonce  string
	meta   acme.Meta
}

// broken says that the answer breaks the protocol.
func (r *response) broken(err error) error {
	return &ProtocolError{URL: r.call.url, Err: err}
}

// tooLarge says that the answer has more of something than the bound.
func (r *response) tooLarge(format string, bound any) error {
	return r.broken(fmt.Errorf("%w: "+format, ErrTooLarge, bound))
}

// notJSON says that an answer is not the JSON that is expected. The decoder's own words may quote the answer.
func notJSON(err error) error {
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
		return fmt.Errorf("JSON: the field %q is no %s", wrong.Field, wrong.Type)
	}
	return errors.New("JSON: it does not parse")
}

// decode reads the JSON body into v.
func (r *response) decode(v any) error {
	if err := json.Unmarshal(r.body, v); err != nil {
		return r.broken(notJSON(err))
	}
	return nil
}

// absolute resolves a URL of the response against that of the request; "" stays "", and "" is returned for a URL of
// more than maxURL bytes: many short references to a long address would else become much longer than the answer.
func (r *response) absolute(ref string) string {
	if ref == "" {
		return ""
	}
	u, err := r.url.Parse(ref)
	if err != nil {
		return ""
	}
	if s := u.String(); len(s) <= maxURL {
		return s
	}
	return ""
}

// do sends one request and reads its answer. An answer that is not 2xx is an error; the response
// comes with it, for the nonce.
func (s *server) do(ctx context.Context, c call) (*response, error) {
	req, err := s.request(ctx, c)
	if err != nil {
		return nil, err
	}
	start := s.now()
	status := 0
	if s.observe != nil {
		defer func() {
			s.observe(Observation{Action: c.action, Method: c.method, Scheme: req.URL.Scheme,
				Host: req.URL.Host, Status: status, Duration: s.now().Sub(start)})
		}()
	}
	defer func() {
		if s.closed.Load() {
			s.http.CloseIdleConnections()
		}
	}()
	res, err := s.http.Do(req)
	if err != nil {
		return nil, &TransportError{Method: c.method, URL: c.url, Err: stable(err)}
	}
	defer func() { _ = res.Body.Close() }()
	status = res.StatusCode
	// The nonce counts even if the body is broken.
	r := &response{call: c, status: status, url: res.Request.URL, header: res.Header, nonce: nonceOf(res.Header)}
	r.meta = acme.Meta{RetryAfter: retryafter.Read(res.Header, s.now()), Location: r.absolute(res.Header.Get("Location"))}
	ok := status >= http.StatusOK && status < http.StatusMultipleChoices
	limit := c.limit
	if !ok {
		limit = min(limit, maxBody)
	}
	r.body, err = io.ReadAll(io.LimitReader(res.Body, limit+1))
	switch {
	case err != nil && (ok || isRequestRefused(status)):
		// A refusal of which the reason is cut off is no refusal: it may have been the nonce.
		return r, &TransportError{Method: c.method, URL: c.url,
			Err: fmt.Errorf("reading the answer: %w", stable(err))}
	case !ok:
		return r, r.failure(status)
	case int64(len(r.body)) > limit:
		return r, r.tooLarge("the body is longer than %d bytes", limit)
	}
	return r, nil
}

// request builds the HTTP request. A server found over https does not get to send us to http.
func (s *server) request(ctx context.Context, c call) (*http.Request, error) {
	var body io.Reader
	if c.body != nil {
		body = bytes.NewReader(c.body)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, c.url, body)
	if err != nil {
		return nil, &ProtocolError{URL: c.url, Err: err}
	}
	if scheme := req.URL.Scheme; scheme != "https" && (s.https || scheme != "http") {
		return nil, &ProtocolError{URL: c.url, Err: errors.New("the URL is not https (§6.1)")}
	}
	req.Header.Set("User-Agent", s.userAgent)
	req.Header.Set("Accept-Language", "en")
	if c.body != nil {
		req.Header.Set("Content-Type", "application/jose+json")
	}
	return req, nil
}

// isRequestRefused reports a status whose meaning is in the body. Of 429 and the 5xx the
// status says enough, and a Retry-After counts.
func isRequestRefused(status int) bool {
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusTooManyRequests
}

// readList decodes a JSON array of at most limit elements: many short elements would else take
// much more memory than the answer. A missing array is empty.
func readList[T any](r *response, array json.RawMessage, what string, limit int) ([]T, error) {
	if len(array) == 0 {
		return nil, nil
	}
	var list []T
	d := json.NewDecoder(bytes.NewReader(array))
	switch start, err := d.Token(); {
	case err != nil || start == nil:
		return nil, err
	case start != json.Delim('['):
		return nil, r.broken(fmt.Errorf("the list of %s is no array", what))
	}
	for d.More() {
		if len(list) == limit {
			return nil, r.tooLarge("more than %d "+what, limit)
		}
		var element T
		if err := d.Decode(&element); err != nil {
			return nil, r.broken(notJSON(err))
		}
		list = append(list, element)
	}
	return list, nil
}

// failure turns an error answer into a Problem or, if it is none, an HTTPError.
func (r *response) failure(status int) error {
	contentType := strings.ToLower(r.header.Get("Content-Type"))
	document := strings.Contains(contentType, "problem+json")
	if strings.Contains(contentType, "json") {
		// A server that labels a problem of ACME plain JSON is understood, too. Other plain JSON is
		// the answer of something else.
		if p := acme.ParseProblem(status, r.body); p != nil && (document || p.Code() != "") {
			p.RetryAfter = r.meta.RetryAfter
			return p
		}
	}
	if isRequestRefused(status) && document && len(r.body) > 0 && !json.Valid(r.body) {
		return r.broken(errors.New("the problem document is not JSON"))
	}
	return &HTTPError{Action: r.call.action, Method: r.call.method, URL: r.call.url, Status: status,
		RetryAfter: r.meta.RetryAfter, Empty: len(bytes.TrimSpace(r.body)) == 0}
}

// get sends an unsigned GET, for the directory and renewal information only (RFC 8555 §6.3).
func (s *server) get(ctx context.Context, action Action, url string) (*response, error) {
	r, err := s.do(ctx, call{action: action, method: http.MethodGet, url: url, limit: maxBody})
	if r != nil {
		s.keep(r.nonce)
	}
	return r, err
}

// post signs and sends one request, and again at once with a fresh nonce while the server refuses
// the nonce: RFC 8555 §6.5 says that the refusal brings the next one.
func (c *Client) post(ctx context.Context, req call, sign func(nonce string) ([]byte, error)) (*response, error) {
	req.method = http.MethodPost
	if req.limit == 0 {
		req.limit = maxBody
	}
	nonce := ""
	for try := 1; ; try++ {
		var err error
		if nonce == "" {
			if nonce, err = c.server.nonce(ctx, req.action); err != nil {
				return nil, err
			}
		}
		if req.body, err = sign(nonce); err != nil {
			return nil, err
		}
		r, err := c.server.do(ctx, req)
		if err != nil && r != nil && r.nonce == "" && (acme.HasCode(err, acme.CodeBadNonce) || r.status >= http.StatusInternalServerError) {
			c.server.forgetNonces() // a server that starts anew has forgotten all that it gave
		}
		if acme.HasCode(err, acme.CodeBadNonce) && try < maxNonceTries {
			nonce = r.nonce
			continue
		}
		if r != nil {
			c.server.keep(r.nonce)
		}
		if err != nil {
			return nil, err
		}
		return r, nil
	}
}

// postKID sends payload signed by the account, named by its URL (RFC 8555 §6.2). A nil payload is POST-as-GET (§6.3).
func (c *Client) postKID(ctx context.Context, req call, payload any) (*response, error) {
	if c.key == nil {
		return nil, ErrNoKey
	}
	kid := c.AccountURL()
	if kid == "" {
		return nil, ErrNoAccount
	}
	body, err := encode(payload)
	if err != nil {
		return nil, err
	}
	return c.post(ctx, req, func(nonce string) ([]byte, error) {
		return c.key.sign(body, jwsHeader{url: req.url, nonce: nonce, kid: kid})
	})
}

// encode is the JSON of payload; empty for nil.
func encode(payload any) ([]byte, error) {
	if payload == nil {
		return []byte{}, nil
	}
	body, err := json.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("acme: encoding the request: %w", err)
	}
	return body, nil
}
