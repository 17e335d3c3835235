package app

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/machine/service"
)

func TestDefaultConfigIsValid(t *testing.T) {
	cfg := DefaultConfig()
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// TestDefaultElection: a leader that was killed is replaced within 20 seconds, also where the lease may not be watched,
// and stops long enough before that for its last requests to end. TestLeaseHandover shows that these times mean that.
func TestDefaultElection(t *testing.T) {
	e := DefaultElection()
	if replaced := e.LeaseDuration + e.RetryPeriod; replaced > 18*time.Second {
		t.Errorf("a leader is replaced after %s", replaced)
	}
	if e.LeaseDuration-e.RenewDeadline < 5*time.Second || e.RenewDeadline < 3*e.RetryPeriod {
		t.Errorf("%+v leave no time for what is under way, or for a renewal that fails", e)
	}
}

// Every mistake names its flag, what is wrong, and all are said at once.
func TestValidate(t *testing.T) {
	everything := DefaultConfig()
	var all []string
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.ClusterResourceNamespace = "" }, "--cluster-resource-namespace: must not be empty: ClusterIssuers keep their Secrets there"},
		{func(c *Config) { c.Namespaces = []string{"shop", "Web_1"} }, `--namespace: must be the name of a namespace, not "Web_1"`},
		{func(c *Config) { c.MetricsAddress = "127.0.0.1" }, `--metrics-listen-address: must be host:port, or 0 for none, not "127.0.0.1"`},
		{func(c *Config) { c.HealthAddress = ":soup" }, `--internal-healthz-listen-address: must be host:port, or 0 for none, not ":soup"`},
		{func(c *Config) { c.ProfilerAddress = "localhost:70000" }, `--profiler-address: must be host:port, not "localhost:70000"`},
		{func(c *Config) { c.Workers = 0 }, "--concurrent-workers: must be at least 1, not 0"},
		{
			func(c *Config) { c.LeaseDuration, c.RenewDeadline = 15900*time.Millisecond, 15500*time.Millisecond },
			"--leader-election-renew-deadline: 15.5s must be less than --leader-election-lease-duration 15s, in whole seconds",
		},
		{
			func(c *Config) { c.Backoff.Min = 33 * time.Hour },
			"--certificate-request-minimum-backoff-duration: 33h0m0s must not exceed --certificate-request-maximum-backoff-duration 32h0m0s",
		},
		{
			func(c *Config) { c.CSRMachineGroups = []string{"system:masters"} },
			`--csr-approval-machine-groups: must be system:nodes, system:bootstrappers or system:bootstrappers:…, but one is "system:masters": the requests of other groups do not wait for consent`,
		},
		{func(c *Config) { c.ACME.Limits.Cap = -1 }, "--max-concurrent-challenges: must not be negative, but is -1"},
		{func(c *Config) { c.ACME.Limits.IssuerCap = -1 }, "--max-concurrent-challenges-per-issuer: must not be negative, but is -1"},
		{func(c *Config) { c.ACME.Limits.ClassCap = -1 }, "--max-concurrent-challenges-per-ingress-class: must not be negative, but is -1"},
		{func(c *Config) { c.ACME.CheckRetryPeriod = 999 * time.Millisecond }, "--dns01-check-retry-period: must be at least 1s, not 999ms"},
		{func(c *Config) { c.ACME.AuthoritativePort = -1 }, "--dns01-authoritative-port: must be a port, 1 to 65535, or 0, not -1"},
		{func(c *Config) { c.ACME.HTTP01Port = 70000 }, "--http01-self-check-port: must be a port, 1 to 65535, or 0, not 70000"},
		{func(c *Config) { c.ACME.HTTP01Passes = 11 }, "--http01-self-check-passes: must be 1 to 10, not 11"},
		{func(c *Config) { c.ACME.HTTP01Address = "soup" }, `--http01-listen-address: must be host:port, not "soup"`},
		{func(c *Config) { c.ACME.HTTP01Pods.Mode = "pods" }, `--acme-http01-mode: must be auto, responder or pod, not "pods"`},
		{func(c *Config) { c.ACME.HTTP01Pods.Image = "" }, "--acme-http01-solver-image: must not be empty"},
		{
			func(c *Config) {
				c.ACME.HTTP01Pods.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}
			},
			"--acme-http01-solver-resource-request-cpu: 200m must not exceed --acme-http01-solver-resource-limits-cpu 100m",
		},
		{func(c *Config) { c.ACME.TLSALPN01Port = -1 }, "--tlsalpn01-self-check-port: must be a port, 1 to 65535, or 0, not -1"},
		{func(c *Config) { c.ACME.TLSALPN01Address = "soup" }, `--tlsalpn01-listen-address: must be host:port, not "soup"`},
		{
			func(c *Config) { c.ACME.HTTP01Hosts = []string{"*=*", "shop"} },
			`--http01-hosts: must be NAMESPACE=PATTERN, such as shop=*.shop.example.com or *=*, not "shop"`,
		},
		{
			func(c *Config) { c.ACME.TLSALPN01Hosts = []string{"a=b=c"} },
			`--tlsalpn01-hosts: must be NAMESPACE=PATTERN, such as shop=*.shop.example.com or *=*, not "a=b=c"`,
		},
		{
			func(c *Config) { c.ACME.HTTP01Nameservers = []string{"192.0.2.1:53", "192.0.2.1"} },
			`--acme-http01-solver-nameservers: must be host:port, not "192.0.2.1"`,
		},
		{
			func(c *Config) { c.ACME.HTTP01ExtraLabels = map[string]string{"team": "web", "a b": "c"} },
			`--acme-http01-solver-extra-labels: must be labels such as team=web or example.com/team=web, not "a b=c"`,
		},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		c.change(&everything)
		all = append(all, c.want)
		if err := cfg.Validate(); err == nil || err.Error() != c.want {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
	if err := everything.Validate(); err == nil || err.Error() != strings.Join(all, "\n") {
		t.Errorf("got %v\nwant %s", err, strings.Join(all, "\n"))
	}
	for flag, change := range map[string]func(*Config){
		"--leader-election-retry-period":                 func(c *Config) { c.RetryPeriod = 0 },
		"--certificate-request-minimum-backoff-duration": func(c *Config) { c.Backoff.Min = -time.Hour },
		"--cluster-resource-namespace":                   func(c *Config) { c.ClusterResourceNamespace = "Web_1" },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), flag+": must ") {
			t.Errorf("got %v, want what is wrong with %s", err, flag)
		}
	}
	alone := DefaultConfig()
	alone.LeaderElect, alone.RenewDeadline = false, time.Hour
	if err := alone.Validate(); err != nil {
		t.Errorf("without leader election: %v", err)
	}
}

func TestSettings(t *testing.T) {
	cfg := DefaultConfig()
	want := map[request.Form]request.Approver{
		request.FormCertificateRequest: request.ApproveAuto, request.FormCSR: request.ApproveAuto,
		request.FormCSRIssuer: request.ApproveExternal, request.FormCSRClusterIssuer: request.ApproveExternal,
	}
	for form, approver := range want {
		if got := cfg.settings().Approvers[form]; got != approver {
			t.Errorf("form %d: %d approves, want %d", form, got, approver)
		}
	}
	cfg.AutoApprove = false
	for form := range want {
		if got := cfg.settings().Approvers[form]; got != request.ApproveExternal {
			t.Errorf("without auto-approval: %d approves requests of form %d", got, form)
		}
	}
	cfg.CSRApprovers[request.FormCSR] = request.ApproveAuto
	if got := cfg.settings().Approvers[request.FormCSR]; got != request.ApproveAuto {
		t.Errorf("without auto-approval, but for CertificateSigningRequests: %d approves", got)
	}
}

func TestScope(t *testing.T) {
	cfg := DefaultConfig()
	if got := cacheNamespaces(cfg); got != nil {
		t.Errorf("by default only %v is watched", got)
	}
	cfg.Namespaces = []string{"one"}
	if got := cacheNamespaces(cfg); len(got) != 1 {
		t.Errorf("--namespace one watches %v", got)
	}
	cfg.Namespaces = []string{"one", "two"}
	if got := cacheNamespaces(cfg); len(got) != 2 || !cfg.scope().NamespacedOnly {
		t.Errorf("--namespace one,two watches %v", got)
	}
	cfg.Namespaces, cfg.Scope.Namespaces = nil, []string{"two"}
	if got := cacheNamespaces(cfg); len(got) != 2 {
		t.Errorf("scope two watches %v, want two and that of ClusterIssuers", got)
	}
}

// TestFindResponder: nobody has to name the responder that install has made, and whoever names one is obeyed.
func TestFindResponder(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(*Config) {}, "cert-manager/chancery-responder"},
		{func(c *Config) { c.ClusterResourceNamespace = "issuers" }, "issuers/chancery-responder"},
		{func(c *Config) { c.Namespaces = []string{"team", "shop"} }, "team/chancery-responder"},
		{func(c *Config) { c.ACME.HTTP01Address = ":8089" }, ResponderNone},
		{func(c *Config) { c.ACME.HTTP01Address, c.ACME.HTTP01Responder = ":8089", "here/own" }, "here/own"},
		{func(c *Config) { c.ACME.HTTP01Responder = ResponderNone }, ResponderNone},
		{func(c *Config) { c.ACME.HTTP01Responder, c.ACME.HTTP01Pods.Mode = ResponderNone, service.ModePod }, "cert-manager/chancery-responder"},
		{func(c *Config) { c.ACME.HTTP01Address, c.ACME.HTTP01Pods.Mode = ":8089", service.ModePod }, "cert-manager/chancery-responder"},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		cfg.findResponder()
		if got := cfg.ACME.HTTP01Responder; got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
