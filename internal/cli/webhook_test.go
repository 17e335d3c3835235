package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWebhookFlags holds the names and defaults of spec §9.3 for the webhook: each flag of cert-manager's has an
// effect, or is accepted and says why it has none.
func TestWebhookFlags(t *testing.T) {
	cmd, _, err := New().Find([]string{"webhook"})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"secure-port": "6443", "healthz-port": "6080", "metrics-listen-address": "0.0.0.0:9402", "config": "", "kubeconfig": "", "api-server-host": "",
		"dynamic-serving-leaf-duration": "168h0m0s", "dynamic-serving-ca-secret-namespace": "cert-manager",
		"dynamic-serving-ca-secret-name": "cert-manager-webhook-ca", "feature-gates": "", "v": "0",
		"dynamic-serving-dns-names": "[cert-manager-webhook,cert-manager-webhook.cert-manager,cert-manager-webhook.cert-manager.svc]",
	} {
		if f := cmd.Flags().Lookup(name); f == nil || f.DefValue != value {
			t.Errorf("--%s: %+v, want the default %q", name, f, value)
		}
	}
	spec, err := os.ReadFile("../../docs/spec/09-operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(spec), "Webhook flags:")
	text, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), "```"), "```")
	for word := range strings.FieldsSeq(text) {
		prefix, suffixes, several := strings.Cut(word, "{")
		names := []string{word}
		if several {
			names = strings.Split(strings.Trim(suffixes, "}"), ",")
			for i := range names {
				names[i] = prefix + names[i]
			}
		}
		for _, name := range names {
			if name, is := strings.CutPrefix(name, "--"); is && cmd.Flags().Lookup(name) == nil {
				t.Errorf("there is no --%s", name)
			}
		}
	}
	file := `{apiVersion: webhook.config.cert-manager.io/v1alpha1, kind: WebhookConfiguration, securePort: 10250, healthzPort: 1,
tlsConfig: {dynamic: {secretName: s, dnsNames: [a, b]}, minTLSVersion: VersionTLS13}, featureGates: {NameConstraints: false}}`
	of := webhookComponent()
	if err := applyConfig(cmd, of, []byte(file)); err != nil {
		t.Fatal(err)
	}
	if got := cmd.Flags().Lookup("dynamic-serving-dns-names").Value.String(); got != "[a,b]" {
		t.Errorf("the names are %s", got)
	}
	if len(of.gates) != 5 || slices.Contains(names(of.gates), "ACMEUseARI") {
		t.Errorf("the gates are %q", names(of.gates))
	}
	for flag, wrong := range map[string]string{"--webhook=ignore": "", "--webhook=fail": "", "--webhook=none": "", "--webhook=Yes": "must be none, ignore or fail"} {
		install, _, _ := New().Find([]string{"install"})
		if err := install.ParseFlags([]string{flag}); (err != nil) != (wrong != "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// TestWebhookReadsItsFile: the webhook takes --config and --check as the controller does.
func TestWebhookReadsItsFile(t *testing.T) {
	for content, want := range map[string]struct{ printed, wrong string }{
		"securePort: 10250\ntlsConfig: {dynamic: {leafDuration: 24h}}\nenablePprof: true": {printed: "securePort: 10250"},
		"securePort: 70000": {wrong: "--secure-port"},
		"secureport: 10250": {wrong: "did you mean securePort"},
	} {
		path := filepath.Join(t.TempDir(), "webhook.yaml")
		content = "apiVersion: webhook.config.cert-manager.io/v1alpha1\nkind: WebhookConfiguration\n" + content
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd, out := New(), &strings.Builder{}
		cmd.SetOut(out)
		cmd.SetErr(out)
		cmd.SetArgs([]string{"webhook", "--check", "--config", path, "--kubeconfig", filepath.Join(t.TempDir(), "none")})
		err := cmd.ExecuteContext(t.Context())
		if want.wrong == "" && (err != nil || !strings.Contains(out.String(), "\n"+want.printed+"\n")) {
			t.Errorf("%s: %v, and it says %s", content, err, out)
		}
		if want.wrong != "" && (err == nil || !strings.Contains(err.Error(), want.wrong)) {
			t.Errorf("%s: %v, want %s", content, err, want.wrong)
		}
	}
}
