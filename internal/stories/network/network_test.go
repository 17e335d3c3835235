package network_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/netns"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// The addresses of the namespace, beside 127.0.0.1 and ::1.
const (
	dns6, web6   = "fd00:89::53", "fd00:89::80"
	dns4, web4   = "10.89.0.53", "10.89.0.80"
	proxyAddress = "10.89.0.3:3128"
	directHost   = "10.89.0.5"
	httpPort     = 5002
)

func TestMain(m *testing.M) {
	os.Exit(netns.Run(tests{m}, dns6+"/128", web6+"/128", dns4+"/32", web4+"/32", "10.89.0.3/32", directHost+"/32"))
}

// tests are the tests of this package, in a process with a proxy and a root of its own. A process reads these variables
// once, so they are set before the tests run.
type tests struct{ m *testing.M }

// Run implements netns.Tests.
func (s tests) Run() int {
	dir, err := os.MkdirTemp("", "chancery-network-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // of a test
	root := filepath.Join(dir, "root.pem")
	text, err := selfSigned("*.root.test")
	if err == nil {
		err = os.WriteFile(root, text, 0o600)
	}
	for name, value := range map[string]string{
		"HTTPS_PROXY": "http://" + proxyAddress, "NO_PROXY": "10.89.0.0/24,fd00:89::/64", "HTTP_PROXY": "",
		"https_proxy": "", "no_proxy": "", "http_proxy": "", "SSL_CERT_FILE": root, "SSL_CERT_DIR": dir,
	} {
		err = errors.Join(err, os.Setenv(name, value))
	}
	if err != nil {
		panic(err)
	}
	return s.m.Run()
}

// selfSigned returns a certificate that is its own root, good for a name and for directHost, and its key.
func selfSigned(name string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.ParseIP(directHost)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...), nil
}

// pairs returns the certificates of the servers, and the root of those below behind.test. The root of those below
// root.test is the machine's.
func pairs(t *testing.T) (all []tls.Certificate, bundle []byte) {
	t.Helper()
	private, err := selfSigned("*.behind.test")
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{private, public} {
		pair, err := tls.X509KeyPair(text, text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pair)
	}
	block, _ := pem.Decode(private)
	return all, pem.EncodeToMemory(block)
}

// TestNetwork shares one API server between the stories: it listens on ::1.
func TestNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: this test needs an API server")
	}
	rc := rig.OwnCluster(t, "--bind-address", "::1")
	t.Run("both families", func(t *testing.T) { bothFamilies(t, rc) })
	t.Run("proxy", func(t *testing.T) { behindProxy(t, rc) })
	// At last: a program of Go that finds no 127.0.0.1 does not listen on both families with one socket.
	for _, address := range []string{"127.0.0.1/8", web4 + "/32", dns4 + "/32", directHost + "/32", "10.89.0.3/32"} {
		if out, err := exec.CommandContext(t.Context(), tool.Path(t, "ip"), "addr", "del", address, "dev", "lo").CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	t.Run("IPv6 alone", func(t *testing.T) { ipv6Alone(t, rc) })
}

// world is a World with an ACME server, and DNS servers of example.com.
type world struct {
	*rig.World

	ca  *pebble.Server
	dns *dnsserver.Server
}

const tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0"

func newWorld(t *testing.T, rc *rest.Config, zone dnsserver.Zone, hosts ...string) *world {
	t.Helper()
	w := &world{World: rig.NewWorldOn(t, rc)}
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	config := dnsserver.Config{Zones: []dnsserver.Zone{zone}, Key: key}
	for _, host := range hosts {
		config.Hosts = append(config.Hosts, netip.MustParseAddr(host))
	}
	if w.dns, err = dnsserver.Start(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.ca, err = pebble.Start(t.Context(), pebble.Options{
		Listen: "[::1]:0", Names: []string{"acme.behind.test"}, DNSServer: w.dns.Addr(), HTTPPort: httpPort,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Create(t, &corev1.Secret{ObjectMeta: named("tsig"), StringData: map[string]string{"key": tsigSecret}})
	return w
}

// run starts the controllers, which answer HTTP-01 at an address.
func (w *world) run(t *testing.T, address string) {
	t.Helper()
	cfg := w.World.Config()
	cfg.ACME.RecursiveNameservers = []string{w.dns.Addr()}
	cfg.ACME.AuthoritativePort = w.dns.Port()
	cfg.ACME.HTTP01Port, cfg.ACME.HTTP01Address = httpPort, address
	cfg.ACME.HTTP01Nameservers = []string{w.dns.Addr()}
	cfg.ACME.DNS01 = app.DNS01Config{}
	w.Run(t, cfg)
}

// issuer makes names below http.example.com by HTTP-01, all others by DNS-01.
func (w *world) issuer(server string, more ...acmev1.ACMEChallengeSolver) *certmanagerv1.ClusterIssuer {
	return w.clusterIssuer("acme", certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: server, CABundle: w.ca.TLSBundle, Email: "ops@example.com", PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
		Solvers: append([]acmev1.ACMEChallengeSolver{
			{DNS01: w.rfc2136()},
			{Selector: zone("http.example.com"), HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}},
		}, more...),
	}})
}

func (w *world) rfc2136() *acmev1.DNS01Solver {
	return &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
		Nameserver: w.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256",
		TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
	}}
}

func (w *world) clusterIssuer(name string, spec certmanagerv1.IssuerSpec) *certmanagerv1.ClusterIssuer {
	return &certmanagerv1.ClusterIssuer{ObjectMeta: named(w.ClusterName(name)), Spec: spec}
}

func (w *world) certificate(name string, dnsNames ...string) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{ObjectMeta: named(name), Spec: certmanagerv1.CertificateSpec{
		SecretName: name, DNSNames: dnsNames,
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		IssuerRef:  cmmeta.IssuerReference{Name: w.ClusterName("acme"), Kind: cmmeta.ClusterIssuerKind},
	}}
}

// issued waits for a Certificate, and verifies it by the CA's root.
func (w *world) issued(t *testing.T, name, host string) {
	t.Helper()
	secret := &corev1.Secret{}
	rig.Eventually(t, name+" is issued", func(ctx context.Context) string {
		crt, challenges := &certmanagerv1.Certificate{}, &acmev1.ChallengeList{}
		if err := w.Get(ctx, name, crt); err != nil {
			return err.Error()
		}
		if certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
			return ""
		}
		said := fmt.Sprintf("%+v", crt.Status.Conditions)
		if err := w.Client.List(ctx, challenges, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		for _, ch := range challenges.Items {
			said += fmt.Sprintf("; %s of %s: %s", ch.Spec.Type, ch.Spec.DNSName, ch.Status.Reason)
		}
		return said
	})
	if err := w.Get(t.Context(), name, secret); err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(secret.Data[corev1.TLSCertKey])
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	intermediates := x509.NewCertPool()
	intermediates.AppendCertsFromPEM(bytes.TrimSpace(rest))
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: w.ca.RootPool(), Intermediates: intermediates}); err != nil {
		t.Error(err)
	}
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func zone(name string) *acmev1.CertificateDNSNameSelector {
	return &acmev1.CertificateDNSNameSelector{DNSZones: []string{name}}
}
