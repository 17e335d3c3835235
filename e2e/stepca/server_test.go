package stepca

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// server is a running step-ca.
type server struct {
	// directory is where ACME clients start.
	directory string
	// root is that of what is issued, and of what the server itself shows.
	root *x509.Certificate
}

// authority makes a CA certificate, self-signed if parent is nil.
func authority(t *testing.T, name string, parent *x509.Certificate, by crypto.Signer) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// start runs a step-ca that asks that DNS server, and validates HTTP-01 on that port.
func start(t *testing.T, resolver string, httpPort int) *server {
	t.Helper()
	binary := os.Getenv("CHANCERY_STEP_CA_BIN")
	if binary == "" {
		t.Fatal("no step-ca for this test: run make e2e, or build it and set CHANCERY_STEP_CA_BIN to bin/step-ca")
	}
	dir, address := t.TempDir(), rig.FreeAddress(t).String()
	s := &server{directory: "https://" + address + "/acme/acme/directory"}
	var rootKey crypto.Signer
	s.root, rootKey = authority(t, "step root", nil, nil)
	intermediate, key := authority(t, "step intermediate", s.root, rootKey)
	encoded, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	config, err := json.Marshal(map[string]any{
		"root": path("root.crt"), "crt": path("intermediate.crt"), "key": path("intermediate.key"),
		"address": address, "dnsNames": []string{"127.0.0.1"},
		"db":        map[string]any{"type": "badgerv2", "dataSource": path("db")},
		"authority": map[string]any{"provisioners": []any{map[string]any{"type": "ACME", "name": "acme"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"root.crt": pki.EncodeCertificates(s.root), "intermediate.crt": pki.EncodeCertificates(intermediate),
		"intermediate.key": encoded, "ca.json": config,
	} {
		if err := os.WriteFile(path(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(path("log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, path("ca.json"), "--resolver", resolver,
		"--insecure", "--acme-http-port", strconv.Itoa(httpPort))
	cmd.Env = append(os.Environ(), "HOME="+dir, "STEPPATH="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(path("log"))
			t.Logf("step-ca's last words:\n%s", text[max(0, len(text)-6000):])
		}
	})
	s.await(t)
	return s
}

func (s *server) await(t *testing.T) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.root)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	rig.Eventually(t, "step-ca is ready", func(ctx context.Context) string {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.directory, http.NoBody)
		if err != nil {
			return err.Error()
		}
		resp, err := client.Do(req)
		if err != nil {
			return err.Error()
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
}
