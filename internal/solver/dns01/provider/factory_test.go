package provider_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider"
	"chancery.dev/internal/solver/dns01/provider/exec"
	"chancery.dev/internal/solver/dns01/wire"
)

// secrets is a namespace's Secrets by name.
type secrets map[string]map[string][]byte

func (s secrets) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	data, ok := s[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return &corev1.Secret{Data: data}, nil
}

// tokens are named after who asked for what.
type tokens struct{}

func (tokens) Token(_ context.Context, account types.NamespacedName, audiences []string) (string, error) {
	return account.String() + " for " + strings.Join(audiences, ","), nil
}

// recorder is a program in a shell that writes down what it is configured with.
const recorder = `#!/bin/sh
env > "$(dirname "$0")/env"
while read -r line; do
  case $line in *'"op":"configure"'*) printf '%s\n' "$line" > "$(dirname "$0")/configure";; esac
  id=${line#*'"id":'}
  printf '{"id":%s,"ok":true}\n' "${id%%[,\}]*}"
done
`

// world is a Factory with a program that records.
type world struct {
	dir     string
	factory dns01.Factory
}

func newWorld(t *testing.T, change func(*provider.Options)) *world {
	t.Helper()
	w := &world{dir: t.TempDir()}
	path := filepath.Join(w.dir, "recorder")
	if err := tool.WriteProgram(path, recorder); err != nil {
		t.Fatal(err)
	}
	pool, err := exec.New(t.Context(), exec.Options{
		Programs: map[string]string{"*": path}, Environ: []string{"PATH=" + os.Getenv("PATH"), "AWS_ACCESS_KEY_ID=controller"}, Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := provider.Options{
		Token: tokens{}.Token, Programs: pool, ClusterIssuerAmbient: true,
		Secrets: secrets{"creds": {"token": []byte("value"), "other": []byte("thing")}},
	}
	if change != nil {
		change(&o)
	}
	w.factory = provider.Factory(o)
	return w
}

// configured presents a record and returns what the program was configured with.
func (w *world) configured(t *testing.T, u dns01.Use) (wire.Configuration, error) {
	t.Helper()
	u.Namespace = "ns"
	p, err := w.factory(t.Context(), u)
	if err == nil {
		err = p.Present(t.Context(), dns01.Record{FQDN: "f.", Value: "v"})
	}
	if err != nil {
		return wire.Configuration{}, err
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "configure"))
	if err != nil {
		t.Fatal(err)
	}
	var c wire.Configuration
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c, nil
}

func route53(auth *acmev1.Route53Auth) *acmev1.DNS01Solver {
	c := &acmev1.Route53Provider{Role: "arn:role", Auth: auth}
	if auth == nil {
		c.AccessKeyID, c.SecretAccessKeySecretRef = "id", cmmeta.SecretKeySelector{Name: "creds", Key: "token"}
	}
	return &acmev1.DNS01Solver{Route53: c}
}

// Typed fields work in namespaced Issuers, with credentials that they name.
func TestTypedFieldsInIssuers(t *testing.T) {
	w := newWorld(t, nil)
	got, err := w.configured(t, dns01.Use{Config: route53(nil)})
	if err != nil || got.Provider != "route53" || got.Secrets["AWS_SECRET_ACCESS_KEY"] != "value" || got.Config["AWS_ACCESS_KEY_ID"] != "id" || got.Ambient {
		t.Fatalf("by keys: %+v, %v", got, err)
	}
	environment, err := os.ReadFile(filepath.Join(w.dir, "env"))
	if err != nil || strings.Contains(string(environment), "controller") {
		t.Errorf("the program has the controller's environment: %s, %v", environment, err)
	}
	auth := &acmev1.Route53Auth{Kubernetes: &acmev1.Route53KubernetesAuth{ServiceAccountRef: &acmev1.ServiceAccountRef{Name: "dns"}}}
	got, err = w.configured(t, dns01.Use{Config: route53(auth)})
	if err != nil || got.Secrets["AWS_WEB_IDENTITY_TOKEN"] != "ns/dns for sts.amazonaws.com" || got.Ambient {
		t.Errorf("by web identity: %+v, %v", got, err)
	}
	missing := route53(nil)
	missing.Route53.SecretAccessKeySecretRef.Name = "gone"
	_, err = w.configured(t, dns01.Use{Config: missing})
	if f := fault.Of(err); f == nil || f.Reason != dns01.ReasonSecret || !strings.Contains(err.Error(), "Secret ns/gone") {
		t.Errorf("without its Secret: %v", err)
	}
}

// A tenant names the host of a provider's program, or of a server that is asked here: not at addresses that are off
// limits. The program is not even started. What the operator names, in a ClusterIssuer, is not judged.
func TestHostsOfTenantsAreJudged(t *testing.T) {
	token := cmmeta.SecretKeySelector{Name: "creds", Key: "token"}
	program := func(config map[string]string) *acmev1.DNS01Solver {
		return &acmev1.DNS01Solver{Exec: &acmev1.ExecProvider{Name: "any", Config: config, SecretRef: &cmmeta.LocalObjectReference{Name: "creds"}}}
	}
	akamai := func(host string) *acmev1.DNS01Solver {
		return &acmev1.DNS01Solver{Akamai: &acmev1.AkamaiProvider{
			ServiceConsumerDomain: host, ClientTokenSecretRef: token, ClientSecretSecretRef: token, AccessTokenSecretRef: token,
		}}
	}
	for name, config := range map[string]*acmev1.DNS01Solver{
		"akamai":                akamai("169.254.169.254"),
		"akamai, with a scheme": akamai("https://localhost/"),
		"a host":                program(map[string]string{"PDNS_HOST": "localhost:8081"}),
		"an address":            program(map[string]string{"ANY": "http://[::1]:8081/x"}),
		"an IP address":         program(map[string]string{"ANY": "[::ffff:127.0.0.1]:53"}),
		"JSON":                  program(map[string]string{"ANY": `{"a":[{"b":"https:\u002f\u002f169.254.169.254/latest"}]}`}),
		"escaped JSON":          program(map[string]string{"ANY": `{"a":"https:\/\/127.0.0.1"}`}),
		"acmeDNS":               {AcmeDNS: &acmev1.AcmeDNSProvider{Host: "http://127.0.0.1:1", AccountSecretRef: cmmeta.SecretKeySelector{Name: "creds", Key: "accounts"}}},
		"rfc2136":               {RFC2136: &acmev1.RFC2136Provider{Nameserver: "127.0.0.1:1"}},
		"rfc2136 over TCP":      {RFC2136: &acmev1.RFC2136Provider{Nameserver: "localhost:1", Protocol: acmev1.RFC2136TCP}},
		"webhook":               {Webhook: &acmev1.WebhookProvider{URL: "https://localhost:1/hook"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *provider.Options) {
				o.ExecInIssuers, o.WebhookURLsInIssuers, o.Egress = true, true, egress.New(nil, nil)
				o.Secrets = secrets{"creds": {"token": []byte("value"), "accounts": []byte(`{"example.test":{"username":"u","password":"p","subdomain":"s"}}`)}}
				o.WebhookServers.Secrets = o.Secrets
			})
			for _, operators := range []bool{false, true} {
				p, err := w.factory(t.Context(), dns01.Use{Config: config, Namespace: "ns", ClusterIssuer: operators})
				if err == nil {
					err = p.Present(t.Context(), dns01.Record{Domain: "example.test", FQDN: "f.", Zone: "f.", Value: "v"})
				}
				if denied := err != nil && strings.Contains(err.Error(), "off limits"); denied == operators {
					t.Errorf("operator's = %t: %v", operators, err)
				}
				if _, err := os.Stat(filepath.Join(w.dir, "env")); err == nil && !operators {
					t.Error("the program was started")
				}
			}
		})
	}
}

// The name of a region becomes that of a host.
func TestRegionIsNoHost(t *testing.T) {
	w := newWorld(t, nil)
	c := route53(nil)
	c.Route53.Region = "x.evil.test/"
	if _, err := w.configured(t, dns01.Use{Config: c}); !fault.IsTerminal(err) || !strings.Contains(err.Error(), `the region "x.evil.test/" is none`) {
		t.Errorf("%v", err)
	}
}

// Ambient credentials follow the flags of the two kinds of issuer.
func TestAmbientCredentials(t *testing.T) {
	ambient := &acmev1.DNS01Solver{CloudDNS: &acmev1.CloudDNSProvider{Project: "p"}}
	for _, c := range []struct{ inCluster, inIssuer, cluster, allowed bool }{
		{true, false, true, true}, {true, false, false, false}, {false, true, true, false}, {false, true, false, true},
	} {
		w := newWorld(t, func(o *provider.Options) { o.ClusterIssuerAmbient, o.IssuerAmbient = c.inCluster, c.inIssuer })
		got, err := w.configured(t, dns01.Use{Config: ambient, ClusterIssuer: c.cluster})
		if (err == nil) != c.allowed || got.Ambient != c.allowed {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
		if f := fault.Of(err); err != nil && (f == nil || f.Reason != provider.ReasonAmbient || !fault.IsTerminal(err)) {
			t.Errorf("%+v: %v, want a terminal fault", c, err)
		}
	}
}

// The generic field reaches any provider from a ClusterIssuer, and from an Issuer only
// where the operator says so. So does the address of a webhook.
func TestExecField(t *testing.T) {
	generic := &acmev1.DNS01Solver{Exec: &acmev1.ExecProvider{
		Name: "hetzner", Config: map[string]string{"TTL": "60"}, SecretRef: &cmmeta.LocalObjectReference{Name: "creds"},
	}}
	w := newWorld(t, nil)
	got, err := w.configured(t, dns01.Use{Config: generic, ClusterIssuer: true})
	if err != nil || got.Provider != "hetzner" || got.Secrets["token"] != "value" || got.Secrets["other"] != "thing" || got.Config["TTL"] != "60" {
		t.Errorf("in a ClusterIssuer: %+v, %v", got, err)
	}
	_, err = w.configured(t, dns01.Use{Config: generic})
	if f := fault.Of(err); f == nil || f.Reason != provider.ReasonNotAllowed || !strings.Contains(err.Error(), "--dns01-exec-in-issuers") {
		t.Errorf("in an Issuer: %v, want a refusal that names the flag", err)
	}
	w = newWorld(t, func(o *provider.Options) { o.ExecInIssuers = true })
	if got, err = w.configured(t, dns01.Use{Config: generic}); err != nil || got.Ambient {
		t.Errorf("in an Issuer where it is allowed: %+v, %v", got, err)
	}
	byURL := &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{URL: "https://dns.example.test/"}}
	for _, c := range []struct{ cluster, allowed, want bool }{{true, false, true}, {false, false, false}, {false, true, true}} {
		w = newWorld(t, func(o *provider.Options) { o.WebhookURLsInIssuers = c.allowed })
		_, err := w.factory(t.Context(), dns01.Use{Config: byURL, ClusterIssuer: c.cluster, Namespace: "ns"})
		if f := fault.Of(err); (err == nil) != c.want || f != nil && (f.Reason != provider.ReasonNotAllowed || !strings.Contains(err.Error(), "--dns01-webhook-urls-in-issuers")) {
			t.Errorf("a webhook by its address, %+v: %v", c, err)
		}
	}
	none := newWorld(t, nil)
	if _, err = none.configured(t, dns01.Use{Config: &acmev1.DNS01Solver{}}); !fault.IsTerminal(err) {
		t.Errorf("without a provider: %v", err)
	}
	if _, err = none.configured(t, dns01.Use{Config: &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{}}}); !fault.IsTerminal(err) {
		t.Errorf("webhook without an API server: %v", err)
	}
}
