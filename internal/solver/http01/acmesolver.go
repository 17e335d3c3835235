package http01

import (
	"net/http"
	"strings"
)

// ACMESolver answers one challenge: what the pod of a Challenge runs (spec §5.8).
type ACMESolver struct {
	// Domain is the host that is asked: a name, or an IP address without brackets.
	Domain string
	// Token and Key are those of the challenge.
	Token, Key string
}

// ServeHTTP implements http.Handler: it answers every method.
func (s ACMESolver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.URL.Path == "/" || req.URL.Path == "/healthz":
		w.WriteHeader(http.StatusOK)
	case req.URL.Path == wellKnown+s.Token && strings.EqualFold(Host(req.Host), s.Domain):
		writeAnswer(w, s.Key)
	default:
		http.NotFound(w, req)
	}
}
