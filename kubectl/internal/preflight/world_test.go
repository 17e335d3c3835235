package preflight

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme/dnspersist"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
	"chancery.dev/internal/solver/http01"
	"chancery.dev/internal/solver/tlsalpn01"
	"chancery.dev/kubectl/internal/plugin"
)

const tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0"

// records are those of the zone example.com beside the wildcard, which makes all names lead to this machine.
var records = []string{
	`caa.example.com. CAA 0 issue "other.example.net"`,
	`www.caa-ok.example.com. A 127.0.0.1`,
	`caa-ok.example.com. CAA 0 issue "pebble.letsencrypt.org; validationmethods=dns-01"`,
	`_acme-challenge.alias.example.com. CNAME alias.dns.example.net.`,
}

// stage is a namespace with controllers, an ACME server and a DNS server, and a user who may view it.
type stage struct {
	*rig.World

	ca         *pebble.Server
	dns        *dnsserver.Server
	kubeconfig string
	viewer     string
	// open and responder are the ports of a web server, which knows no path, and of the TLS-ALPN-01 responder.
	open, responder int
}

func newStage(t *testing.T) *stage {
	t.Helper()
	w := &stage{World: rig.NewWorld(t)}
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	here := netip.MustParseAddr("127.0.0.1")
	if w.dns, err = dnsserver.Start(t.Context(), dnsserver.Config{Servers: 2, Key: key, Zones: []dnsserver.Zone{
		{Name: "com."}, {Name: "net."}, {Name: "dns.example.net."}, {Name: "example.com.", Wildcard: here, Records: records},
	}}); err != nil {
		t.Fatal(err)
	}
	if w.ca, err = pebble.Start(t.Context(), pebble.Options{DNSServer: w.dns.Addr(), Profiles: map[string]ca.Profile{"short": {Description: "short"}}}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	w.open = portOf(web.Listener)
	w.responder = answerTLS(t)
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tsig"}, StringData: map[string]string{"key": tsigSecret}})
	cfg := w.World.Config()
	cfg.ACME.RecursiveNameservers, cfg.ACME.AuthoritativePort = []string{w.dns.Addr()}, w.dns.Port()
	cfg.ACME.HTTP01Address = rig.FreeAddress(t).String()
	w.kubeconfig, w.viewer = rig.Kubeconfig(t, w.Admin, w.Namespace), "viewer-of-"+w.Namespace
	w.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.viewer}},
	})
	w.Run(t, cfg)
	return w
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// answerTLS runs the TLS-ALPN-01 responder without a challenge.
func answerTLS(t *testing.T) int {
	t.Helper()
	responder, err := tlsalpn01.NewResponder(tlsalpn01.ResponderOptions{Index: http01.NewIndex(), Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- responder.Serve(t.Context(), listener) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return portOf(listener)
}

// run runs the command.
func (w *stage) run(ctx context.Context, at ports, stdin string, args ...string) (string, error) {
	var out bytes.Buffer
	at.dns = w.dns.Port()
	streams := plugin.Streams{In: strings.NewReader(stdin), Out: &out, ErrOut: &bytes.Buffer{}}
	cmd := newCommand(streams, genericclioptions.NewConfigFlags(true), at)
	cmd.SetArgs(append([]string{"--kubeconfig", w.kubeconfig, "--dns01-recursive-nameservers", w.dns.Addr()}, args...))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// issuer adds an Issuer and waits until it is ready.
func (w *stage) issuer(t *testing.T, name string, spec certmanagerv1.IssuerSpec) {
	t.Helper()
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	rig.Eventually(t, name+" is ready", func(ctx context.Context) string {
		issuer := &certmanagerv1.Issuer{}
		if err := w.Get(ctx, name, issuer); err != nil {
			return err.Error()
		}
		if c := certmanagerv1.FindIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionReady); c == nil || c.Status != cmmeta.ConditionTrue {
			return fmt.Sprintf("%+v", issuer.Status)
		}
		return ""
	})
}

func (w *stage) acme(account, profile string, solvers ...acmev1.ACMEChallengeSolver) certmanagerv1.IssuerSpec {
	return certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: w.ca.DirectoryURL, CABundle: w.ca.TLSBundle, Profile: profile, Solvers: solvers,
		PrivateKey: cmmeta.SecretKeySelector{Name: account + "-account"},
	}}
}

// byDNS updates the world's DNS with the TSIG key in a Secret.
func (w *stage) byDNS(secret string) acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
		Nameserver: w.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256",
		TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: secret, Key: "key"},
	}}}
}

func byHTTP() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}}
}

func tlsALPN() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{TLSALPN01: &acmev1.TLSALPN01Solver{}}
}

// persist puts the record of DNS-PERSIST-01 for the account of an issuer into the DNS.
func (w *stage) persist(t *testing.T, name, issuer string) {
	t.Helper()
	at := &certmanagerv1.Issuer{}
	if err := w.Get(t.Context(), issuer, at); err != nil {
		t.Fatal(err)
	}
	text := dnspersist.Record{Issuer: "pebble.letsencrypt.org", AccountURI: at.Status.ACME.URI}.String()
	rr, err := dns.NewRR(dnspersist.Name(name) + ` 60 IN TXT "` + strings.ReplaceAll(text, ";", `\;`) + `"`)
	if err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg).SetUpdate("example.com.")
	m.Insert([]dns.RR{rr})
	m.SetTsig("chancery.", dns.HmacSHA256, 300, time.Now().Unix())
	c := dns.Client{Net: "tcp", TsigSecret: map[string]string{"chancery.": tsigSecret}}
	if answer, _, err := c.ExchangeContext(t.Context(), m, w.dns.Addr()); err != nil || answer.Rcode != dns.RcodeSuccess {
		t.Fatal(err, answer)
	}
}
