package cli

import (
	"net/http"

	"k8s.io/client-go/rest"

	"chancery.dev/internal/processors"
)

// fitProcessors has a controller that is connected by rc use as many processors as it has
// work for, once it has been started by the returned function. Whatever a controller does it
// tells the API server of: that it works is seen by its requests.
func fitProcessors(rc *rest.Config) (start func()) {
	g := processors.New()
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return working{next, g.Work} })
	return g.Start
}

// working tells of each request.
type working struct {
	http.RoundTripper

	tell func()
}

// RoundTrip implements http.RoundTripper.
func (w working) RoundTrip(req *http.Request) (*http.Response, error) {
	w.tell()
	return w.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find what is wrapped.
func (w working) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }
