package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
)

// The time limits of spec §5.2.
const (
	requestTimeout   = 90 * time.Second
	dialTimeout      = 30 * time.Second
	keepAlive        = 30 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	// idlePerHost keeps the connections of one burst for the next: a CA is one host.
	idlePerHost = 32
	// pingAfter is how long a connection may be silent during a request before it is asked
	// whether it lives, and pingTimeout how long it has to say so: a CA behind a load balancer
	// that forgot the connection would else cost every request on it its whole time.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	// maxRedirects bounds what a GET follows.
	maxRedirects = 3
)

// HTTPOptions say whom an HTTP client trusts.
type HTTPOptions struct {
	// CABundle is PEM; it replaces the system's roots. Empty means the system's roots.
	CABundle []byte
	// InsecureSkipVerify turns the verification of the server off. It excludes CABundle.
	InsecureSkipVerify bool
	// Egress holds connections to what tenants may name; nil means all addresses.
	Egress *egress.Policy
}

// NewHTTPClient makes an HTTP client for ACME with the limits of spec §5.2: dial 30 s, TLS
// handshake 10 s, request 90 s, keep-alive 30 s, proxy from the environment. It fails if
// the bundle holds no certificate, or if both a bundle and no verification are asked for.
func NewHTTPClient(o HTTPOptions) (*http.Client, error) {
	conf := &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The issuer's skipTLSVerify, for servers without a trusted certificate (spec §1.3.1).
		InsecureSkipVerify: o.InsecureSkipVerify, //nolint:gosec // the user's explicit choice
	}
	if len(o.CABundle) > 0 {
		if o.InsecureSkipVerify {
			return nil, errors.New("acme: a CA bundle and skipping TLS verification exclude each other")
		}
		if len(o.CABundle) > limits.BundlePEM {
			return nil, fmt.Errorf("acme: the CA bundle has more than %d bytes: leave the CA of this server in it only", limits.BundlePEM)
		}
		if conf.RootCAs = pki.TrustPool(o.CABundle); conf.RootCAs == nil {
			return nil, errors.New("acme: the CA bundle holds no PEM certificate")
		}
	}
	return &http.Client{
		Timeout: requestTimeout,
		Transport: o.Egress.Transport(&http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			TLSClientConfig:       conf,
			TLSHandshakeTimeout:   handshakeTimeout,
			ForceAttemptHTTP2:     true,
			HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
			MaxIdleConnsPerHost:   idlePerHost,
			IdleConnTimeout:       idleTimeout,
			ExpectContinueTimeout: time.Second,
		}, net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}, maxOrderBody+1), // a longer one is found to be too long
	}, nil
}

// withRedirectPolicy copies base. A POST is never redirected, for its signature binds the URL (RFC
// 8555 §6.4); a GET is, a few times and never from https to http.
func (s *server) withRedirectPolicy(base *http.Client) *http.Client {
	c := *base
	c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		first := via[0].Method
		downgrade := s.https && req.URL.Scheme != "https"
		if (first != http.MethodGet && first != http.MethodHead) || len(via) > maxRedirects || downgrade {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return &c
}
