package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/dnsproviders/internal/standin"
	"chancery.dev/internal/rig/solver/conformance"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider"
	"chancery.dev/internal/solver/dns01/provider/exec"
	"chancery.dev/internal/solver/dns01/provider/limit"
)

// asProgram is the first argument that makes this test binary chancery-dns.
const asProgram = "act-as-chancery-dns"

func TestMain(m *testing.M) {
	program := len(os.Args) > 1 && os.Args[1] == asProgram
	if child := os.Getenv("CHANCERY_DNS_TEST_CHILD") != ""; program || child {
		if address := os.Getenv(resolverVariable); address != "" {
			net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			}}
		}
		command := newCommand()
		if program {
			command.SetArgs(os.Args[2:])
		}
		if err := command.Execute(); err != nil {
			fmt.Fprintln(os.Stderr, "chancery-dns:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// resolverVariable names the DNS server that the program asks, in tests.
const resolverVariable = "CHANCERY_DNS_TEST_RESOLVER"

// program returns the path of a chancery-dns that is this test binary.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return tool.Script(t, fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=0 exec %q %s \"$@\"\n", self, asProgram))
}

// token is what all secrets of the stand-ins are derived from.
const token = "t0k3n-of-the-stand-ins"

// secrets holds the one Secret of the namespace.
type secrets map[string]string

func (s secrets) Secret(context.Context, string, string) (*corev1.Secret, error) {
	out := &corev1.Secret{Data: map[string][]byte{}}
	for k, v := range s {
		out.Data[k] = []byte(v)
	}
	return out, nil
}

// world is the stand-ins, and the whole way to them: the API's field, its mapping, the
// pool of programs, chancery-dns.
type world struct {
	*standin.World
	environ []string
	program string
	key     *rsa.PrivateKey

	mu   sync.Mutex
	skew time.Duration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: standin.New(token), program: program(t)}
	var err error
	if w.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	w.Google = &w.key.PublicKey
	ca := filepath.Join(t.TempDir(), "ca.pem")
	proxy, err := w.Start(t.Context(), ca)
	if err != nil {
		t.Fatal(err)
	}
	w.environ = []string{"PATH=" + os.Getenv("PATH"), "HTTPS_PROXY=" + proxy, "SSL_CERT_FILE=" + ca}
	return w
}

func (w *world) step(d time.Duration) { w.mu.Lock(); defer w.mu.Unlock(); w.skew += d }

func (w *world) now() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return time.Now().Add(w.skew) }

// factory makes the providers of solvers, with credentials in one Secret.
func (w *world) factory(t *testing.T, s secrets, webToken string) dns01.Factory {
	t.Helper()
	pool, err := exec.New(t.Context(), exec.Options{
		Programs: map[string]string{"*": w.program}, Environ: w.environ, Limits: limit.New(limit.Options{Now: w.now}), Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return provider.Factory(provider.Options{Secrets: s, Token: tokenOf(webToken), Programs: pool, ClusterIssuerAmbient: true})
}

// tokenOf issues the same token of each service account.
func tokenOf(token string) func(context.Context, types.NamespacedName, []string) (string, error) {
	return func(context.Context, types.NamespacedName, []string) (string, error) { return token, nil }
}

// serviceAccount is the JSON key of a service account.
func serviceAccount(t *testing.T, key *rsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "other", "client_email": standin.GoogleAccount, "private_key_id": "1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": "https://oauth2.googleapis.com/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func key(name string) cmmeta.SecretKeySelector {
	return cmmeta.SecretKeySelector{Name: "creds", Key: name}
}

func keyTo(name string) *cmmeta.SecretKeySelector { s := key(name); return &s }

func record(n int) dns01.Record {
	keyAuth := fmt.Sprintf("token%d.thumbprint", n)
	sum := sha256.Sum256([]byte(keyAuth))
	return dns01.Record{
		Domain: "www." + standin.Zone, FQDN: "_acme-challenge.www." + standin.Zone + ".", Zone: standin.Zone + ".",
		Value: base64.RawURLEncoding.EncodeToString(sum[:]), Token: fmt.Sprintf("token%d", n), KeyAuthorization: keyAuth, TTL: 60,
	}
}

// solvers are the typed fields, each with credentials that are right and some that are not.
func solvers(t *testing.T, w *world) map[string]struct {
	config      acmev1.DNS01Solver
	good, wrong secrets
} {
	t.Helper()
	another, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	bearer, wrongBearer := secrets{"token": token}, secrets{"token": "wrong-" + token}
	aws, wrongAWS := secrets{"secret": w.AWSSecret()}, secrets{"secret": "wrong-" + token}
	return map[string]struct {
		config      acmev1.DNS01Solver
		good, wrong secrets
	}{
		"digitalocean":     {acmev1.DNS01Solver{DigitalOcean: &acmev1.DigitalOceanProvider{TokenSecretRef: key("token")}}, bearer, wrongBearer},
		"cloudflare token": {acmev1.DNS01Solver{Cloudflare: &acmev1.CloudflareProvider{APITokenSecretRef: keyTo("token")}}, bearer, wrongBearer},
		"cloudflare key":   {acmev1.DNS01Solver{Cloudflare: &acmev1.CloudflareProvider{Email: "me@example.com", APIKeySecretRef: keyTo("token")}}, bearer, wrongBearer},
		"cloudDNS": {
			acmev1.DNS01Solver{CloudDNS: &acmev1.CloudDNSProvider{Project: standin.GoogleProject, ServiceAccountSecretRef: keyTo("key")}},
			secrets{"key": serviceAccount(t, w.key)}, secrets{"key": serviceAccount(t, another)},
		},
		"azureDNS": {
			acmev1.DNS01Solver{AzureDNS: &acmev1.AzureDNSProvider{
				SubscriptionID: standin.AzureSubscription, ResourceGroupName: standin.AzureGroup, HostedZoneName: standin.Zone,
				ClientID: standin.AzureClient, TenantID: standin.AzureTenant, ClientSecretSecretRef: keyTo("token"),
			}}, bearer, wrongBearer,
		},
		"akamai": {
			acmev1.DNS01Solver{Akamai: &acmev1.AkamaiProvider{
				ServiceConsumerDomain: standin.AkamaiHost, ClientTokenSecretRef: key("client"), ClientSecretSecretRef: key("secret"), AccessTokenSecretRef: key("access"),
			}},
			secrets{"client": standin.AkamaiClientToken, "access": standin.AkamaiAccessToken, "secret": "akamai-" + token},
			secrets{"client": standin.AkamaiClientToken, "access": standin.AkamaiAccessToken, "secret": "wrong-" + token},
		},
		"route53 keys": {
			acmev1.DNS01Solver{Route53: &acmev1.Route53Provider{Region: "us-east-1", AccessKeyID: standin.AWSKey, SecretAccessKeySecretRef: key("secret")}}, aws, wrongAWS,
		},
		"route53 role": {
			acmev1.DNS01Solver{Route53: &acmev1.Route53Provider{
				Region: "us-east-1", AccessKeyID: standin.AWSKey, SecretAccessKeySecretRef: key("secret"), Role: standin.AWSRole, HostedZoneID: standin.AWSZone,
			}}, aws, wrongAWS,
		},
		"route53 web identity": {
			acmev1.DNS01Solver{Route53: &acmev1.Route53Provider{Region: "us-east-1", Role: standin.AWSRole, Auth: &acmev1.Route53Auth{
				Kubernetes: &acmev1.Route53KubernetesAuth{ServiceAccountRef: &acmev1.ServiceAccountRef{Name: "dns"}},
			}}}, secrets{"web": standin.AWSWebToken}, secrets{"web": "wrong-" + token},
		},
	}
}

// The contract of providers, for each typed field of the API.
func TestTypedProviders(t *testing.T) {
	t.Parallel()
	for name := range solvers(t, newWorld(t)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := solvers(t, w)[name]
			right, wrong := w.factory(t, s.good, s.good["web"]), w.factory(t, s.wrong, s.wrong["web"])
			w.Put(record(0).FQDN, "of-another")
			call := func(f dns01.Factory, do func(dns01.Provider, context.Context, dns01.Record) error) func(context.Context, int) error {
				return func(ctx context.Context, n int) error {
					p, err := f(ctx, dns01.Use{Config: &s.config, Namespace: "ns"})
					if err != nil {
						return err
					}
					return do(p, ctx, record(n))
				}
			}
			conformance.RunProvider(t, conformance.ProviderHarness{
				Secret:  token,
				Present: call(right, dns01.Provider.Present), CleanUp: call(right, dns01.Provider.CleanUp),
				Denied:       func(ctx context.Context) error { return call(wrong, dns01.Provider.Present)(ctx, 2) },
				DeniedReason: exec.ReasonCredential, ThrottledReason: exec.ReasonThrottled,
				Count: func(n int) (times int) {
					for _, v := range w.Values(record(n).FQDN) {
						if v == record(n).Value {
							times++
						}
					}
					return times
				},
				Throttle: func(on bool) {
					w.Throttle(on)
					w.step(time.Hour) // past any pause
				},
				Slow: w.Slow,
			})
			if got := w.Values(record(0).FQDN); len(got) != 1 || got[0] != "of-another" {
				t.Errorf("left at the name: %q, want what another has written", got)
			}
			if t.Failed() {
				t.Logf("the stand-ins saw:\n%s", strings.Join(w.Seen(), "\n"))
			}
		})
	}
}

// Another writer, such as another cluster, comes between the reading and the writing of a
// record set: neither loses its value.
func TestOtherWritersKeepTheirs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"azureDNS", "cloudDNS", "cloudflare token", "digitalocean", "route53 keys"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := solvers(t, w)[name]
			p, err := w.factory(t, s.good, "")(t.Context(), dns01.Use{Config: &s.config, Namespace: "ns"})
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for n, step := range []func(context.Context, dns01.Record) error{p.Present, p.CleanUp, p.Present} {
				r := record(n / 2)
				w.PutAhead(r.FQDN, fmt.Sprint("of-another-", n))
				if err := step(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				want = append(want, fmt.Sprint("of-another-", n))
				ours := []string{r.Value}
				if n == 1 {
					ours = nil
				}
				got, all := w.Values(r.FQDN), append(ours, want...)
				slices.Sort(got)
				slices.Sort(all)
				if !slices.Equal(got, all) {
					t.Errorf("after step %d: %q, want %q", n, got, all)
				}
			}
		})
	}
}

// A zone is looked for once, not for each record.
func TestZoneIsLookedForOnce(t *testing.T) {
	t.Parallel()
	for name, question := range map[string]string{"cloudDNS": "/managedZones?", "cloudflare token": "/zones?", "route53 keys": "/hostedzonesbyname?"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := solvers(t, w)[name]
			p, err := w.factory(t, s.good, "")(t.Context(), dns01.Use{Config: &s.config, Namespace: "ns"})
			if err != nil {
				t.Fatal(err)
			}
			for n := range 3 {
				if err := errors.Join(p.Present(t.Context(), record(n)), p.CleanUp(t.Context(), record(n))); err != nil {
					t.Fatal(err)
				}
			}
			asked := 0
			for _, seen := range w.Seen() {
				if strings.Contains(seen, question) {
					asked++
				}
			}
			if asked != 1 {
				t.Errorf("the zone was looked for %d times:\n%s", asked, strings.Join(w.Seen(), "\n"))
			}
		})
	}
}

// A ClusterIssuer may use the credentials of the machine: keys and region of the
// environment, which win over the Issuer's region, and a workload identity.
func TestAmbientCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	federated := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(federated, []byte("federated-"+token), 0o600); err != nil {
		t.Fatal(err)
	}
	w.environ = append(w.environ, "AWS_ACCESS_KEY_ID="+standin.AWSKey, "AWS_SECRET_ACCESS_KEY="+w.AWSSecret(), "AWS_REGION=us-east-1",
		"AZURE_FEDERATED_TOKEN_FILE="+federated)
	for name, config := range map[string]acmev1.DNS01Solver{
		"route53": {Route53: &acmev1.Route53Provider{Region: "eu-nowhere-9", Role: standin.AWSRole}},
		"azureDNS": {AzureDNS: &acmev1.AzureDNSProvider{
			SubscriptionID: standin.AzureSubscription, ResourceGroupName: standin.AzureGroup,
			ManagedIdentity: &acmev1.AzureManagedIdentity{ClientID: standin.AzureClient, TenantID: standin.AzureTenant},
		}},
	} {
		f := w.factory(t, nil, "")
		p, err := f(t.Context(), dns01.Use{Config: &config, Namespace: "ns", ClusterIssuer: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Present(t.Context(), record(0)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := p.CleanUp(t.Context(), record(0)); err != nil || len(w.Values(record(0).FQDN)) > 0 {
			t.Errorf("%s: %v, left %q", name, err, w.Values(record(0).FQDN))
		}
		if _, err := f(t.Context(), dns01.Use{Config: &config, Namespace: "ns"}); err == nil {
			t.Errorf("%s: an Issuer may use the machine's credentials", name)
		}
	}
}

// The host of Akamai's API is the Issuer's choice: what a server that is none answers is not quoted.
func TestPagesAreNotQuoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := solvers(t, w)["akamai"]
	s.config.Akamai.ServiceConsumerDomain = standin.PageHost
	p, err := w.factory(t, s.good, "")(t.Context(), dns01.Use{Config: &s.config, Namespace: "ns"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Present(t.Context(), record(0)); err == nil || !strings.Contains(err.Error(), "500") || strings.Contains(err.Error(), standin.Page) {
		t.Errorf("Present: %v", err)
	}
}
