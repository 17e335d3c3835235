package readers_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/renewal"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// history is a year of a cluster, as the metrics of its controller tell it.
type history struct {
	begin time.Time
	// away are the times without a controller, idle those in which none leads.
	away, idle []span
	// metrics are told by the replica that leads.
	metrics []metric
	// wanted are the alerts that have to come; quiet are times that are watched closely, and in which none begins.
	wanted []raised
	quiet  []span
}

// metric is a metric of an object.
type metric struct {
	labels []string
	spans  []span
}

// raised is an alert, for the object that it names, and from when until when it fires.
type raised struct {
	alert, object string
	from, to      time.Time
}

func (r raised) String() string {
	return fmt.Sprintf("%s %q from %s to %s", r.alert, r.object, r.from.Format(time.DateTime), r.to.Format(time.DateTime))
}

// at is a time of the history.
func (h *history) at(since time.Duration) time.Time { return h.begin.Add(since) }

func (h *history) lasting(since, length time.Duration, value float64) span {
	return span{h.at(since).UnixMilli(), h.at(since + length).UnixMilli(), value}
}

func (h *history) tell(spans []span, labels ...string) {
	h.metrics = append(h.metrics, metric{labels, spans})
}

func (h *history) want(alert, object string, from, to time.Time) {
	h.wanted = append(h.wanted, raised{alert, object, from, to})
}

// certificate is the life of one Certificate. It is renewed some minutes after it is due, or as soon as a controller is
// there. The renewal that is due after late.from comes late.by later.
type certificate struct {
	name, issuer string
	life         time.Duration
	// first is when the first renewal is due, since the beginning.
	first time.Duration
	late  struct{ from, by time.Duration }
}

const never = 10 * year

// live tells of a Certificate through the year, and wants the alerts that its late renewal has to raise: those of loud.
func (h *history) live(c certificate, loud ...string) {
	crt := &certmanagerv1.Certificate{}
	crt.Name, crt.UID = c.name, types.UID(c.name)
	due := func(notBefore time.Time) time.Time {
		return renewal.Of(crt, notBefore, notBefore.Add(c.life), time.Time{}).At
	}
	issued := h.at(c.first).Add(-due(h.begin).Sub(h.begin))
	var renewals, ends, begins, ready []span
	for end := h.at(year); issued.Before(end); {
		notBefore, notAfter, renew := issued, issued.Add(c.life), due(issued)
		next := renew.Add(4 * time.Minute)
		if late := c.late; late.by > 0 && !renew.Before(h.at(late.from)) {
			next, c.late.by = renew.Add(late.by), 0
			if len(loud) == 0 {
				h.quiet = append(h.quiet, span{next.Add(-time.Hour).UnixMilli(), next.UnixMilli(), 0})
			}
			if slices.Contains(loud, "ChanceryCertificateRenewalLate") {
				h.want("ChanceryCertificateRenewalLate", c.name, renew.Add(min(day, notAfter.Sub(renew)/4)+15*time.Minute), next)
			}
			if slices.Contains(loud, "ChanceryCertificateExpiring") {
				h.want("ChanceryCertificateExpiring", c.name, notAfter.Add(-min(7*day, notAfter.Sub(renew)/4)+15*time.Minute), next)
			}
		}
		for _, away := range slices.Concat(h.away, h.idle) {
			if at := next.UnixMilli(); at >= away.from && at < away.to {
				next = time.UnixMilli(away.to).Add(time.Minute)
			}
		}
		from, to, expires := issued.UnixMilli(), next.UnixMilli(), notAfter.UnixMilli()
		begins = append(begins, span{from, to, float64(notBefore.Unix())})
		ends = append(ends, span{from, to, float64(notAfter.Unix())})
		renewals = append(renewals, span{from, to, float64(renew.Unix())})
		ready = append(ready, span{from, min(to, expires), 1}, span{min(to, expires), to, 0})
		issued = next
	}
	of := []string{"exported_namespace", "shop", "name", c.name, "issuer_name", c.issuer, "issuer_kind", "ClusterIssuer"}
	for name, spans := range map[string][]span{"expiration": ends, "not_before": begins, "renewal": renewals} {
		h.tell(spans, append(slices.Clone(of), labels.MetricName, "certmanager_certificate_"+name+"_timestamp_seconds")...)
	}
	h.tell(ready, append(slices.Clone(of), "condition", "True", labels.MetricName, "certmanager_certificate_ready_status")...)
}

// clip returns the parts of spans that are within others.
func clip(spans, within []span) (out []span) {
	for _, w := range within {
		i, _ := slices.BinarySearchFunc(spans, w.from, func(s span, at int64) int { return cmp.Compare(s.to, at+1) })
		for ; i < len(spans) && spans[i].from < w.to; i++ {
			out = append(out, span{max(spans[i].from, w.from), min(spans[i].to, w.to), spans[i].value})
		}
	}
	return out
}

// without returns the time of a span that is in no other.
func without(whole span, others []span) (out []span) {
	for _, o := range others {
		if o.from < whole.to && o.to > whole.from {
			out = append(out, span{whole.from, max(o.from, whole.from), whole.value})
			whole.from = min(o.to, whole.to)
		}
	}
	return append(out, whole)
}

// store is what Prometheus has of the history. The controller is replaced every month, and is then missed by a scrape:
// the label of the pod differs from then on, and counts begin at 0.
func (h *history) store(counts ...time.Duration) store {
	s := store{}
	const month = 30 * day
	for i := range int(year/month) + 1 {
		runs := h.lasting(time.Duration(i)*month, month-scrape-time.Second, 1)
		up := without(runs, h.away)
		var leads, idle []span
		for _, u := range up {
			leads = append(leads, without(u, h.idle)...)
		}
		for _, s := range clip(h.idle, up) {
			idle = append(idle, span{s.from, s.to, 0})
		}
		of := []string{"namespace", "cert-manager", "job", "cert-manager", "pod", "pod-" + strconv.Itoa(i)}
		add := func(spans []span, l ...string) { s.add(labels.FromStrings(append(l, of...)...), spans) }
		all := slices.Concat(leads, idle)
		slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		add(all, labels.MetricName, "chancery_leader")
		count := []span{{runs.from, runs.to, 0}}
		for _, at := range counts {
			if last := &count[len(count)-1]; h.at(at).UnixMilli() > runs.from && h.at(at).UnixMilli() < runs.to {
				count = append(count, span{h.at(at).UnixMilli(), runs.to, last.value + 1})
				count[len(count)-2].to = h.at(at).UnixMilli()
			}
		}
		add(clip(count, up), labels.MetricName, "chancery_events_total", "kind", "Challenge", "reason", "CleanUpAbandoned", "type", "Warning")
		for _, m := range h.metrics {
			add(clip(m.spans, leads), m.labels...)
		}
	}
	return s
}

// aYear has a thousand certificates, and what goes wrong with some of them.
func aYear() (*history, store) {
	h := &history{begin: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	// Down for 20 minutes, and for two hours; nobody leads for 90 minutes.
	h.away = []span{h.lasting(170*day, 20*time.Minute, 0), h.lasting(171*day, 2*time.Hour, 0)}
	h.idle = []span{h.lasting(172*day, 90*time.Minute, 0)}
	h.want("ChanceryDown", "", h.at(171*day+30*time.Minute), h.at(171*day+2*time.Hour))
	h.want("ChanceryNotLeading", "", h.at(172*day+30*time.Minute), h.at(172*day+90*time.Minute))

	h.quiet = []span{
		h.lasting(30*day, 4*time.Hour, 0), h.lasting(80*day, time.Hour, 0), h.lasting(90*day, 3*time.Hour, 0), h.lasting(170*day, time.Hour, 0),
		h.lasting(200*day+8*time.Hour, time.Hour, 0), h.lasting(210*day-time.Hour, 2*time.Hour, 0),
	}

	late := func(name, issuer string, life, from, by time.Duration, loud ...string) {
		c := certificate{name: name, issuer: issuer, life: life, first: from}
		c.late.from, c.late.by = from-time.Second, by
		h.live(c, loud...)
	}
	const warning, critical = "ChanceryCertificateRenewalLate", "ChanceryCertificateExpiring"
	late("never", "acme", 90*day, 175*day, never, warning, critical)
	late("healed", "acme", 90*day, 50*day, 20*time.Hour)
	late("three-days", "acme", 90*day, 52*day, 3*day, warning)
	late("short-healed", "acme", 6*day, 2*day, 12*time.Hour)
	late("short-late", "acme", 6*day, 2*day+time.Hour, 30*time.Hour, warning)
	late("long-late", "vault", year, 100*day, 40*time.Hour, warning)

	// An issuer is broken for three days; another one for 40 minutes.
	const broken, mended = 52*day + 6*time.Hour, 55*day + 6*time.Hour
	late("broken-at-once", "broken", 90*day, broken+time.Hour, mended-broken-time.Hour, warning)
	late("broken-at-last", "broken", 90*day, broken+60*time.Hour, mended-broken-60*time.Hour)
	late("broken-short", "broken", 6*day, 2*day+12*time.Hour, 4*time.Minute)
	h.tell([]span{h.lasting(0, broken, 1), h.lasting(broken, mended-broken, 0), h.lasting(mended, year-mended, 1)},
		labels.MetricName, "certmanager_clusterissuer_ready_status", "name", "broken", "condition", "True")
	h.want("ChanceryIssuerNotReady", "broken", h.at(broken+time.Hour), h.at(mended))
	h.tell([]span{h.lasting(0, 80*day, 1), h.lasting(80*day, 40*time.Minute, 0), h.lasting(80*day+40*time.Minute, 285*day, 1)},
		labels.MetricName, "certmanager_issuer_ready_status", "exported_namespace", "shop", "name", "brief", "condition", "True")

	// A Certificate is never issued at first: for ten hours, and for two.
	for name, empty := range map[string]time.Duration{"new": 10 * time.Hour, "new-quick": 2 * time.Hour} {
		h.tell([]span{h.lasting(90*day, empty, 0), h.lasting(90*day+empty, 275*day-empty, 1)},
			labels.MetricName, "certmanager_certificate_ready_status", "exported_namespace", "shop", "name", name, "issuer_name", "acme", "condition", "True")
	}
	h.want("ChanceryCertificateNotReady", "new", h.at(90*day+6*time.Hour), h.at(90*day+10*time.Hour))

	h.parks()
	h.challenges()
	h.authority()
	h.olderRoots()
	h.announced()
	h.pods()
	h.want("ChanceryCleanUpAbandoned", "", h.at(185*day), h.at(186*day))
	for i := range 990 {
		c := certificate{name: fmt.Sprintf("c%03d", i), issuer: "acme", life: 90 * day}
		switch {
		case i%5 == 1:
			c.life = 6 * day
		case i%5 == 2:
			c.life, c.issuer = year, "vault"
		}
		c.first = c.life / 2 * time.Duration(i) / 990
		h.live(c)
	}
	return h, h.store(185 * day)
}

// parks: the account of an issuer is parked for five hours, an hour at a time, and on another day for 40 minutes.
func (h *history) parks() {
	until := func(since time.Duration) float64 { return float64(h.at(since).Unix()) }
	spans := []span{h.lasting(0, 200*day, 0)}
	for hour := range 5 {
		at := 200*day + time.Duration(hour)*time.Hour
		spans = append(spans, h.lasting(at, time.Hour, until(at+time.Hour)))
	}
	spans = append(spans,
		h.lasting(200*day+5*time.Hour, 10*day-5*time.Hour, until(200*day+5*time.Hour)),
		h.lasting(210*day, 155*day, until(210*day+40*time.Minute)))
	h.tell(spans, labels.MetricName, "chancery_issuer_parked_until_timestamp_seconds", "kind", "ClusterIssuer", "name", "acme")
	h.want("ChanceryIssuerParked", "acme", h.at(200*day+3*time.Hour), h.at(200*day+5*time.Hour+15*time.Minute))
}

// authority: the CA of an issuer is valid until day 200, and is replaced two days before that. From day 175 on, a
// certificate by it is valid for longer. The CA of another issuer lives for ten days, and is renewed when three are
// left.
func (h *history) authority() {
	until := func(since time.Duration) float64 { return float64(h.at(since).Unix()) }
	const replaced = 198 * day
	of := []string{"kind", "ClusterIssuer", "name", "internal"}
	h.tell([]span{h.lasting(0, replaced, until(200*day)), h.lasting(replaced, year-replaced, until(10*year))},
		append(slices.Clone(of), labels.MetricName, "chancery_issuer_ca_expiration_timestamp_seconds")...)
	h.tell([]span{h.lasting(0, replaced, until(200*day-year)), h.lasting(replaced, year-replaced, until(replaced))},
		append(slices.Clone(of), labels.MetricName, "chancery_issuer_ca_not_before_timestamp_seconds")...)
	h.tell([]span{h.lasting(0, 175*day, until(190*day)), h.lasting(175*day, 190*day, until(500*day))},
		labels.MetricName, "certmanager_certificate_expiration_timestamp_seconds", "exported_namespace", "shop", "name", "by-internal",
		"issuer_name", "internal", "issuer_kind", "ClusterIssuer", "issuer_group", "cert-manager.io")
	h.want("ChanceryCAExpiring", "internal", h.at(170*day+15*time.Minute), h.at(replaced))
	h.want("ChanceryCAExpiringCritical", "internal", h.at(193*day+15*time.Minute), h.at(replaced))
	h.want("ChanceryCATooShort", "internal", h.at(175*day+time.Hour), h.at(replaced))

	var ends, begins []span
	for since := time.Duration(0); since < year; since += 7 * day {
		ends = append(ends, h.lasting(since, min(7*day, year-since), until(since+10*day)))
		begins = append(begins, h.lasting(since, min(7*day, year-since), until(since)))
	}
	of = []string{"kind", "Issuer", "exported_namespace", "shop", "name", "short-lived"}
	h.tell(ends, append(slices.Clone(of), labels.MetricName, "chancery_issuer_ca_expiration_timestamp_seconds")...)
	h.tell(begins, append(slices.Clone(of), labels.MetricName, "chancery_issuer_ca_not_before_timestamp_seconds")...)
}

// olderRoots: the CA of an issuer is replaced on day 40, its older root is valid until day 240, and five certificates
// by the earlier CA are not renewed before day 230. The CA of another issuer is replaced 30 days before its root
// expires, and everything is renewed in nine tenths of that time.
func (h *history) olderRoots() {
	seconds := func(since time.Duration) float64 { return float64(h.at(since).Unix()) }
	for _, c := range []struct {
		name                       string
		replaced, renewed, expires time.Duration
	}{{"rotated", 40 * day, 230 * day, 240 * day}, {"rotated-late", 60 * day, 87 * day, 90 * day}} {
		tell := func(metric string, spans ...span) {
			h.tell(spans, labels.MetricName, metric, "kind", "ClusterIssuer", "name", c.name)
		}
		tell("chancery_issuer_ca_first_seen_timestamp_seconds", h.lasting(0, c.replaced, seconds(0)), h.lasting(c.replaced, year-c.replaced, seconds(c.replaced)))
		tell("chancery_issuer_older_root_expiration_timestamp_seconds", h.lasting(c.replaced, c.expires-c.replaced, seconds(c.expires)))
		tell("chancery_issuer_earlier_ca_certificates", h.lasting(c.replaced, c.renewed-c.replaced, 5), h.lasting(c.renewed, year-c.renewed, 0))
	}
	h.want("ChanceryOlderRootExpiring", "rotated", h.at(226*day+15*time.Minute), h.at(230*day))
}

// announced: what a CA has announced for day 200 does not go with a field of a Certificate, which is corrected on day
// 120.
func (h *history) announced() {
	h.tell([]span{h.lasting(110*day, 10*day, float64(h.at(200*day).Unix()))}, labels.MetricName, "chancery_certificate_announced_timestamp_seconds",
		"exported_namespace", "shop", "name", "lasting", "issuer_name", "acme", "issuer_kind", "ClusterIssuer", "issuer_group", "cert-manager.io", "field", "duration")
	h.want("ChanceryCAChange", "lasting", h.at(110*day+time.Hour), h.at(120*day))
}

// pods: a right is missing for three hours, and the request that waits is replaced by another one every 17 minutes. On
// another day, Pods wait for their Services for a moment each. One is denied.
func (h *history) pods() {
	wait := func(name, reason string, since, length, kept time.Duration) {
		of := []string{"kind", "Issuer", "exported_namespace", "shop", "name", name, "reason", reason}
		h.tell([]span{h.lasting(since, length, 2)}, append(slices.Clone(of), labels.MetricName, "chancery_pod_certificate_requests_waiting")...)
		var ages []span
		for age := time.Duration(0); age < length; age += scrape {
			ages = append(ages, h.lasting(since+age, scrape, (age%kept).Seconds()))
		}
		h.tell(ages, append(of, labels.MetricName, "chancery_pod_certificate_requests_oldest_seconds")...)
	}
	wait("pods", "SignerForbidden", 160*day, 3*time.Hour, 17*time.Minute)
	wait("starting", "ServiceNotForPod", 162*day, 5*time.Hour, time.Minute)
	h.want("ChanceryPodRequestsWaiting", "pods", h.at(160*day+16*time.Minute), h.at(160*day+3*time.Hour+10*time.Minute))
	h.quiet = append(h.quiet, h.lasting(162*day, 5*time.Hour, 0))
	h.tell([]span{h.lasting(0, 187*day, 0), h.lasting(187*day, 178*day, 1)}, labels.MetricName, "chancery_pod_certificate_requests_total",
		"kind", "Issuer", "exported_namespace", "shop", "name", "pods", "result", "denied", "reason", "UnsupportedKeyType")
	h.want("ChanceryPodRequestsDenied", "pods", h.at(187*day), h.at(187*day+time.Hour))
}

// challenges: one a day ends after ten minutes. One cannot be presented for nine hours, one waits as long because the
// CA wants no requests, and one is queued for 26 hours.
func (h *history) challenges() {
	challenge := func(name, cause string, since, length time.Duration) {
		h.tell([]span{h.lasting(since, length, float64(h.at(since).Unix()))}, labels.MetricName, "chancery_challenge_created_timestamp_seconds",
			"exported_namespace", "shop", "name", name, "domain", name+".example.com", "type", "DNS-01", "processing", "true", "cause", cause)
	}
	for d := range 365 {
		challenge(fmt.Sprintf("day-%d", d), "SelfCheck", time.Duration(d)*day+time.Hour, 10*time.Minute)
	}
	challenge("solver", "Solver", 150*day, 9*time.Hour)
	challenge("limited", "RateLimited", 200*day, 9*time.Hour)
	challenge("queued", "", 152*day, 26*time.Hour)
	h.want("ChanceryChallengeStuck", "solver", h.at(150*day+2*time.Hour+10*time.Minute), h.at(150*day+9*time.Hour))
	h.want("ChanceryChallengeStuck", "queued", h.at(153*day+10*time.Minute), h.at(152*day+26*time.Hour))
}

// times are when a rule is evaluated: every two days, and every ten minutes while something is to happen.
func (h *history) times(t *testing.T, s store, r rule, patience time.Duration) (times []int64, holds map[int64][]string) {
	t.Helper()
	holds = map[int64][]string{}
	look := func(from, to time.Time, step time.Duration) {
		from, to = from.Truncate(step), to.Truncate(step)
		for at := from; !at.After(to); at = at.Add(step) {
			times = append(times, at.UnixMilli())
			holds[at.UnixMilli()] = nil
		}
		for _, series := range query(t, newEngine(), s, r.Expr, from, to, step) {
			for _, point := range series.Floats {
				holds[point.T] = append(holds[point.T], series.Metric.Get("name"))
			}
		}
	}
	const seldom, often, month = 47 * time.Hour, 10 * time.Minute, 30 * day
	for since := day; since < year; since += month { // a query takes as long as it finds pods
		look(h.at(since), h.at(min(since+month, year)-seldom), seldom)
	}
	for _, quiet := range h.quiet {
		look(time.UnixMilli(quiet.from), time.UnixMilli(quiet.to), often)
	}
	for _, want := range h.wanted {
		if want.alert != r.Alert {
			continue
		}
		look(want.from.Add(-patience-time.Hour), want.from.Add(time.Hour), often)
		if want.to.Before(h.at(year)) {
			look(want.to.Add(-time.Hour), want.to.Add(time.Hour), often)
		}
	}
	slices.Sort(times)
	return slices.Compact(times), holds
}

// alerts evaluates a rule, and returns what fires, as Prometheus has it: what holds for the time that the rule names.
func (h *history) alerts(t *testing.T, s store, r rule) (out []raised) {
	t.Helper()
	patience, err := time.ParseDuration(cmp.Or(r.For, "0s"))
	if err != nil {
		t.Fatal(err)
	}
	since, firing := map[string]time.Time{}, map[string]*raised{}
	times, holds := h.times(t, s, r, patience)
	for _, ms := range times {
		now, names := time.UnixMilli(ms).UTC(), holds[ms]
		for name := range since {
			if f := firing[name]; !slices.Contains(names, name) {
				if f != nil {
					f.to = now
					out = append(out, *f)
				}
				delete(since, name)
				delete(firing, name)
			}
		}
		for _, name := range names {
			if _, known := since[name]; !known {
				since[name] = now
			}
			if firing[name] == nil && now.Sub(since[name]) >= patience {
				firing[name] = &raised{alert: r.Alert, object: name, from: now}
			}
		}
	}
	for _, f := range firing {
		f.to = h.at(never)
		out = append(out, *f)
	}
	return out
}

// TestAYearOfAlerts: in a year of a thousand certificates, each thing that goes wrong raises its alert, on time and
// until it is mended, and nothing else raises one.
func TestAYearOfAlerts(t *testing.T) {
	t.Parallel()
	h, s := aYear()
	const tolerance = 30 * time.Minute
	near := func(got, want time.Time) bool {
		return want.After(h.at(year)) && got.After(h.at(year)) || got.Sub(want).Abs() <= tolerance
	}
	for _, r := range readRules(t) {
		t.Run(strings.TrimPrefix(r.Alert, "Chancery"), func(t *testing.T) {
			t.Parallel()
			got := h.alerts(t, s, r)
			tested := false
			for _, want := range h.wanted {
				if want.alert != r.Alert {
					continue
				}
				tested = true
				i := slices.IndexFunc(got, func(g raised) bool {
					return g.object == want.object && near(g.from, want.from) && near(g.to, want.to)
				})
				if i < 0 {
					t.Errorf("missing: %v", want)
					continue
				}
				got = slices.Delete(got, i, i+1)
			}
			for _, other := range got {
				t.Errorf("raised for nothing: %v", other)
			}
			if !tested {
				t.Error("nothing in the year raises it")
			}
		})
	}
}
