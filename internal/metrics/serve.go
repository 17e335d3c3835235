package metrics

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"chancery.dev/internal/fairshare"
)

// Source returns the objects to export; false while another replica exports them, because it leads, or while they are
// not known yet.
type Source func() (Objects, bool)

const (
	// atOnce bounds how many clients are served at once: each costs a list of all objects. The clients of one address
	// have half of that, so that slow readers do not keep Prometheus out.
	atOnce = 4
	// within is how long a client may take to read the answer.
	within = 30 * time.Second
)

// Controller is what the controller tells beside the metrics of its registry.
type Controller struct {
	Objects Source
	// Leads says whether this replica works: of several, one does.
	Leads func() bool
	Now   func() time.Time
	// Pods are the requests of Pods; may be nil.
	Pods *PodRequests
}

// Handler serves the metrics of a registry and, unless controller is nil, those of objects and of time. A client gets
// Prometheus' text format, or that of OpenMetrics if it takes that; compressed with gzip if it takes that. The names of
// samples are the same in both.
func Handler(registry prometheus.Gatherer, controller *Controller, log logr.Logger) http.Handler {
	places := fairshare.New(atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _, _ := net.SplitHostPort(r.RemoteAddr)
		if !places.Try(client) {
			http.Error(w, "others are being told already: come again", http.StatusServiceUnavailable)
			return
		}
		defer places.Free(client)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within)) // an error means that w is no connection, as in tests
		families, err := registry.Gather()
		if err != nil {
			http.Error(w, "cannot gather the metrics: "+err.Error(), http.StatusInternalServerError)
			return
		}
		format := expfmt.NegotiateIncludingOpenMetrics(r.Header)
		open := format.FormatType() == expfmt.TypeOpenMetrics
		if !open {
			format = expfmt.NewFormat(expfmt.TypeTextPlain)
		}
		w.Header().Set("Content-Type", string(format))
		var out io.Writer = w
		if takesGzip(r.Header.Get("Accept-Encoding")) {
			w.Header().Set("Content-Encoding", "gzip")
			compressed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // an error is one of the level
			defer func() { _ = compressed.Close() }()               // the client may have gone
			out = compressed
		}
		t := &text{w: out, open: open}
		err = errors.Join(t.registry(families, format), controller.write(r.Context(), t, families))
		if err != nil && r.Context().Err() == nil {
			log.Error(err, "metrics are missing in an answer")
		}
		if t.flush(); open {
			_, _ = io.WriteString(out, "# EOF\n")
		}
	})
}

func takesGzip(accepted string) bool {
	return strings.Contains(accepted, "gzip") && !strings.Contains(accepted, "gzip;q=0")
}

// registry writes what a registry has gathered.
func (t *text) registry(families []*dto.MetricFamily, format expfmt.Format) error {
	encoder := expfmt.NewEncoder(buffered{t}, format)
	for _, family := range families {
		if t.open && family.GetType() == dto.MetricType_COUNTER && !strings.HasSuffix(family.GetName(), "_total") {
			family = asUnknown(family)
		}
		if err := encoder.Encode(family); err != nil {
			return err
		}
	}
	return nil
}

// asUnknown returns a counter as a family of which OpenMetrics says no type. Names of counters end in _total there, and
// this one would get a name that no alert and no dashboard knows.
func asUnknown(family *dto.MetricFamily) *dto.MetricFamily {
	out := &dto.MetricFamily{Name: family.Name, Help: family.Help, Type: dto.MetricType_UNTYPED.Enum()}
	for _, m := range family.GetMetric() {
		out.Metric = append(out.Metric, &dto.Metric{Label: m.GetLabel(), Untyped: &dto.Untyped{Value: m.GetCounter().Value}})
	}
	return out
}

func (c *Controller) write(ctx context.Context, t *text, families []*dto.MetricFamily) error {
	if c == nil {
		return nil
	}
	leads := c.Leads()
	t.clock(c.Now())
	t.family("chancery_leader", gauge, "Whether this replica works: 1 for the one that leads, 0 for the others.")
	t.begin()
	t.end(truth(leads))
	if c.Pods != nil {
		c.Pods.write(t, leads, c.Now())
	}
	t.calls(families)
	if objects, ok := c.Objects(); ok {
		return objects.write(ctx, t, c.Now())
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
func (t *text) calls(families []*dto.MetricFamily) {
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
}
