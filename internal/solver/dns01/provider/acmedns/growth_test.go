package acmedns

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/growth"
)

// answering is a server that answers everything with a body, a byte at a time.
type answering struct {
	code int
	body string
}

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Header: http.Header{}, Body: io.NopCloser(iotest.OneByteReader(strings.NewReader(a.body))), Request: r}, nil
}

// reading is a server whose answer is what is left to read.
type reading struct{ *strings.Reader }

// RoundTrip implements http.RoundTripper.
func (a reading) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(a.Reader), Request: r}, nil
}

// TestAnswersOfAcmeDNSCostNoSquare: a server sends as much as is read, a byte at a time, whatever its status.
func TestAnswersOfAcmeDNSCostNoSquare(t *testing.T) {
	base := &url.URL{Scheme: "https", Host: "acme-dns.example"}
	bounds.Holds(t, "answer of acme-dns", func(n int) limits.Outcome {
		left := strings.NewReader(strings.Repeat("[", n))
		p := &Provider{client: New(&http.Client{Transport: reading{left}}, "test", nil), base: base}
		if err := p.update(t.Context(), registration{Subdomain: "a"}, "value"); err != nil {
			t.Error(err)
		}
		return bounds.Without(n, n-left.Len())
	})
	for _, code := range []int{http.StatusOK, http.StatusUnauthorized, http.StatusInternalServerError} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			growth.Linear(t, limits.ShortBody, func(size int) func() {
				p := &Provider{client: New(&http.Client{Transport: answering{code, strings.Repeat("[", size)}}, "test", nil), base: base}
				return func() {
					if err := p.update(t.Context(), registration{Subdomain: "a"}, "value"); (err == nil) != (code == http.StatusOK) {
						t.Fatal(err)
					}
				}
			})
		})
	}
}
