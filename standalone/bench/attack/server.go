// Package attack attacks a controller from one namespace. It makes objects as large as the API server takes, and
// objects that come and go. It also runs ACME, Vault and Venafi servers that send as much data as they can. Package
// bench measures the effect.
package attack

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// hostileHeaders and hostileBody are how many bytes hostile servers send, where they send as much as they can.
	hostileHeaders = 10 << 20
	hostileBody    = 64 << 20
)

// hostile is a server of every protocol that sends as much as it can. The first part of a path says how: "headers" and
// "bodies" send such, whatever is asked; "chains", "orders", "directories" and "challenges" are ACME servers with long
// chains and many alternates, large orders, large directories, and an order whose challenge has to be solved. The
// second part tells servers apart. "policyfits" and "policymost" are Venafi servers with large policies, and "silent"
// is an ACME server that never gives the result of a challenge.
type hostile struct {
	// plain and secure are its addresses by http and https, venafis those of Venafi servers by way, which have no path.
	plain, secure string
	venafis       map[string]string
	// bundle verifies https.
	bundle []byte
	// name is what challenges are for, and served counts the large answers.
	name   string
	served atomic.Int64

	headers, body, chain, order, profiles, policyFits, policyMost []byte

	silent silent
}

func startHostile(ctx context.Context, name string) (*hostile, error) {
	h := &hostile{name: name, body: bytes.Repeat([]byte(`"",`), 1<<20), venafis: map[string]string{}, silent: silent{told: map[string]bool{}}}
	h.policyFits, h.policyMost = policies(name)
	certificate, err := h.newCertificate()
	if err != nil {
		return nil, err
	}
	var headers bytes.Buffer
	headers.WriteString("HTTP/1.1 200 OK\r\n")
	for n := 0; headers.Len() < hostileHeaders; n++ {
		fmt.Fprintf(&headers, "%x:\r\n", n)
	}
	h.headers = append(headers.Bytes(), "\r\n"...)
	h.chain = bytes.Repeat(h.bundle, 15<<20/len(h.bundle))
	h.order = []byte(`{"status":"pending","finalize":"/f","authorizations":[` + strings.TrimSuffix(strings.Repeat(`"",`, 340_000), ",") + `]}`)
	h.profiles = []byte(`,"meta":{"profiles":{`)
	for n := range 60_000 {
		h.profiles = fmt.Appendf(h.profiles, `"%x":"",`, n)
	}
	h.profiles = append(bytes.TrimSuffix(h.profiles, []byte(",")), "}}"...)
	if h.plain, err = h.listen(ctx, nil, h); err != nil {
		return nil, err
	}
	secured := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	if h.secure, err = h.listen(ctx, secured, h); err != nil {
		return nil, err
	}
	for _, way := range venafiWays() {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = "/" + way + "/venafi" + r.URL.Path
			h.ServeHTTP(w, r)
		})
		if h.venafis[way], err = h.listen(ctx, secured, handler); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// listen serves on a port of its own until ctx ends: by https if it has a configuration.
func (h *hostile) listen(ctx context.Context, secured *tls.Config, handler http.Handler) (address string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = "http://" + listener.Addr().String()
	if secured != nil {
		address, listener = "https://"+listener.Addr().String(), tls.NewListener(listener, secured)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: handler}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }() // until it is closed
	return address, nil
}

// newCertificate makes the certificate of the https address, and its bundle.
func (h *hostile) newCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	h.bundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// ServeHTTP answers whatever the account, nonce, signature and credentials are.
func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) < 3 {
		http.NotFound(w, r)
		return
	}
	switch parts[0] {
	case "headers":
		h.sendHeaders(w)
	case "bodies":
		h.served.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"errors":[`)
		for sent := 0; sent < hostileBody && r.Context().Err() == nil; sent += len(h.body) {
			if _, err := w.Write(h.body); err != nil {
				return
			}
		}
	case "policyfits":
		h.venafi(w, parts[2], h.policyFits)
	case "policymost":
		h.venafi(w, parts[2], h.policyMost)
	default:
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		h.acme(w, parts[0], scheme+r.Host+"/"+parts[0]+"/"+parts[1], parts[2], asked)
	}
}

// sendHeaders sends many short lines.
func (h *hostile) sendHeaders(w http.ResponseWriter) {
	h.served.Add(1)
	raw, ok := w.(http.Hijacker)
	if !ok {
		return
	}
	conn, _, err := raw.Hijack()
	if err != nil {
		return
	}
	_, _ = conn.Write(h.headers) // as much as the other one reads
	_ = conn.Close()
}

// venafiWays are the ways of Venafi servers.
func venafiWays() []string { return []string{"headers", "bodies", "policyfits", "policymost"} }

// venafi answers the login and the question for the policy, and takes no request.
func (h *hostile) venafi(w http.ResponseWriter, what string, policy []byte) {
	w.Header().Set("Content-Type", "application/json")
	switch what {
	case "vedauth/authorize/verify":
		_, _ = fmt.Fprintf(w, `{"application":"chancery","expires_ISO8601":%q,"scope":"certificate:manage"}`, time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339))
	case "vedsdk/certificates/checkpolicy":
		h.served.Add(1)
		_, _ = w.Write(policy)
	default:
		w.WriteHeader(http.StatusBadGateway)
	}
}

func (h *hostile) acme(w http.ResponseWriter, way, base, what string, asked []byte) {
	w.Header().Set("Replay-Nonce", "nonce")
	created := func(format string, path string) {
		w.Header().Set("Location", base+path)
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, format, base)
	}
	switch {
	case what == "dir":
		_, _ = fmt.Fprintf(w, `{"newNonce":"%[1]s/nonce","newAccount":"%[1]s/account","newOrder":"%[1]s/order"`, base)
		if way == "directories" {
			h.served.Add(1)
			_, _ = w.Write(h.profiles)
		}
		_, _ = io.WriteString(w, "}")
	case what == "account":
		w.Header().Set("Location", base+"/account/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"status":"valid"}`)
	case way == "silent":
		h.silent.serve(w, base, what, asked)
	case what == "order" && way == "orders":
		h.served.Add(1)
		w.Header().Set("Location", base+"/order/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(h.order)
	case what == "order" && way == "chains":
		created(`{"status":"valid","finalize":"%[1]s/f","certificate":"%[1]s/chain","authorizations":["%[1]s/authz"]}`, "/order/1")
	case strings.HasPrefix(what, "order"):
		created(`{"status":"pending","finalize":"%[1]s/f","authorizations":["%[1]s/authz"]}`, "/order/1")
	case what == "authz":
		_, _ = fmt.Fprintf(w, `{"status":"pending","identifier":{"type":"dns","value":"%[2]s"},`+
			`"challenges":[{"type":"dns-01","url":"%[1]s/challenge","status":"pending","token":"token"}]}`, base, h.name)
	case strings.HasPrefix(what, "chain"):
		h.served.Add(1)
		for n := range 200 {
			w.Header().Add("Link", fmt.Sprintf(`<%s/chain/%d>;rel="alternate"`, base, n))
		}
		_, _ = w.Write(h.chain)
	}
}
