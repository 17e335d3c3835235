package pebble

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"sync"
)

const authzPath = "/authZ/"

// apart keeps orders from being made while authorizations are read. Pebble 2.10 locks its store and an authorization in
// one order for the one, and in the other for the other: with hundreds at once it comes to a standstill. It also keeps
// two registrations apart: Pebble goes on to write an account that the next request of the same key already reads.
func apart(h http.Handler) http.Handler {
	var lock sync.RWMutex
	var registration sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/order-plz":
			lock.Lock()
			defer lock.Unlock()
		case r.URL.Path == "/sign-me-up":
			registration.Lock()
			defer registration.Unlock()
		case strings.HasPrefix(r.URL.Path, authzPath):
			lock.RLock()
			defer lock.RUnlock()
		}
		h.ServeHTTP(w, r)
	})
}

// released gives back the locks of challenges that Pebble 2.10 keeps: it locks each challenge
// of an authorization to show it, and forgets to unlock those that it then leaves out. A
// validation of such a challenge that is under way, as when its authorization was
// deactivated meanwhile, would never end, nor would any request for the authorization.
func (s *Server) released(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, authzPath) {
			h.ServeHTTP(w, r)
			return
		}
		answer := &answer{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(answer, r)
		if answer.status == http.StatusOK {
			s.release(path.Base(r.URL.Path), answer.body.Bytes())
		}
		w.WriteHeader(answer.status)
		_, _ = w.Write(answer.body.Bytes())
	})
}

// release unlocks the challenges of the authorization that shown, its JSON, leaves out.
func (s *Server) release(id string, shown []byte) {
	var authz struct{ Challenges []struct{ URL string } }
	known := s.store.GetAuthorizationByID(id)
	if known == nil || json.Unmarshal(shown, &authz) != nil {
		return
	}
	urls := map[string]bool{}
	for _, c := range authz.Challenges {
		urls[c.URL] = true
	}
	for _, c := range known.Challenges {
		if !urls[c.URL] {
			c.RUnlock()
		}
	}
}

// answer holds a response back.
type answer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader keeps the status.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write keeps a part of the body.
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
