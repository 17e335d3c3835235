package readers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	registry "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme/accounts"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/metrics"
	"chancery.dev/internal/rig/tool"
)

const (
	alertsFile    = "../../deploy/chart/files/alerts.yaml"
	dashboardFile = "../../deploy/chart/files/dashboard.json"
)

// rule is a rule of Prometheus.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func readRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 9 {
		t.Fatalf("there are not all alerts: %+v", file)
	}
	return file.Groups[0].Rules
}

// sample is one line of what a controller tells.
type sample struct {
	labels labels.Labels
	value  float64
}

// told is what Prometheus gets from a controller at that time that has each kind of object, and has made each kind of
// request. job and namespace are labels of the target.
func told(t *testing.T, now time.Time) []sample {
	t.Helper()
	traffic, err := metrics.NewACME()
	if err != nil {
		t.Fatal(err)
	}
	traffic.Observe(acmeclient.Observation{Action: acmeclient.ActionGetOrder, Method: "POST", Scheme: "https", Host: "told.invalid", Status: 429})
	acmeAccounts := accounts.New(accounts.Options{Now: func() time.Time { return now }})
	traffic.Follow(acmeAccounts)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	account, err := acmeAccounts.Open("told", accounts.Server{URL: "https://told.invalid/dir"}, key)
	if err != nil {
		t.Fatal(err)
	}
	acmeAccounts.Bind(accounts.Issuer{UID: "told", Name: "told"}, account)
	clientmetrics.RequestResult.Increment(t.Context(), "200", "GET", "told.invalid")
	own := prometheus.NewRegistry()
	others := map[string][]string{ // those of other packages
		"chancery_events_total": {"kind", "type", "reason"}, "controller_runtime_reconcile_total": {"controller", "result"},
	}
	for name, names := range others {
		counts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "Help."}, names)
		counts.WithLabelValues([]string{"Challenge", "Warning", "CleanUpAbandoned"}[:len(names)]...).Inc()
		own.MustRegister(counts)
	}
	// Controllers that run beside have the same for themselves, in the registry of the process.
	process := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := registry.Registry.Gather()
		return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return others[f.GetName()] != nil }), err
	})
	o, pods := objects(t), metrics.NewPodRequests()
	ofPods := types.NamespacedName{Namespace: "ns", Name: "i"}
	pods.AddIssuer(ofPods)
	pods.Waits("told", metrics.PodWait{Issuer: ofPods, Reason: "SignerForbidden", Since: now})
	w := httptest.NewRecorder()
	metrics.Handler(prometheus.Gatherers{own, process}, &metrics.Controller{
		Objects: func() (metrics.Objects, bool) { return o, true },
		Leads:   func() bool { return true },
		Now:     func() time.Time { return now },
		Pods:    pods,
	}, logr.Discard()).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	samples, err := parse(w.Body.String(), w.Header().Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

// objects are one of each kind, and a Certificate that nobody has looked at.
func objects(t *testing.T) metrics.Objects {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	at, never := metav1.Unix(1_700_000_000, 0), metav1.Unix(253_402_300_799, 0)
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: at}
	}
	crt := &certmanagerv1.Certificate{ObjectMeta: in("web")}
	crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: "ca", Kind: "ClusterIssuer", Group: "cert-manager.io"}
	crt.Status.NotBefore, crt.Status.NotAfter, crt.Status.RenewalTime = &at, &never, &at
	crt.Status.Conditions = []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue}}
	asking, public := &certmanagerv1.Certificate{ObjectMeta: in("new")}, &certmanagerv1.Issuer{ObjectMeta: in("i")}
	asking.Spec.IssuerRef.Name, asking.Spec.Usages = "i", []certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth}
	public.Spec.ACME = &acmev1.ACMEIssuer{Server: "https://acme-v02.api.letsencrypt.org/directory"}
	challenge := &acmev1.Challenge{ObjectMeta: in("c")}
	challenge.Spec.DNSName, challenge.Spec.Type = "example.com", acmev1.ChallengeTypeDNS01
	challenge.Status = acmev1.ChallengeStatus{State: acmev1.Pending, Processing: true, Reason: "it said \"no\\never\"\nand went", FailureClass: "SelfCheck"}
	issuer := &certmanagerv1.ClusterIssuer{ObjectMeta: named("ca")}
	issuer.Spec.CA = &certmanagerv1.CAIssuer{SecretName: "ca"}
	issuer.Status.CA = &certmanagerv1.CAIssuerStatus{NotBefore: &at, NotAfter: &never, FirstSeen: at, Replaced: true, OlderRoots: []certmanagerv1.OlderRoot{{NotAfter: never}}}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		crt, asking, challenge, public, issuer,
	).Build()
	return metrics.Objects{Reader: reader, ClusterIssuers: true}
}

// parse parses what /metrics has said, as Prometheus does.
func parse(body, contentType string) (out []sample, err error) {
	parser, err := textparse.New([]byte(body), contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return nil, err
	}
	for {
		switch entry, err := parser.Next(); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		case entry == textparse.EntrySeries:
			s := sample{}
			parser.Labels(&s.labels)
			_, _, s.value = parser.Series()
			out = append(out, s)
		}
	}
}

// ofTarget are the labels that Prometheus adds.
var ofTarget = []string{"job", "namespace", "pod", "instance", "exported_namespace"}

// checkQuery fails the test unless each metric of a query is told, with the labels that the query asks for.
func checkQuery(t *testing.T, where, query string, told []sample) {
	t.Helper()
	expr, err := parser.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	all := map[string]bool{"kind": true} // label_replace makes one
	for _, name := range ofTarget {
		all[name] = true
	}
	for _, s := range told {
		s.labels.Range(func(l labels.Label) { all[l.Name] = true })
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			for _, m := range n.LabelMatchers {
				if !slices.ContainsFunc(told, func(s sample) bool { return hasLabel(s, n.LabelMatchers, m) }) {
					t.Errorf("%s: no metric has %s, which %s asks for", where, m, n)
				}
			}
		case *parser.AggregateExpr:
			for _, name := range n.Grouping {
				if !all[name] {
					t.Errorf("%s: no metric has the label %s", where, name)
				}
			}
		}
		return nil
	})
}

// hasLabel reports whether a sample has the name that matchers ask for, and the label of one of them. Values are only
// compared where they are words of ours.
func hasLabel(s sample, matchers []*labels.Matcher, m *labels.Matcher) bool {
	for _, name := range matchers {
		if name.Name == labels.MetricName && !name.Matches(s.labels.Get(labels.MetricName)) {
			return false
		}
	}
	switch m.Name {
	case labels.MetricName, "condition", "quantile":
		return m.Matches(s.labels.Get(m.Name))
	}
	return s.labels.Has(m.Name) || slices.Contains(ofTarget, m.Name)
}

// TestAlerts: each alert asks for metrics that there are, says how bad it is and what to do, and has its section.
func TestAlerts(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	told := told(t, time.Unix(1_764_000_000, 0))
	for _, r := range readRules(t) {
		checkQuery(t, r.Alert, r.Expr, told)
		if want := "https://chancery.dev/docs/alerts#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %q, not to %s", r.Alert, r.Annotations["runbook_url"], want)
		}
		_, section, found := strings.Cut(string(page), "\n## "+r.Alert+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, part := range []string{"**Meaning.** ", "**Impact.** ", "**Steps.**"} {
			if !strings.Contains(section, part) {
				t.Errorf("the section of %s (there: %v) has no %q", r.Alert, found, part)
			}
		}
		if severity := r.Labels["severity"]; !strings.Contains(string(page), fmt.Sprintf("| [%s](#%s) | %s |", r.Alert, strings.ToLower(r.Alert), severity)) {
			t.Errorf("the table does not have %s with the severity %s", r.Alert, severity)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s says nothing: %v", r.Alert, r.Annotations)
		}
	}
}

// TestAlertsByPromtool: promtool, as users have it, takes the rules, and each of them is raised by its history only.
func TestAlertsByPromtool(t *testing.T) {
	t.Parallel()
	promtool := tool.Path(t, "promtool")
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", "testdata/alerts_test.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestDashboard: each panel has a query, and asks for metrics that there are.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	told, ids := told(t, time.Unix(1_764_000_000, 0)), map[int]bool{}
	for _, panel := range dashboard.Panels {
		if len(panel.Targets) == 0 || ids[panel.ID] {
			t.Errorf("panel %d (%s) has no query, or the number of another one", panel.ID, panel.Title)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			checkQuery(t, panel.Title, target.Expr, told)
		}
	}
	if len(ids) < 10 {
		t.Errorf("there are only %d panels", len(ids))
	}
}
