// Package faulty is a proxy between an ACME client and its CA. The proxy breaks requests as a test plans. It is a real
// server over TCP and TLS, so that a reset is a real TCP reset.
//
// The proxy keeps the Host header of each request, and CAs make their URLs from the Host. So the CA's URLs lead back to
// the proxy, and the client's signatures, which cover the URL, stay valid. The proxy learns the purpose of each URL
// from the CA's answers (RFC 8555 §7.1). So a test plans a Fault for a step of the protocol, and the plan works with
// any CA that makes its URLs from the Host. The proxy changes a request or an answer only if a Fault asks for this,
// with one exception: it changes expiry times for clients whose clock is ahead. Only tests import the package.
package faulty

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Options configure a Proxy.
type Options struct {
	// Upstream is the URL of the CA's directory.
	Upstream string
	// Client reaches the CA.
	Client *http.Client
	// Plan says what is to happen to a request; nil, or a nil Fault, lets it pass. It is
	// called once for each request.
	Plan func(Request) Fault
	// Begin is called when a request comes in, and what it returns when it has been dealt
	// with; may be nil.
	Begin func() (done func())
	// Ahead is how far the client's clock is ahead of the CA's, by which orders and
	// authorizations expire later; nil means not at all.
	Ahead func() time.Duration
}

// Request is one request as the protocol sees it.
type Request struct {
	// Step is what it is for.
	Step Step
	// Nth counts the requests of the Step, from 1.
	Nth int
	// Names are those that a new order is for, with a space between them.
	Names string
}

// Proxy is a running proxy.
type Proxy struct {
	// DirectoryURL is where ACME clients start.
	DirectoryURL string
	// TLSBundle is PEM: what a client trusts to talk to the proxy.
	TLSBundle []byte

	o        Options
	upstream *url.URL

	mu      sync.Mutex
	book    book
	seen    []Request
	counts  map[Step]int
	created int
	stalled int
}

// Start serves until ctx ends.
func Start(ctx context.Context, o Options) (*Proxy, error) {
	upstream, err := url.Parse(o.Upstream)
	if err != nil {
		return nil, err
	}
	cert, err := certificate()
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		DirectoryURL: "https://" + listener.Addr().String() + upstream.Path,
		TLSBundle:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}),
		o:            o, upstream: upstream, counts: map[Step]int{},
		book: book{upstream.Path: Directory},
	}
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		// Without HTTP/2 a connection is one request's, and can be broken for it.
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return p, nil
}

// Seen are the requests so far, in order.
func (p *Proxy) Seen() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// Created is how many orders the CA has made, whether the client knows of them or not.
func (p *Proxy) Created() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.created
}

// Authorizations are the paths of all authorizations that the CA has shown.
func (p *Proxy) Authorizations() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for path, s := range p.book {
		if s == Authorization {
			out = append(out, path)
		}
	}
	return out
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.o.Begin != nil {
		defer p.o.Begin()()
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	fault := Fault(nil)
	if request := p.note(r, body); p.o.Plan != nil {
		fault = p.o.Plan(request)
	}
	if fault == nil {
		fault = pass
	}
	fault(&Exchange{proxy: p, w: w, r: r, body: body})
}

func (p *Proxy) note(r *http.Request, body []byte) Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	step := p.book.step(r, body, p.counts)
	p.counts[step]++
	request := Request{Step: step, Nth: p.counts[step]}
	if step == NewOrder {
		request.Names = namesIn(body)
	}
	p.seen = append(p.seen, request)
	return request
}

// Answer is what the CA has said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// ask passes a request on to the CA, and learns from the answer.
func (p *Proxy) ask(r *http.Request, body []byte) (*Answer, error) {
	target := *r.URL
	target.Scheme, target.Host = p.upstream.Scheme, p.upstream.Host
	// The client may give up; the CA acts all the same.
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header, req.Host = r.Header.Clone(), r.Host
	res, err := p.o.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	a := &Answer{Status: res.StatusCode, Header: res.Header}
	if a.Body, err = io.ReadAll(res.Body); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.book.learn(r.URL.Path, a) == NewOrder && a.Status == http.StatusCreated {
		p.created++
	}
	p.stall(a)
	p.postpone(a)
	return a, nil
}

// certificate is a self-signed one for loopback.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "faulty"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("faulty: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
