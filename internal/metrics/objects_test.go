package metrics_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/metrics"
)

const want = `# HELP certmanager_certificate_ready_status Whether the Certificate's condition Ready has the status that the label condition names.
# TYPE certmanager_certificate_ready_status gauge
certmanager_certificate_ready_status{name="new",namespace="ns",issuer_name="i",issuer_kind="",issuer_group="",condition="True"} 0
certmanager_certificate_ready_status{name="new",namespace="ns",issuer_name="i",issuer_kind="",issuer_group="",condition="False"} 0
certmanager_certificate_ready_status{name="new",namespace="ns",issuer_name="i",issuer_kind="",issuer_group="",condition="Unknown"} 1
certmanager_certificate_ready_status{name="web",namespace="ns",issuer_name="ca",issuer_kind="ClusterIssuer",issuer_group="cert-manager.io",condition="True"} 1
certmanager_certificate_ready_status{name="web",namespace="ns",issuer_name="ca",issuer_kind="ClusterIssuer",issuer_group="cert-manager.io",condition="False"} 0
certmanager_certificate_ready_status{name="web",namespace="ns",issuer_name="ca",issuer_kind="ClusterIssuer",issuer_group="cert-manager.io",condition="Unknown"} 0
# HELP certmanager_certificate_expiration_timestamp_seconds When the certificate in the Secret expires, in seconds since 1970; 0 if there is none.
# TYPE certmanager_certificate_expiration_timestamp_seconds gauge
certmanager_certificate_expiration_timestamp_seconds{name="new",namespace="ns",issuer_name="i",issuer_kind="",issuer_group=""} 0
certmanager_certificate_expiration_timestamp_seconds{name="web",namespace="ns",issuer_name="ca",issuer_kind="ClusterIssuer",issuer_group="cert-manager.io"} 2.53402300799e+11
# HELP certmanager_certificate_not_after_timestamp_seconds When the certificate in the Secret expires, in seconds since 1970; 0 if there is none.
# TYPE certmanager_certificate_not_after_timestamp_seconds gauge
certmanager_certificate_not_after_timestamp_seconds{name="new",namespace="ns",issuer_name="i",issuer_kind="",issuer_group=""} 0
certmanager_certificate_not_after_timestamp_seconds{name="web",namespace="ns",issuer_name="ca",issuer_kind="ClusterIssuer",issuer_group="cert-manager.io"} 2.53402300799e+11
# HELP certmanager_certificate_not_before_timestamp_seconds From when on the certificate in the Secret is valid, in seconds since 1970; 0 if there is none.
# TYPE certmanager_certificate_not_before_timestamp_seconds gauge
certmanager_certificate_not_before_timestamp_seconds{name="new",namespace="ns",issuer_name="i",issuer_kind="",issuer_group=""} 0
certmanager_certificate_not_before_timestamp_seconds{name="web",namespace="ns",issuer_name="ca",issuer_kind="ClusterIssuer",issuer_group="cert-manager.io"} 1.7e+09
# HELP certmanager_certificate_renewal_timestamp_seconds When the certificate is going to be renewed, in seconds since 1970; 0 if that is not known.
# TYPE certmanager_certificate_renewal_timestamp_seconds gauge
certmanager_certificate_renewal_timestamp_seconds{name="new",namespace="ns",issuer_name="i",issuer_kind="",issuer_group=""} 0
certmanager_certificate_renewal_timestamp_seconds{name="web",namespace="ns",issuer_name="ca",issuer_kind="ClusterIssuer",issuer_group="cert-manager.io"} 1.750000001e+09
# HELP certmanager_certificate_challenge_status Whether the Challenge has the state that the label status names.
# TYPE certmanager_certificate_challenge_status gauge
certmanager_certificate_challenge_status{status="ready",domain="example.com",reason="it said \"no\\\\never\"\nand went",processing="true",name="c",namespace="ns",type="DNS-01"} 0
certmanager_certificate_challenge_status{status="valid",domain="example.com",reason="it said \"no\\\\never\"\nand went",processing="true",name="c",namespace="ns",type="DNS-01"} 0
certmanager_certificate_challenge_status{status="errored",domain="example.com",reason="it said \"no\\\\never\"\nand went",processing="true",name="c",namespace="ns",type="DNS-01"} 0
certmanager_certificate_challenge_status{status="expired",domain="example.com",reason="it said \"no\\\\never\"\nand went",processing="true",name="c",namespace="ns",type="DNS-01"} 0
certmanager_certificate_challenge_status{status="invalid",domain="example.com",reason="it said \"no\\\\never\"\nand went",processing="true",name="c",namespace="ns",type="DNS-01"} 0
certmanager_certificate_challenge_status{status="processing",domain="example.com",reason="it said \"no\\\\never\"\nand went",processing="true",name="c",namespace="ns",type="DNS-01"} 0
certmanager_certificate_challenge_status{status="",domain="example.com",reason="it said \"no\\\\never\"\nand went",processing="true",name="c",namespace="ns",type="DNS-01"} 0
certmanager_certificate_challenge_status{status="pending",domain="example.com",reason="it said \"no\\\\never\"\nand went",processing="true",name="c",namespace="ns",type="DNS-01"} 1
# HELP chancery_challenge_created_timestamp_seconds When a Challenge that is not finished yet was created, in seconds since 1970.
# TYPE chancery_challenge_created_timestamp_seconds gauge
chancery_challenge_created_timestamp_seconds{name="c",namespace="ns",domain="example.com",type="DNS-01",processing="true",cause="SelfCheck"} 1.740000001e+09
# HELP certmanager_issuer_ready_status Whether the Issuer's condition Ready has the status that the label condition names.
# TYPE certmanager_issuer_ready_status gauge
certmanager_issuer_ready_status{name="i",namespace="ns",condition="True"} 0
certmanager_issuer_ready_status{name="i",namespace="ns",condition="False"} 1
certmanager_issuer_ready_status{name="i",namespace="ns",condition="Unknown"} 0
# HELP certmanager_clusterissuer_ready_status Whether the ClusterIssuer's condition Ready has the status that the label condition names.
# TYPE certmanager_clusterissuer_ready_status gauge
certmanager_clusterissuer_ready_status{name="ca",condition="True"} 0
certmanager_clusterissuer_ready_status{name="ca",condition="False"} 0
certmanager_clusterissuer_ready_status{name="ca",condition="Unknown"} 1
# HELP chancery_issuer_ca_expiration_timestamp_seconds When the first of the certificates expires that a CA issuer signs with and delivers, in seconds since 1970.
# TYPE chancery_issuer_ca_expiration_timestamp_seconds gauge
chancery_issuer_ca_expiration_timestamp_seconds{kind="ClusterIssuer",namespace="",name="ca"} 1.9e+09
# HELP chancery_issuer_ca_not_before_timestamp_seconds From when on that certificate is valid which chancery_issuer_ca_expiration_timestamp_seconds is about, in seconds since 1970.
# TYPE chancery_issuer_ca_not_before_timestamp_seconds gauge
chancery_issuer_ca_not_before_timestamp_seconds{kind="ClusterIssuer",namespace="",name="ca"} 1.6e+09
# HELP chancery_issuer_older_root_expiration_timestamp_seconds When the first of the older roots expires that the Secret of a CA issuer still holds, in seconds since 1970.
# TYPE chancery_issuer_older_root_expiration_timestamp_seconds gauge
chancery_issuer_older_root_expiration_timestamp_seconds{kind="ClusterIssuer",namespace="",name="ca"} 1.78e+09
# HELP chancery_issuer_ca_first_seen_timestamp_seconds Since when a CA issuer is known to have its CA, in seconds since 1970.
# TYPE chancery_issuer_ca_first_seen_timestamp_seconds gauge
chancery_issuer_ca_first_seen_timestamp_seconds{kind="ClusterIssuer",namespace="",name="ca"} 1.7000001e+09
# HELP chancery_certificates How many Certificates stand as the label health says.
# TYPE chancery_certificates gauge
chancery_certificates{health="expired"} 0
chancery_certificates{health="late"} 1
chancery_certificates{health="failing"} 1
chancery_certificates{health="issuing"} 0
chancery_certificates{health="healthy"} 0
# HELP chancery_certificate_announced_timestamp_seconds From when on the field of the Certificate that the label field names cannot work, as a public CA has announced it, in seconds since 1970. It begins 90 days before.
# TYPE chancery_certificate_announced_timestamp_seconds gauge
chancery_certificate_announced_timestamp_seconds{name="new",namespace="ns",issuer_name="i",issuer_kind="",issuer_group="",field="usages"} 1.770768e+09
# HELP chancery_issuer_earlier_ca_certificates How many Certificates have a certificate by an earlier CA of their issuer, for issuers whose CA was replaced.
# TYPE chancery_issuer_earlier_ca_certificates gauge
chancery_issuer_earlier_ca_certificates{kind="ClusterIssuer",namespace="",name="ca"} 1
`

func objects(t *testing.T) metrics.Objects {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	at := func(seconds int64) *metav1.Time { return &metav1.Time{Time: time.Unix(seconds, 0)} }
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&certmanagerv1.Certificate{
			ObjectMeta: meta("web"),
			Spec:       certmanagerv1.CertificateSpec{IssuerRef: cmmeta.IssuerReference{Name: "ca", Kind: "ClusterIssuer", Group: "cert-manager.io"}},
			Status: certmanagerv1.CertificateStatus{
				Conditions: []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue}},
				NotBefore:  at(1_700_000_000), NotAfter: at(253_402_300_799), RenewalTime: at(1_750_000_001),
			},
		},
		&certmanagerv1.Certificate{ObjectMeta: meta("new"), Spec: certmanagerv1.CertificateSpec{
			IssuerRef: cmmeta.IssuerReference{Name: "i"}, Usages: []certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth},
		}},
		&acmev1.Challenge{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", CreationTimestamp: *at(1_740_000_001)}, Spec: acmev1.ChallengeSpec{DNSName: "example.com", Type: acmev1.ChallengeTypeDNS01},
			Status: acmev1.ChallengeStatus{State: acmev1.Pending, Processing: true, Reason: "it said \"no\\\\never\"\nand went", FailureClass: "SelfCheck"},
		},
		&certmanagerv1.Issuer{ObjectMeta: meta("i"), Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{Server: "https://acme-v02.api.letsencrypt.org/directory"}}, Status: certmanagerv1.IssuerStatus{
			Conditions: []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionFalse}},
		}},
		&certmanagerv1.ClusterIssuer{
			ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "ca"}},
			Status: certmanagerv1.IssuerStatus{CA: &certmanagerv1.CAIssuerStatus{
				NotBefore: at(1_600_000_000), NotAfter: at(1_900_000_000), FirstSeen: *at(1_700_000_100), Replaced: true,
				OlderRoots: []certmanagerv1.OlderRoot{{NotAfter: *at(1_800_000_000)}, {NotAfter: *at(1_780_000_000)}},
			}},
		},
	).Build()
	return metrics.Objects{Reader: reader, ClusterIssuers: true}
}

// get asks a handler for metrics.
func get(t *testing.T, h http.Handler, accept, encoding string) (string, *httptest.ResponseRecorder) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var body io.Reader = w.Body
	if w.Header().Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(w.Body); err != nil {
			t.Fatal(err)
		}
	}
	all, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(all), w
}

// newRegistry has a counter whose name ends as OpenMetrics wants it, and one whose name does not.
func newRegistry(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	for _, name := range []string{"a_total", "b_count"} {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "Help."})
		c.Add(2)
		if err := registry.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	return registry
}

// TestHandler: the metrics of the registry come first, then ours; compressed for who takes that, and those of objects
// only while they are ours to tell of.
func TestHandler(t *testing.T) {
	t.Parallel()
	mine, o := true, objects(t)
	now := func() time.Time { return time.Unix(1_764_000_000, 5) }
	h := metrics.Handler(newRegistry(t), &metrics.Controller{Objects: func() (metrics.Objects, bool) { return o, mine }, Leads: func() bool { return mine }, Now: now}, logr.Discard())
	const first = "# HELP a_total Help.\n# TYPE a_total counter\na_total 2\n# HELP b_count Help.\n# TYPE b_count counter\nb_count 2\n"
	for _, encoding := range []string{"", "gzip, deflate"} {
		got, w := get(t, h, "text/plain", encoding)
		if !strings.HasPrefix(got, first) || !strings.HasSuffix(got, want) || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Errorf("%v\n%s", w.Header(), got)
		}
		for _, line := range []string{
			"# TYPE certmanager_clock_time_seconds counter\ncertmanager_clock_time_seconds 1.764e+09\n", "\ncertmanager_clock_time_seconds_gauge 1.764e+09\n",
			"\nchancery_leader 1\n",
		} {
			if !strings.Contains(got, line) {
				t.Errorf("%q is missing in\n%s", line, got)
			}
		}
	}
	if _, w := get(t, h, "", "gzip;q=0"); w.Header().Get("Content-Encoding") != "" {
		t.Error("compressed for somebody who does not take that")
	}
	o.ClusterIssuers = false
	if got, _ := get(t, h, "", ""); strings.Contains(got, "clusterissuer") {
		t.Errorf("ClusterIssuers are told of:\n%s", got)
	}
	mine = false
	if got, _ := get(t, h, "", ""); strings.Contains(got, "certificate_ready") || !strings.Contains(got, "clock") || !strings.Contains(got, "\nchancery_leader 0\n") {
		t.Errorf("told although another replica leads:\n%s", got)
	}
	mine, o.Reader = true, failing{o.Reader}
	if got, _ := get(t, h, "", ""); !strings.HasPrefix(got, first) {
		t.Errorf("with a broken cache:\n%s", got)
	}
	if got, _ := get(t, metrics.Handler(newRegistry(t), nil, logr.Discard()), "", ""); got != first {
		t.Errorf("without a controller:\n%s", got)
	}
	broken := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("broken") })
	if got, w := get(t, metrics.Handler(broken, nil, logr.Discard()), "", "gzip"); w.Code != http.StatusInternalServerError || !strings.Contains(got, "broken") {
		t.Errorf("after an error of the registry: %d\n%s", w.Code, got)
	}
}

// TestOpenMetrics: who takes OpenMetrics gets it, and finds the samples under the names that they have in the text
// format.
func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	o := objects(t)
	now := func() time.Time { return time.Unix(1_764_000_000, 5) }
	h := metrics.Handler(newRegistry(t), &metrics.Controller{Objects: func() (metrics.Objects, bool) { return o, true }, Leads: func() bool { return true }, Now: now}, logr.Discard())
	const scraper = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
	for accept, kind := range map[string]string{
		scraper:                        "application/openmetrics-text; version=1.0.0",
		"application/openmetrics-text": "application/openmetrics-text; version=0.0.1",
		"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4":                                           "text/plain; version=0.0.4",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,text/plain;version=0.0.4": "text/plain; version=0.0.4",
	} {
		got, w := get(t, h, accept, "")
		if !strings.HasPrefix(w.Header().Get("Content-Type"), kind) {
			t.Errorf("%s: got %s", accept, w.Header().Get("Content-Type"))
		}
		if !strings.HasPrefix(kind, "application") {
			continue
		}
		const begins = "# HELP a Help.\n# TYPE a counter\na_total 2.0\n# HELP b_count Help.\n# TYPE b_count unknown\nb_count 2.0\n"
		if !strings.HasPrefix(got, begins) || !strings.HasSuffix(got, want+"# EOF\n") {
			t.Errorf("%s: got\n%s", accept, got)
		}
		if line := "# TYPE certmanager_clock_time_seconds unknown\ncertmanager_clock_time_seconds 1.764e+09\n"; !strings.Contains(got, line) {
			t.Errorf("%q is missing in\n%s", line, got)
		}
	}
}

type failing struct{ client.Reader }

func (failing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("broken")
}
