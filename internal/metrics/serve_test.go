package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"chancery.dev/internal/metrics"
)

// slow is an answer of which nothing is read until read is closed. It tells asked when it is written, or refused.
type slow struct {
	*httptest.ResponseRecorder

	asked, read chan struct{}
}

func (s slow) WriteHeader(code int) {
	s.ResponseRecorder.WriteHeader(code)
	if code != http.StatusOK {
		s.asked <- struct{}{}
	}
}

func (s slow) Write(b []byte) (int, error) {
	if s.Code == http.StatusOK {
		s.asked <- struct{}{}
		<-s.read
	}
	return s.ResponseRecorder.Write(b)
}

// TestSlowReadersKeepNobodyOut: the clients of one address have half of the places. Those of other addresses are
// answered beside them.
func TestSlowReadersKeepNobodyOut(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "something", Help: "It."}))
	handler := metrics.Handler(registry, nil, logr.Discard())
	ask := func(w http.ResponseWriter, from string) {
		r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		r.RemoteAddr = from
		handler.ServeHTTP(w, r)
	}
	const readers = 10
	asked, read, done := make(chan struct{}, 100*readers), make(chan struct{}), make(chan int, readers)
	for range readers {
		go func() {
			w := slow{httptest.NewRecorder(), asked, read}
			ask(w, "192.0.2.1:40000")
			done <- w.Code
		}()
		<-asked
	}
	for _, from := range []string{"192.0.2.2:40000", "[2001:db8::1]:40000"} {
		w := httptest.NewRecorder()
		if ask(w, from); w.Code != http.StatusOK {
			t.Errorf("%s gets %d: %s", from, w.Code, w.Body)
		}
	}
	close(read)
	answered := 0
	for range readers {
		if <-done == http.StatusOK {
			answered++
		}
	}
	if answered == 0 || answered > 2 {
		t.Errorf("%d of the slow readers had a place", answered)
	}
	w := httptest.NewRecorder()
	if ask(w, "192.0.2.1:40000"); w.Code != http.StatusOK {
		t.Errorf("once they are gone: %d", w.Code)
	}
}
