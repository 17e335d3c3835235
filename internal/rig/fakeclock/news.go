package fakeclock

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"time"
)

// Wrap counts what a client asks of an API server as something that is going on: each
// request until it is answered, and each write until a watch has told of it. The client is to
// speak JSON.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("watch") != "" {
			response, err := next.RoundTrip(r)
			if err == nil {
				response.Body = &watching{ReadCloser: response.Body, clock: c}
			}
			return response, err
		}
		defer c.Begin()()
		response, err := next.RoundTrip(r)
		if err != nil || r.Method == http.MethodGet {
			return response, err
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		var object struct {
			Metadata struct{ ResourceVersion string }
		}
		if json.Unmarshal(body, &object) == nil && object.Metadata.ResourceVersion != "" {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.news.wrote(object.Metadata.ResourceVersion)
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// watching is the body of a watch, which it reads along.
type watching struct {
	io.ReadCloser

	clock *Clock
	rest  []byte
}

// Read implements io.Reader.
func (w *watching) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		c := w.clock
		c.mu.Lock()
		defer c.mu.Unlock()
		c.since = time.Now()
		w.rest = c.news.read(append(w.rest, p[:n]...))
	}
	return n, err
}

// news is what watches tell of writes, in JSON.
type news struct {
	// overdue is for how long the event of a write is waited for. Writes that changed nothing, and
	// those of what nobody watches, have none.
	overdue time.Duration
	// untold are the versions of writes that no watch has told of, and when they were made.
	untold map[string]time.Time
	// known are the versions that watches have told of.
	known map[string]bool
}

func newNews() news {
	return news{overdue: 3 * time.Second, untold: map[string]time.Time{}, known: map[string]bool{}}
}

func (n *news) wrote(version string) {
	if !n.known[version] {
		n.untold[version] = time.Now()
	}
}

// told reports whether there is nothing to wait for.
func (n *news) told() bool {
	maps.DeleteFunc(n.untold, func(_ string, at time.Time) bool { return time.Since(at) > n.overdue })
	return len(n.untold) == 0
}

var versionField = []byte(`"resourceVersion":"`)

// read finds the versions in a piece of a watch. It returns the end that may be half of one.
func (n *news) read(text []byte) (rest []byte) {
	for {
		i := bytes.Index(text, versionField)
		if i < 0 {
			return bytes.Clone(text[max(0, len(text)-len(versionField)):])
		}
		version, after, whole := bytes.Cut(text[i+len(versionField):], []byte{'"'})
		if !whole {
			return bytes.Clone(text[i:])
		}
		n.known[string(version)] = true
		delete(n.untold, string(version))
		text = after
	}
}
