package adapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/solver/dns01/wire"
)

// confine has a transport, and the copies that are made of it from now on, judge the address of each connection, and
// refuse redirects to another host. It is for http.DefaultTransport, which most providers use: Entry.Judged says which
// ones bring a transport of their own.
//
// The proxy is the operator's, so that the host is judged that the proxy is asked for. HTTP/2 is left out: its
// connections are used again without a question.
func confine(of http.RoundTripper, limits *wire.Egress) error {
	t, is := of.(*http.Transport)
	if !is {
		return fmt.Errorf("the transport is a %T, and cannot judge its connections", of)
	}
	var policy *egress.Policy
	if limits != nil {
		var err error
		if policy, err = egress.Parse(limits.Allow, limits.Deny); err != nil {
			return err
		}
	}
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	proxies, judged := proxyAddresses(), policy.Dialer(dialer)
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if proxies[address] {
			return dialer.DialContext(ctx, network, address)
		}
		return judged.DialContext(ctx, network, address)
	}
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		if from := r.Response; from != nil && from.Request != nil && from.Request.URL.Host != r.URL.Host {
			return nil, errors.New("the server redirects to another host, which is not followed")
		}
		proxy, err := http.ProxyFromEnvironment(r)
		if err != nil || proxy == nil {
			return nil, err
		}
		return proxy, policy.Target(r.Context(), r.URL.Hostname(), egress.SystemLookup)
	}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return nil
}

// proxyAddresses are the host:port of the proxies that the environment names.
func proxyAddresses() map[string]bool {
	out := map[string]bool{}
	for _, scheme := range []string{"http", "https"} {
		proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "proxied.invalid"}})
		if err != nil || proxy == nil {
			continue // each request says so
		}
		port := proxy.Port()
		if port == "" {
			port = map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[proxy.Scheme]
		}
		if port == "" {
			port = "80"
		}
		out[net.JoinHostPort(proxy.Hostname(), port)] = true
	}
	return out
}
