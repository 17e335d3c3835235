package cloudevents

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/fault"
)

const secret = "0123456789abcdef0123456789abcdef"

// receiver is an HTTPS server, and a configuration for it.
func receiver(t *testing.T, handle http.HandlerFunc) Config {
	t.Helper()
	server := httptest.NewTLSServer(handle)
	t.Cleanup(server.Close)
	return Config{
		URL: server.URL + "/hook?token=hidden", Source: "urn:test", UserAgent: "test",
		KeyFile: file(t, "whsec_"+base64.StdEncoding.EncodeToString([]byte(secret))+"\n"),
		CAFile:  file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))),
	}
}

func file(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestSend: a receiver finds a CloudEvent and a signature that it can check. A key that has changed is used at once.
func TestSend(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var body []byte
	var header http.Header
	c := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	})
	s, err := New(c, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	signed := func(key string) string {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte("id-1.1772366400." + string(body)))
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	for _, key := range []string{secret, strings.ToUpper(secret)} {
		if key != secret {
			if err := os.WriteFile(c.KeyFile, []byte(key), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Send(t.Context(), Event{ID: "id-1", Type: "dev.x", Subject: "shop/web", Time: now, Data: map[string]int{"n": 1}}); err != nil {
			t.Fatal(err)
		}
		if got, want := header.Get("webhook-signature"), signed(key); got != want || header.Get("webhook-id") != "id-1" || header.Get("webhook-timestamp") != "1772366400" {
			t.Errorf("signature %q, want %q; headers %v", got, want, header)
		}
	}
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	for attribute, want := range map[string]string{
		"specversion": "1.0", "id": "id-1", "source": "urn:test", "type": "dev.x", "subject": "shop/web",
		"time": "2026-03-01T12:00:00Z", "datacontenttype": "application/json",
	} {
		if got[attribute] != want {
			t.Errorf("%s is %v, want %s", attribute, got[attribute], want)
		}
	}
	if header.Get("Content-Type") != "application/cloudevents+json; charset=utf-8" || got["data"].(map[string]any)["n"] != 1.0 {
		t.Errorf("%v %s", header, body)
	}
}

// TestAnswers: what an answer that is not 2xx means. No error quotes the URL, which may have a token.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code  int
		after string
		class fault.Class
		delay time.Duration
	}{
		"unauthorized": {code: 401, class: fault.ClassCredential},
		"busy":         {code: 429, class: fault.ClassRateLimited},
		"later":        {code: 503, after: "90", class: fault.ClassRateLimited, delay: 90 * time.Second},
		"much later":   {code: 503, after: "864000", class: fault.ClassRateLimited, delay: time.Hour},
		"broken":       {code: 500},
		"elsewhere":    {code: 302},
	} {
		s, err := New(receiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/other")
			if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			w.WriteHeader(c.code)
		}), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Send(t.Context(), Event{ID: "1"})
		f := fault.Of(err)
		if err == nil || strings.Contains(err.Error(), "hidden") || (f != nil) != (c.class != "") || f != nil && (f.Class != c.class || f.Delay != c.delay) {
			t.Errorf("%s: %v (%+v)", name, err, f)
		}
	}
	gone := receiver(t, func(http.ResponseWriter, *http.Request) {})
	gone.URL = "https://127.0.0.1:1/?token=hidden"
	s, err := New(gone, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), Event{ID: "1"}); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("without a server: %v", err)
	}
}

// TestLongReason: an answer does not fill the status of a Certificate.
func TestLongReason(t *testing.T) {
	t.Parallel()
	err := judge("host", &http.Response{StatusCode: http.StatusInternalServerError, Status: "500 " + strings.Repeat("x", 1<<16)})
	if err == nil || len(err.Error()) > 1024 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

// TestNew: a configuration that cannot be used is refused at the start.
func TestNew(t *testing.T) {
	t.Parallel()
	good := receiver(t, func(http.ResponseWriter, *http.Request) {})
	for want, change := range map[string]func(*Config){
		"must be an https URL":     func(c *Config) { c.URL = "http://127.0.0.1" },
		"the key has 5 bytes":      func(c *Config) { c.KeyFile = file(t, "short") },
		"is not base64":            func(c *Config) { c.KeyFile = file(t, "whsec_!") },
		"has no certificate":       func(c *Config) { c.CAFile = file(t, "none") },
		"no such file":             func(c *Config) { c.KeyFile = "/none" },
		"read the CA certificates": func(c *Config) { c.CAFile = "/none" },
	} {
		c := good
		change(&c)
		if _, err := New(c, time.Now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := New(good, time.Now); err != nil || errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
