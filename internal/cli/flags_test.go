package cli

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"chancery.dev/internal/app"
	"chancery.dev/internal/install"
)

// TestControllerFlags holds the names and defaults of spec §9.3. A flag that means
// the same has to be called the same.
func TestControllerFlags(t *testing.T) {
	cmd, _, err := New().Find([]string{"controller"})
	if err != nil {
		t.Fatal(err)
	}
	spec := map[string]string{
		"kubeconfig": "", "master": "", "namespace": "[]",
		"leader-elect": "true", "leader-election-namespace": "kube-system",
		"metrics-listen-address": "0.0.0.0:9402", "internal-healthz-listen-address": "0.0.0.0:9403", "concurrent-workers": "5",
		"metrics-dynamic-serving-leaf-duration": "168h0m0s", "metrics-dynamic-serving-ca-secret-namespace": "",
		"metrics-dynamic-serving-ca-secret-name": "", "metrics-dynamic-serving-dns-names": "[]",
		"certificate-request-minimum-backoff-duration": "1h0m0s", "certificate-request-maximum-backoff-duration": "32h0m0s",
		"copied-annotation-prefixes":         "[*,-kubectl.kubernetes.io/,-fluxcd.io/,-argocd.argoproj.io/]",
		"cluster-issuer-ambient-credentials": "true", "issuer-ambient-credentials": "false",
		"enable-certificate-owner-ref": "false", "max-concurrent-challenges": "60", "dns01-check-retry-period": "10s",
		"dns01-recursive-nameservers": "[]", "dns01-recursive-nameservers-only": "false", "acme-http01-solver-nameservers": "[]",
		"acme-http01-solver-extra-labels": "[]", "acme-http01-solver-run-as-non-root": "true", "acme-http01-solver-runtime-class-name": "",
		"acme-http01-solver-resource-request-cpu": "10m", "acme-http01-solver-resource-request-memory": "64Mi",
		"acme-http01-solver-resource-limits-cpu": "100m", "acme-http01-solver-resource-limits-memory": "64Mi",
		"v": "0", "logging-format": "text",
	}
	own := map[string]string{
		"cluster-resource-namespace":     "cert-manager", // ours: mission rule 8
		"enable-cainjector":              "false",
		"leader-election-lease-duration": "15s", "leader-election-renew-deadline": "10s", "leader-election-retry-period": "3s",
		"acme-http01-responder": "", "acme-http01-mode": "auto", "acme-http01-solver-image": install.DefaultImage, "issuer-egress-allow": "", "issuer-egress-deny": "",
		"http01-hosts": "[]", "tlsalpn01-hosts": "[]", "http01-catch-all": "false", "http01-self-check-passes": "1",
		"tlsalpn01-listen-address": "", "tlsalpn01-self-check-port": "0",
		"dns01-self-check-quorum": "0", "dns01-provider-programs": "[]", "dns01-exec-in-issuers": "false", "dns01-webhook-urls-in-issuers": "false",
		"dns01-provider-qps": "50", "dns01-provider-burst": "500",
		"auto-approve": "true", "approve-signer-names": "[*]",
		"csr-approval-machine-groups": "[]",
		"csr-approval":                "auto", "csr-approval-issuer": "external", "csr-approval-clusterissuer": "external",
	}
	for _, want := range []map[string]string{spec, own} {
		for name, value := range want {
			f := cmd.Flags().Lookup(name)
			if f == nil {
				t.Errorf("there is no --%s", name)
				continue
			}
			if f.DefValue != value {
				t.Errorf("--%s is %q by default, want %q", name, f.DefValue, value)
			}
		}
	}
	for line := range strings.Lines(cmd.Flags().FlagUsages()) {
		if flag, usage, _ := strings.Cut(strings.TrimSpace(line), "   "); strings.TrimSpace(usage) == "" {
			t.Errorf("%s says nothing of what it does", flag)
		}
	}
}

func TestApproverFlag(t *testing.T) {
	for _, c := range []struct {
		args  []string
		wrong string
	}{
		{[]string{"--csr-approval", "AUTHORIZED"}, ""},
		{[]string{"--csr-approval-issuer=auto", "--csr-approval-clusterissuer=external"}, ""},
		{[]string{"--csr-approval="}, "must be auto, authorized or external"},
	} {
		cmd, _, err := New().Find([]string{"controller"})
		if err != nil {
			t.Fatal(err)
		}
		err = cmd.ParseFlags(c.args)
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q: error %v, want %q", c.args, err, c.wrong)
		}
	}
}

func TestCommands(t *testing.T) {
	root := New()
	root.SetOut(io.Discard)
	for _, c := range root.Commands() {
		if c.Short == "" || c.Name() == "completion" {
			t.Errorf("command %q: %q", c.Name(), c.Short)
		}
	}
}

// Whoever bounds the back-off has decided: failures are not told apart then.
func TestBackoffFlagsRule(t *testing.T) {
	for _, c := range []struct {
		args    []string
		byClass bool
	}{
		{nil, true},
		{[]string{"--certificate-request-minimum-backoff-duration=1h"}, false},
		{[]string{"--certificate-request-maximum-backoff-duration=2h"}, false},
	} {
		cfg, cmd := app.DefaultConfig(), &cobra.Command{Use: "controller"}
		AddConfigFlags(cmd, &cfg)
		if err := cmd.ParseFlags(c.args); err != nil || cfg.Backoff.ByClass != c.byClass {
			t.Errorf("%q: by class %t, error %v", c.args, cfg.Backoff.ByClass, err)
		}
	}
}

// TestElectionFlags: whoever has set one of the times of the lease has had cert-manager's others beside it, and keeps
// them.
func TestElectionFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want app.Election
	}{
		{"", app.Election{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 3 * time.Second}},
		{"--leader-election-renew-deadline=50s", app.Election{LeaseDuration: 60 * time.Second, RenewDeadline: 50 * time.Second, RetryPeriod: 15 * time.Second}},
		{
			"--leader-election-retry-period=1s --leader-election-lease-duration=90s",
			app.Election{LeaseDuration: 90 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second},
		},
		{
			"--leader-election-lease-duration=8s --leader-election-renew-deadline=5s --leader-election-retry-period=1s",
			app.Election{LeaseDuration: 8 * time.Second, RenewDeadline: 5 * time.Second, RetryPeriod: time.Second},
		},
	} {
		cfg, cmd := app.DefaultConfig(), &cobra.Command{Use: "controller"}
		AddConfigFlags(cmd, &cfg)
		if err := cmd.ParseFlags(strings.Fields(c.args)); err != nil || cfg.Election != c.want {
			t.Errorf("%s: %+v, error %v", c.args, cfg.Election, err)
		}
	}
	cmd := &cobra.Command{Use: "controller"}
	AddConfigFlags(cmd, new(app.DefaultConfig()))
	if err := cmd.ParseFlags([]string{"--leader-election-retry-period=soon"}); err == nil {
		t.Error("soon is a time")
	}
}

// TestInjectorFlags holds the names and defaults of spec §9.3 for the CA injector.
func TestInjectorFlags(t *testing.T) {
	cmd, _, err := New().Find([]string{"cainjector"})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"kubeconfig": "", "namespace": "[]", "ignore-namespaces": "[]", "enable-certificates-data-source": "true",
		"enable-validatingwebhookconfigurations-injectable": "true", "enable-mutatingwebhookconfigurations-injectable": "true",
		"enable-customresourcedefinitions-injectable": "true", "enable-apiservices-injectable": "true",
		"config": "", "feature-gates": "", "metrics-tls-cert-file": "", "metrics-tls-min-version": "",
		"metrics-dynamic-serving-leaf-duration": "168h0m0s", "metrics-dynamic-serving-ca-secret-name": "",
		"enable-profiling": "false", "profiler-address": "localhost:6060", "metrics-listen-address": "0.0.0.0:9402",
		"leader-elect": "true", "leader-election-namespace": "kube-system", "leader-election-lease-duration": "15s",
		"leader-election-renew-deadline": "10s", "leader-election-retry-period": "3s", "v": "0", "logging-format": "text",
	} {
		if f := cmd.Flags().Lookup(name); f == nil || f.DefValue != value {
			t.Errorf("--%s: %+v, want the default %q", name, f, value)
		}
	}
	file := "apiVersion: " + injectorConfigVersion + "\nkind: " + injectorConfigKind + `
namespace: a
ignoreNamespaces: [b]
leaderElectionConfig: {enabled: false}
metricsTLSConfig: {dynamic: {secretNamespace: a, secretName: ca, dnsNames: [b.example.com, c.example.com], leafDuration: 24h}}
enableDataSourceConfig: {certificates: false}
enableInjectableConfig: {validatingWebhookConfigurations: false, mutatingWebhookConfigurations: false, customResourceDefinitions: false, apiServices: false}
featureGates: {CAInjectorMerging: true, ServerSideApply: true}
`
	if err := applyConfig(cmd, injectorComponent(), []byte(file)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"leader-elect", "enable-certificates-data-source", "enable-apiservices-injectable", "enable-customresourcedefinitions-injectable"} {
		if value := cmd.Flags().Lookup(name).Value.String(); value != "false" {
			t.Errorf("--%s is %s, the file says false", name, value)
		}
	}
	if err := applyConfig(cmd, injectorComponent(), []byte(strings.Replace(file, "namespace: a", "controllers: ['*']", 1))); err == nil {
		t.Error("a field of the controller is taken")
	}
	for _, args := range [][]string{{"--cainjector=own"}, {"--cainjector=controller"}, {"--cainjector=none"}} {
		install, _, _ := New().Find([]string{"install"})
		if err := install.ParseFlags(args); err != nil {
			t.Error(err)
		}
	}
	install, _, _ := New().Find([]string{"install"})
	if err := install.ParseFlags([]string{"--cainjector=yes"}); err == nil || !strings.Contains(err.Error(), "must be none, own or controller") {
		t.Error(err)
	}
}
