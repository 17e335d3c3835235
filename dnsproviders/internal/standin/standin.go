// Package standin replaces the APIs of DNS providers in tests. Its servers have the host names of the real APIs. A
// client reaches the servers through a proxy. The proxy terminates TLS with certificates of its own CA.
//
// The servers check authentication, including signatures, and store real record sets. They implement only the part of
// each API that we use.
package standin

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Zone is the zone that every stand-in serves.
const Zone = "example.test"

// PageHost is a server that is no API: it answers with a page, which says Page.
const (
	PageHost = "page.standin.invalid"
	Page     = "for the staff only"
)

func page(rw http.ResponseWriter, _ *http.Request) {
	http.Error(rw, "<p>"+Page+"</p>", http.StatusInternalServerError)
}

// World is a set of APIs. Its fields say who may do what; set them before Start.
type World struct {
	// Token is what bearer tokens and passwords have to be.
	Token string
	// Google is the public key of the service account.
	Google *rsa.PublicKey

	mu        sync.Mutex
	sets      map[string][]string // TXT values by name, with the trailing dot
	ids       map[string]string   // of records, for APIs that have them
	version   int                 // of all record sets together
	throttled bool
	waited    bool // for a change of Google's
	slow      chan struct{}
	ahead     string // what another writes ahead of the next change
	aheadAt   string // and where
	seen      []string

	ca    *x509.Certificate
	key   *ecdsa.PrivateKey
	hosts map[string]http.HandlerFunc
	proxy *http.Server
}

// New makes a World whose secrets are all derived from token.
func New(token string) *World {
	w := &World{Token: token, sets: map[string][]string{}, ids: map[string]string{}}
	w.hosts = map[string]http.HandlerFunc{
		"api.digitalocean.com": w.digitalOcean, "api.cloudflare.com": w.cloudflare,
		"dns.googleapis.com": w.cloudDNS, "oauth2.googleapis.com": w.googleToken,
		"management.azure.com": w.azure, "login.microsoftonline.com": w.azureLogin,
		"route53.amazonaws.com": w.route53, "sts.us-east-1.amazonaws.com": w.sts,
		AkamaiHost: w.akamai, PageHost: page,
	}
	return w
}

// Start serves until ctx ends, and writes the CA's certificate to caFile. It returns
// the address of the proxy.
func (w *World) Start(ctx context.Context, caFile string) (string, error) {
	var err error
	if w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stand-in CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, w.key.Public(), w.key)
	if err != nil {
		return "", err
	}
	if w.ca, err = x509.ParseCertificate(der); err != nil {
		return "", err
	}
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return "", err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	w.proxy = &http.Server{Handler: http.HandlerFunc(w.connect), ReadHeaderTimeout: time.Minute}
	go func() { _ = w.proxy.Serve(listener) }() // it ends when it is closed
	context.AfterFunc(ctx, func() { _ = w.proxy.Close() })
	return "http://" + listener.Addr().String(), nil
}

// connect is the proxy: it takes the place of the host that is asked for.
func (w *World) connect(rw http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	handler := w.hosts[host]
	if r.Method != http.MethodConnect || err != nil || handler == nil {
		http.Error(rw, "no stand-in for "+r.Host, http.StatusBadGateway)
		return
	}
	hijacker, ok := rw.(http.Hijacker)
	if !ok {
		return
	}
	raw, _, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer func() { _ = raw.Close() }()
	if _, err := io.WriteString(raw, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	conn := tls.Server(raw, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: w.certificate})
	reader := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		req.URL.Host, req.URL.Scheme, req.RemoteAddr = host, "https", r.RemoteAddr
		if !w.answer(conn, req, handler) {
			return
		}
	}
}

// answer serves one request of a connection; false ends it.
func (w *World) answer(conn net.Conn, req *http.Request, handler http.HandlerFunc) bool {
	w.mu.Lock()
	slow, throttled := w.slow, w.throttled
	if w.ahead != "" && req.Method != http.MethodGet && !strings.HasPrefix(req.Host, "login.") && !strings.HasPrefix(req.Host, "oauth2.") {
		w.set(w.aheadAt, append(slices.Clone(w.sets[w.aheadAt]), w.ahead))
		w.ahead = ""
	}
	w.seen = append(w.seen, req.Method+" "+req.Host+req.URL.RequestURI())
	w.mu.Unlock()
	if slow != nil {
		<-slow
	}
	response := &recorder{header: http.Header{}, status: http.StatusOK}
	if throttled {
		refuse(response, req.Host)
	} else {
		handler(response, req)
	}
	// What the handler left unread would be taken for the next request.
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return false
	}
	return response.send(conn) == nil
}

// refuse says in the words of an API that requests are too many.
func refuse(rw http.ResponseWriter, host string) {
	status, body := http.StatusTooManyRequests, `{"message": "rate limit exceeded", "errors": [{"code": 971, "message": "rate limited"}]}`
	switch name, _, _ := strings.Cut(host, ":"); name {
	case "dns.googleapis.com": // https://cloud.google.com/apis/design/errors
		status = http.StatusForbidden
		body = `{"error": {"code": 403, "message": "Rate Limit Exceeded", "errors": [{"domain": "usageLimits", "reason": "rateLimitExceeded"}]}}`
	case "route53.amazonaws.com": // https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/DNSLimitations.html
		status = http.StatusBadRequest
		body = `<ErrorResponse xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><Error><Type>Sender</Type><Code>Throttling</Code>` +
			`<Message>Rate exceeded</Message></Error><RequestId>7f1c4b0e-52a1-4f7e-8f1a-0c6a3f9f2b11</RequestId></ErrorResponse>`
	}
	rw.Header().Set("Retry-After", "7")
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, body) // into memory
}

func (w *World) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{hello.ServerName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, w.ca, w.key.Public(), w.key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: w.key}, err
}

// recorder is a response that is written when it is complete.
type recorder struct {
	header http.Header
	status int
	body   strings.Builder
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

func (r *recorder) send(w io.Writer) error {
	response := http.Response{
		StatusCode: r.status, ProtoMajor: 1, ProtoMinor: 1, Header: r.header,
		ContentLength: int64(r.body.Len()), Body: io.NopCloser(strings.NewReader(r.body.String())),
	}
	return response.Write(w)
}

// Throttle has every API refuse requests for being too many, or ends that.
func (w *World) Throttle(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.throttled = on
}

// Slow lets no API answer, or ends that.
func (w *World) Slow(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if on {
		w.slow = make(chan struct{})
		return
	}
	close(w.slow)
	w.slow = nil
}

// Values returns the TXT values at a name, which ends with a dot.
func (w *World) Values(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sets[strings.ToLower(name)])
}

// Put has another writer write a value.
func (w *World) Put(name, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set(name, append(w.sets[name], value))
}

// PutAhead lets another writer write a value when the next change arrives, just before it:
// whoever makes the change has read what is no longer so.
func (w *World) PutAhead(name, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.aheadAt, w.ahead = name, value
}

// Seen returns the requests so far, as method, host and path.
func (w *World) Seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// set replaces the values of a name. The caller holds the mutex.
func (w *World) set(name string, values []string) {
	w.version++
	if len(values) == 0 {
		delete(w.sets, name)
		return
	}
	w.sets[name] = values
}

func unquote(s string) string { return strings.Trim(s, `"`) }
