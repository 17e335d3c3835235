package client_test

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/acme/client"
)

// TestNoDirectory: what is in the place of a directory is asked about, and a server that is out of order is not.
func TestNoDirectory(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		asks   bool
	}{
		"a page for people": {reply(200, "text/html", "<html><title>Our CA</title></html>"), true},
		"another API":       {reply(200, "application/json", `{"status":"ok"}`), true},
		"no page":           {reply(404, "text/html", "<html>"), true},
		"a page elsewhere":  {reply(302, "", "", "Location", "http://127.0.0.1:1/"), false},
		"busy":              {reply(429, "text/html", "<html>"), false},
		"out of order":      {reply(503, "text/html", "<html>"), false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(tc.answer))
			t.Cleanup(server.Close)
			c, err := client.New(client.Options{DirectoryURL: server.URL + "/"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = c.Directory(t.Context()); err == nil || strings.Contains(err.Error(), "is this the URL of an ACME v2 directory?") != tc.asks {
				t.Error(err)
			}
		})
	}
}

// TestExpiredServer: that the certificate of a server has expired is said in the same words each time, without the time
// that it is now: they end up in a condition.
func TestExpiredServer(t *testing.T) {
	t.Parallel()
	key := ecKey(t, elliptic.P256())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	trusting, err := client.NewHTTPClient(client.HTTPOptions{CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{DirectoryURL: server.URL + "/dir", HTTPClient: trusting})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Directory(t.Context())
	if err == nil || !strings.Contains(err.Error(), "good only from "+template.NotBefore.UTC().Format(time.RFC3339)) || strings.Contains(err.Error(), "current time") {
		t.Error(err)
	}
}
