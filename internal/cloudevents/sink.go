// Package cloudevents sends events to the operator's receiver by HTTPS: CloudEvents 1.0 in structured JSON (HTTP
// protocol binding, section 3.2), signed as Standard Webhooks 1.0 describes.
//
// It sends once. When to send, and when to send again, is decided by internal/machine/notice and internal/engine.
package cloudevents

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
)

const (
	// Timeout bounds one request.
	Timeout = 10 * time.Second
	// minKey is the shortest key, in bytes: Standard Webhooks asks for 24 to 64.
	minKey = 24
	// keyPrefix precedes a key in base64.
	keyPrefix = "whsec_"
	// maxRetryAfter bounds what the receiver may ask for.
	maxRetryAfter = time.Hour
)

// Config says where events go.
type Config struct {
	// URL of the receiver, https.
	URL string
	// KeyFile holds the key of the signatures: base64 after whsec_, or the bytes themselves. A changed file is read again.
	KeyFile string
	// CAFile holds the certificates to trust, in PEM, in place of those of the system; may be empty.
	CAFile string
	// Source is the attribute source of the events: which cluster they come from.
	Source string
	// UserAgent of the requests.
	UserAgent string
}

// Enabled reports whether events are sent at all.
func (c Config) Enabled() bool { return c.URL != "" }

// SpeaksHTTPS reports whether the URL is one of an HTTPS server.
func (c Config) SpeaksHTTPS() bool {
	u, err := url.Parse(c.URL)
	return err == nil && u.Scheme == "https" && u.Host != ""
}

// Event is an event without what is the same for all.
type Event struct {
	ID, Type, Subject string
	Time              time.Time
	Data              any
}

// Sink sends events.
type Sink struct {
	c    Config
	http *http.Client
	now  func() time.Time
}

// New returns a Sink. It fails if the configuration cannot be used.
func New(c Config, now func() time.Time) (*Sink, error) {
	if !c.SpeaksHTTPS() {
		return nil, fmt.Errorf("the receiver of CloudEvents must be an https URL, not %q", c.URL)
	}
	s := &Sink{c: c, now: now}
	if _, err := s.key(); err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA certificates of the receiver of CloudEvents: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", c.CAFile)
		}
	}
	s.http = &http.Client{
		Timeout: Timeout,
		Transport: (*egress.Policy)(nil).Transport(&http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
		}, net.Dialer{}, limits.ShortBody),
		// What is signed is for this receiver, and for no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// key reads the key of the signatures.
func (s *Sink) key() ([]byte, error) {
	text, err := os.ReadFile(s.c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the key that signs CloudEvents: %w", err)
	}
	key := bytes.TrimSpace(text)
	if encoded, is := strings.CutPrefix(string(key), keyPrefix); is {
		if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, fmt.Errorf("%s: what follows %s is not base64", s.c.KeyFile, keyPrefix)
		}
	}
	if len(key) < minKey {
		return nil, fmt.Errorf("%s: the key has %d bytes, and must have %d at least", s.c.KeyFile, len(key), minKey)
	}
	return key, nil
}

// envelope is the JSON format of CloudEvents 1.0.
type envelope struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            any       `json:"data"`
}

// Send sends an event once. An answer other than 2xx is an error; a fault.Fault if the answer says when to come again,
// or if the receiver does not take the signature.
func (s *Sink) Send(ctx context.Context, e Event) error {
	body, err := json.Marshal(envelope{
		SpecVersion: "1.0", ID: e.ID, Source: s.c.Source, Type: e.Type, Subject: e.Subject, Time: e.Time,
		DataContentType: "application/json", Data: e.Data,
	})
	if err != nil {
		return fault.Terminal("CloudEvent", "encode the CloudEvent %s: %w", e.ID, err)
	}
	key, err := s.key()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.c.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	at := strconv.FormatInt(s.now().Unix(), 10)
	request.Header.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	request.Header.Set("User-Agent", s.c.UserAgent)
	request.Header.Set("Webhook-Id", e.ID)
	request.Header.Set("Webhook-Timestamp", at)
	request.Header.Set("Webhook-Signature", sign(key, e.ID, at, body))
	answer, err := s.http.Do(request)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the URL may have a token in it
		}
		return fmt.Errorf("send a CloudEvent to %s: %w", request.URL.Host, err)
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, answer.Body)
	return judge(request.URL.Host, answer)
}

// judge says what an answer means.
func judge(host string, answer *http.Response) error {
	const refused = "%s answers a CloudEvent with %s"
	said := fault.Quote(answer.Status)
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // a date counts as none
	wait := min(time.Duration(seconds)*time.Second, maxRetryAfter)
	switch code := answer.StatusCode; {
	case code/100 == 2:
		return nil
	case wait > 0:
		return fault.ClassRateLimited.Turn(wait, "CloudEvent", refused, host, said)
	case code == http.StatusTooManyRequests:
		return fault.ClassRateLimited.After(0, "CloudEvent", refused, host, said)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fault.ClassCredential.After(0, "CloudEvent", refused, host, said)
	default:
		return fmt.Errorf(refused, host, said)
	}
}

// sign returns the signature of Standard Webhooks: HMAC-SHA256 over identifier, time in seconds and body.
func sign(key []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
