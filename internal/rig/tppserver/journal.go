package tppserver

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

// Exchange is what a server was sent.
type Exchange struct {
	// Call is method, path and query.
	Call   string
	Header http.Header
	// Body is the JSON of it, and Form the text.
	Body map[string]any
	Form string
}

// Text returns a member of the body that is a string.
func (e Exchange) Text(member string) string {
	v, _ := e.Body[member].(string)
	return v
}

// Journal is what a server was sent, in order. The zero value is ready.
type Journal struct {
	mu   sync.Mutex
	seen []Exchange
}

// Note reads a request and writes it down.
func (j *Journal) Note(r *http.Request) Exchange {
	body, _ := io.ReadAll(r.Body) // of a client that went away there is less
	e := Exchange{Call: r.Method + " " + r.URL.RequestURI(), Header: r.Header, Form: string(body)}
	_ = json.Unmarshal(body, &e.Body)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen = append(j.seen, e)
	return e
}

// Take returns what was written down, and forgets it.
func (j *Journal) Take() []Exchange {
	j.mu.Lock()
	defer j.mu.Unlock()
	seen := j.seen
	j.seen = nil
	return seen
}

// Answer answers with JSON.
func Answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
