package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"testing"

	"chancery.dev/internal/rig/port"
)

// FreeAddress returns an address on loopback where nobody listens.
func FreeAddress(t testing.TB) netip.AddrPort {
	t.Helper()
	address, err := port.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// Metrics asks a server for /metrics over TLS, in a format. It has to have a certificate for a name, by a CA in PEM.
func Metrics(ctx context.Context, address, format, name string, ca []byte) (body string, header http.Header, err error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Accept", format)
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return string(text), res.Header, err
}
