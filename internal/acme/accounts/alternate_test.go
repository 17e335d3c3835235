package accounts

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/pki"
)

// TestAlternatesElsewhere: a proxy in front of a CA passes on the CA's links, and a firewall hides the CA. The
// certificate is had all the same. The same holds if an alternate is in a form that is not known, or is still to come.
// An alternate of the server itself that cannot be had now is asked for again.
func TestAlternatesElsewhere(t *testing.T) {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "root"}, NotBefore: now, NotAfter: now.Add(time.Hour), PublicKey: key.Public()}
	cert, err := pki.Sign(root, root, key)
	if err != nil {
		t.Fatal(err)
	}
	for link, had := range map[string]bool{"http://127.0.0.1:1/cert/1": true, "/broken": false, "/busy": false, "/later": true, "/form": true} {
		mux := http.NewServeMux()
		mux.HandleFunc("/dir", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"newNonce":"/nonce","newAccount":"/account","newOrder":"/order"}`)
		})
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Replay-Nonce", "n") })
		mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		for path, status := range map[string]int{"/busy": http.StatusServiceUnavailable, "/later": http.StatusAccepted} {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Replay-Nonce", "n")
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(status)
			})
		}
		mux.HandleFunc("/form", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Replay-Nonce", "n")
			w.Header().Set("Content-Type", "application/pem-certificate-chain-with-properties")
			_, _ = w.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE PROPERTIES", Bytes: []byte{0, 0}}))
		})
		mux.HandleFunc("/cert", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Replay-Nonce", "n")
			w.Header().Set("Link", "<"+link+`>;rel="alternate"`)
			_, _ = w.Write(pki.EncodeCertificates(cert))
		})
		server := httptest.NewServer(mux)
		defer server.Close()
		c, err := acmeclient.New(acmeclient.Options{DirectoryURL: server.URL + "/dir"})
		if err == nil {
			c, err = c.WithKey(key, server.URL+"/acct/1")
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, err := chain(t.Context(), c, server.URL+"/cert", "another root"); (err == nil) != had || had && len(text) == 0 {
			t.Errorf("an alternate at %s: %d bytes, %v", link, len(text), err)
		}
	}
}
