package metrics

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Source returns the objects to export; false while another replica exports them, because it leads, or while they are
// not known yet.
type Source func() (Objects, bool)

const (
	// atOnce bounds how many clients are served at once: each costs a list of all objects.
	atOnce = 4
	// within is how long a client may take to read the answer.
	within = 30 * time.Second
)

// Handler adds to what next serves, which is the text of the registry's metrics, those of objects
// and of time. A client gets text, compressed with gzip if it takes that.
func Handler(next http.Handler, source Source, now func() time.Time, log logr.Logger) http.Handler {
	places := make(chan struct{}, atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			http.Error(w, "others are being told already: come again", http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within)) // an error means that w is no connection, as in tests
		plain := r.Clone(r.Context())
		plain.Header.Del("Accept")
		plain.Header.Del("Accept-Encoding")
		first := &response{header: http.Header{}, status: http.StatusOK}
		next.ServeHTTP(first, plain)
		maps.Copy(w.Header(), first.header)
		if first.status != http.StatusOK {
			w.WriteHeader(first.status)
			_, _ = w.Write(first.body.Bytes())
			return
		}
		var out io.Writer = w
		if takesGzip(r.Header.Get("Accept-Encoding")) {
			w.Header().Set("Content-Encoding", "gzip")
			compressed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // an error is one of the level
			defer func() { _ = compressed.Close() }()               // the client may have gone
			out = compressed
		}
		_, _ = out.Write(first.body.Bytes())
		if err := write(r.Context(), out, source, now()); err != nil && r.Context().Err() == nil {
			log.Error(err, "metrics of Certificates, Challenges and issuers are missing in an answer")
		}
	})
}

func takesGzip(accepted string) bool {
	return strings.Contains(accepted, "gzip") && !strings.Contains(accepted, "gzip;q=0")
}

func write(ctx context.Context, out io.Writer, source Source, now time.Time) error {
	t := &text{w: out}
	t.clock(now)
	if err := t.calls(); err != nil {
		return err
	}
	t.flush()
	if objects, ok := source(); ok {
		return objects.WriteText(ctx, out)
	}
	return nil
}

// clock writes the time. A counter and a gauge of it are what cert-manager has.
func (t *text) clock(now time.Time) {
	for _, f := range [][2]string{{"certmanager_clock_time_seconds", counter}, {"certmanager_clock_time_seconds_gauge", gauge}} {
		t.family(f[0], f[1], "The controller's clock, in seconds since 1970.")
		t.begin()
		t.end(float64(now.Unix()))
	}
}

// calls writes how many reconciles each controller has made, and how many of them have failed.
func (t *text) calls() error {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return err
	}
	total, failed := map[string]float64{}, map[string]float64{}
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			controller, result := "", ""
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "controller":
					controller = l.GetValue()
				case "result":
					result = l.GetValue()
				}
			}
			n := m.GetCounter().GetValue()
			total[controller] += n
			if result != "error" {
				n = 0
			}
			failed[controller] += n
		}
	}
	for _, f := range []struct {
		name, help string
		of         map[string]float64
	}{
		{"certmanager_controller_sync_call_count", "How often the controller has looked at an object.", total},
		{"certmanager_controller_sync_error_count", "How often that failed.", failed},
	} {
		t.family(f.name, counter, f.help)
		for _, controller := range slices.Sorted(maps.Keys(f.of)) {
			t.begin()
			t.label("controller", controller)
			t.end(f.of[controller])
		}
	}
	return nil
}

// response is what another handler has answered.
type response struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header is that of the answer.
func (r *response) Header() http.Header { return r.header }

// WriteHeader notes the status.
func (r *response) WriteHeader(status int) { r.status = status }

// Write keeps a part of the body.
func (r *response) Write(p []byte) (int, error) { return r.body.Write(p) }
