package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"chancery.dev/internal/findings"
	"chancery.dev/internal/rig/port"
)

// pairFiles writes a certificate for 127.0.0.1 and its key into two directories.
func pairFiles(t *testing.T) (c MetricsTLS, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c = MetricsTLS{CertFile: filepath.Join(t.TempDir(), "crt"), KeyFile: filepath.Join(t.TempDir(), "key")}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	for file, text := range map[string][]byte{c.CertFile: text, c.KeyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c, pool
}

// TestMetricsOverTLS: the certificate of the files is served, and no older version of TLS than is allowed.
func TestMetricsOverTLS(t *testing.T) {
	c, pool := pairFiles(t)
	c.MinVersion = "VersionTLS13"
	address, err := port.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := &runners{}
	open, err := (&Config{MetricsAddress: address.String(), MetricsTLS: c}).withMetrics(ports{healthAddress: "0", readyPath: "/readyz"}, m, &rest.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := open.serve(t.Context(), m, logr.Discard()); err != nil {
		t.Fatal(err)
	}
	m.run(t)
	get := func(conf *tls.Config) error {
		client := http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address.String()+"/metrics", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	if err := get(&tls.Config{RootCAs: pool}); err != nil {
		t.Fatal(err)
	}
	if err := get(&tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is spoken")
	}
}

// TestMetricsTLSIsChecked: what would not be served is refused at the start.
func TestMetricsTLSIsChecked(t *testing.T) {
	good, _ := pairFiles(t)
	dynamic := DynamicServing{SecretNamespace: "ns", SecretName: "ca", DNSNames: []string{"a.example.com"}, Life: time.Hour}
	for want, change := range map[string]func(*MetricsTLS){
		"":                              func(*MetricsTLS) {},
		"set both or none":              func(c *MetricsTLS) { c.KeyFile = "" },
		"no such file":                  func(c *MetricsTLS) { c.CertFile = "/does/not/exist" },
		"--metrics-tls-min-version":     func(c *MetricsTLS) { c.MinVersion = "1.3" },
		"none of crypto/tls":            func(c *MetricsTLS) { c.CipherSuites = []string{"TLS_RSA_WITH_RC4_128_SHA"} },
		"--metrics-tls-cipher-suites: ": func(c *MetricsTLS) { c.CipherSuites = []string{"x"} },
		"cannot be together with":       func(c *MetricsTLS) { c.Dynamic = dynamic },
		"--metrics-dynamic-serving-ca-secret-name: has to name a Secret": func(c *MetricsTLS) { c.Dynamic.DNSNames = dynamic.DNSNames },
		"-dns-names: has to have a name": func(c *MetricsTLS) {
			c.CertFile, c.KeyFile, c.Dynamic = "", "", DynamicServing{"ns", "ca", nil, time.Hour}
		},
		"-dns-names: must be DNS names": func(c *MetricsTLS) {
			c.CertFile, c.KeyFile, c.Dynamic = "", "", DynamicServing{"ns", "ca", []string{"*"}, time.Hour}
		},
		"-ca-secret-namespace: must be the name of a namespace": func(c *MetricsTLS) {
			c.CertFile, c.KeyFile, c.Dynamic = "", "", DynamicServing{"", "ca", []string{"a"}, time.Hour}
		},
		"-ca-secret-name: must be the name of a Secret": func(c *MetricsTLS) {
			c.CertFile, c.KeyFile, c.Dynamic = "", "", DynamicServing{"ns", "/", []string{"a"}, time.Hour}
		},
		"-leaf-duration: must be 1h0m0s or more": func(c *MetricsTLS) {
			c.CertFile, c.KeyFile, c.Dynamic = "", "", DynamicServing{"ns", "ca", []string{"a"}, time.Second}
		},
	} {
		c, f := good, findings.Findings{}
		change(&c)
		c.validate(&f)
		if (len(f) == 0) != (want == "") || len(f) > 0 && !strings.Contains(f[0].Error(), want) {
			t.Errorf("got %v, want %q", f, want)
		}
	}
}
