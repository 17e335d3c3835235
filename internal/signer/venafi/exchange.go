package venafi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault/retryafter"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
)

// Bounds of one exchange with a server (spec appendix D).
const (
	exchangeTimeout = 30 * time.Second
	connectTimeout  = 10 * time.Second
)

// newTransport makes a transport to a server. TPP may ask for a second handshake, with a client certificate.
func newTransport(a access) *egress.Transport {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, Renegotiation: tls.RenegotiateOnceAsClient}
	if a.bundle != "" {
		conf.RootCAs = pki.TrustPool([]byte(a.bundle))
	}
	return a.egress.Transport(&http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     conf,
		TLSHandshakeTimeout: connectTimeout,
		MaxIdleConns:        4,
		IdleConnTimeout:     exchangeTimeout,
	}, net.Dialer{Timeout: connectTimeout, KeepAlive: exchangeTimeout}, limits.VenafiBody)
}

// step is a part of a call.
type step int

const (
	stepLogin step = iota + 1
	stepZone
	stepPolicy
	stepRequest
	stepRetrieve
)

// CallToken is the name of requests for a token of OAuth, in what Config.Observe is told.
const CallToken = "oauth_token"

// name is what Config.Observe is told of a request of the step.
func (s step) name(req *http.Request) string {
	switch s {
	case stepLogin:
		if strings.Contains(req.URL.Path, "/oauth") {
			return CallToken
		}
		return "login"
	case stepZone:
		return "read_zone_configuration"
	case stepPolicy:
		return "check_policy"
	case stepRequest:
		return "request_certificate"
	case stepRetrieve:
		return "retrieve_certificate"
	}
	return "other"
}

// exchange is the HTTP client of one call. The library takes no context, and its errors do not tell failures apart: so
// the exchange bounds each request by the call's context, and remembers the last answer.
type exchange struct {
	ctx       context.Context //nolint:containedctx // the life of one call
	transport http.RoundTripper
	now       func() time.Time
	observe   func(call string, status int, took time.Duration)
	comparing *turns
	step      step
	// status, retryAfter and body are of the last answer, err why there was none, unfit why its policy cannot be used.
	status     int
	retryAfter time.Duration
	body       []byte
	err        error
	unfit      error
}

// client returns a client that follows no redirect: a header with an API key would follow it too.
func (x *exchange) client() *http.Client {
	return &http.Client{Transport: x, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// RoundTrip implements http.RoundTripper.
func (x *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	x.status, x.retryAfter, x.body, x.err, x.unfit = 0, 0, nil, nil, nil
	ctx, cancel := context.WithTimeout(x.ctx, exchangeTimeout)
	defer cancel()
	if x.observe != nil {
		began := x.now()
		defer func() { x.observe(x.step.name(req), x.status, x.now().Sub(began)) }()
	}
	resp, err := x.transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		x.err = err
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		x.err = err
		return nil, err
	}
	x.status, x.retryAfter, x.body = resp.StatusCode, retryafter.Read(resp.Header, x.now()), body
	if x.step == stepZone { // the library reads some policies whatever the status is
		if x.unfit = checkBounds(body); x.unfit != nil {
			return nil, x.unfit
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// answer is what servers say in errors.
type answer struct {
	ErrorDescription string `json:"error_description"`
	Error            string `json:"Error"`
	Status           string `json:"Status"`
	Stage            int    `json:"Stage"`
	Message          string `json:"message"`
	Errors           []struct {
		Message string `json:"message"`
	} `json:"errors"`
}

// said returns what the last answer says in words, or nothing.
func (x *exchange) said() (answer, string) {
	var a answer
	_ = json.Unmarshal(x.body, &a) // an answer of another form says less
	texts := []string{a.ErrorDescription}
	for _, e := range a.Errors {
		texts = append(texts, e.Message)
	}
	texts = append(texts, a.Error, a.Status, a.Message)
	for _, text := range texts {
		if text != "" {
			return a, text
		}
	}
	return a, ""
}

// unquoted returns the text of the library's error, unless it quotes the answer: whoever may create an Issuer would
// read any server that the controller can reach.
func (x *exchange) unquoted(err error) string {
	text := err.Error()
	if body := bytes.TrimSpace(x.body); len(body) > 0 && strings.Contains(text, string(body)) {
		return fmt.Sprintf("%d %s, in words that are not Certificate Manager's", x.status, http.StatusText(x.status))
	}
	return text
}
