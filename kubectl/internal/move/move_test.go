package move

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

const (
	resources = "cert-manager"
	tsig      = "c2VjcmV0IG9mIHRoZSB0ZXN0"
)

// side is one cluster with its controllers.
type side struct {
	*rig.World

	name string
	stop func()
}

// world is two clusters, an ACME server and a DNS server.
type world struct {
	a, b *side
	ca   *pebble.Server
	dns  *dnsserver.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{a: &side{World: rig.NewWorldOn(t, rig.OwnCluster(t)), name: "a"}, b: &side{World: rig.NewWorldOn(t, rig.OwnCluster(t)), name: "b"}}
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsig)
	if err != nil {
		t.Fatal(err)
	}
	w.dns, err = dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}}, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if w.ca, err = pebble.Start(t.Context(), pebble.Options{DNSServer: w.dns.Addr()}); err != nil {
		t.Fatal(err)
	}
	return w
}

// run starts the controllers of a side.
func (w *world) run(t *testing.T, s *side) {
	t.Helper()
	cfg := s.Config()
	cfg.ClusterResourceNamespace = resources
	cfg.Scope.Namespaces, cfg.Scope.ClusterObject = nil, nil
	cfg.ACME.RecursiveNameservers = []string{w.dns.Addr()}
	cfg.ACME.AuthoritativePort = w.dns.Port()
	s.stop = s.Run(t, cfg)
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func crtOf(name, kind, issuer string, names ...string) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{ObjectMeta: named("team", name), Spec: certmanagerv1.CertificateSpec{
		SecretName: name + "-tls", DNSNames: names,
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		IssuerRef:  cmmeta.IssuerReference{Name: issuer, Kind: kind},
	}}
}

// fill makes issuers of all types and their Certificates in a cluster, and waits until they are issued.
func (w *world) fill(t *testing.T, s *side) {
	t.Helper()
	root := crtOf("root", "Issuer", "self")
	root.Spec.IsCA, root.Spec.CommonName, root.Spec.SecretName = true, "test root", "root"
	stores := crtOf("stores", "Issuer", "ca", "stores.example.com")
	stores.Spec.Keystores = &certmanagerv1.CertificateKeystores{PKCS12: &certmanagerv1.PKCS12Keystore{
		Create: true, PasswordSecretRef: cmmeta.SecretKeySelector{Name: "password", Key: "p"},
	}}
	s.Create(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
		&corev1.Secret{ObjectMeta: named(resources, "tsig"), StringData: map[string]string{"key": tsig}},
		&corev1.Secret{ObjectMeta: named("team", "password"), StringData: map[string]string{"p": "secret"}},
		&certmanagerv1.Issuer{ObjectMeta: named("team", "self"), Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		root,
		&certmanagerv1.Issuer{ObjectMeta: named("team", "ca"), Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}},
		crtOf("web", "Issuer", "ca", "web.example.com"), stores,
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "acme"}, Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server: w.ca.DirectoryURL, CABundle: w.ca.TLSBundle, Email: "ops@example.com",
			PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
			Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
				Nameserver: w.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256",
				TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
			}}}},
		}}},
		crtOf("public", "ClusterIssuer", "acme", "public.example.com"))
	for _, name := range []string{"root", "web", "stores", "public"} {
		awaitReady(t, s, name)
	}
}

func awaitReady(t *testing.T, s *side, name string) {
	t.Helper()
	rig.Eventually(t, name+" is issued in "+s.name, func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: "team", Name: name}, crt); err != nil {
			return err.Error()
		}
		conditions := crt.Status.Conditions
		ready := certmanagerv1.HasCertificateCondition(conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue)
		if !ready || certmanagerv1.HasCertificateCondition(conditions, certmanagerv1.CertificateConditionIssuing, cmmeta.ConditionTrue) {
			return fmt.Sprint(conditions)
		}
		return ""
	})
}

// issued is what must not change: keys, certificates, revisions, requests, Orders and the account, by name.
func issued(t *testing.T, s *side) map[string]string {
	t.Helper()
	out := map[string]string{}
	secrets, crts := &corev1.SecretList{}, &certmanagerv1.CertificateList{}
	requests, orders := &certmanagerv1.CertificateRequestList{}, &acmev1.OrderList{}
	for _, list := range []client.ObjectList{secrets, crts, requests, orders} {
		if err := s.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for i := range secrets.Items {
		o := &secrets.Items[i]
		out["Secret "+o.Namespace+"/"+o.Name] = text(t, o.Type, o.Data, o.Labels, o.Annotations)
	}
	for i := range crts.Items {
		o := &crts.Items[i]
		out["Certificate "+o.Name] = text(t, o.Status.Revision, o.Status.NotAfter, pausedBy(o))
	}
	for i := range requests.Items {
		o := &requests.Items[i]
		out["CertificateRequest "+o.Name] = text(t, o.Spec.Username, o.Spec.UID, o.Spec.Groups, o.Status, pausedBy(o))
	}
	for i := range orders.Items {
		o := &orders.Items[i]
		out["Order "+o.Name] = text(t, o.Status, pausedBy(o))
	}
	for key := range out {
		if strings.HasPrefix(key, "Secret kube-system/") || strings.Contains(key, "-webhook-ca") {
			delete(out, key)
		}
	}
	issuer := &certmanagerv1.ClusterIssuer{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: "acme"}, issuer); err != nil {
		t.Fatal(err)
	}
	out["account"] = issuer.Status.ACME.URI
	return out
}

func text(t *testing.T, parts ...any) string {
	t.Helper()
	said, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

func compare(t *testing.T, what string, before, after map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			t.Errorf("%s: %s was\n%s\nand is\n%s", what, name, before[name], after[name])
		}
	}
	for name := range after {
		if _, was := before[name]; !was {
			t.Errorf("%s: %s was made", what, name)
		}
	}
}

// errKilled is what a run ends with that is killed.
var errKilled = errors.New("killed")

// cluster returns a side for the command. After writes more writes it is killed; never if writes is negative.
func (s *side) cluster(t *testing.T, writes *atomic.Int64) *cluster {
	t.Helper()
	c, err := newCluster(t.Context(), s.Admin, s.name, resources)
	if err != nil {
		t.Fatal(err)
	}
	if writes == nil {
		return c
	}
	c.Client = dying(t, c.Client, writes)
	as := c.as
	c.as = func(who rest.ImpersonationConfig) (client.Client, error) {
		by, err := as(who)
		if err != nil {
			return nil, err
		}
		return dying(t, by, writes), nil
	}
	return c
}

func everything() *options {
	return &options{all: true, wait: time.Minute, fromResources: resources, toResources: resources}
}

// TestMoveAndBack moves everything to another cluster and back while the controllers of both run: nothing is issued or
// registered again, and nothing is lost.
func TestMoveAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t, w.a)
	w.run(t, w.b)
	w.fill(t, w.a)
	before := issued(t, w.a)
	orders := w.ca.Orders(before["account"])

	var out bytes.Buffer
	o := everything()
	o.deleteSource = true
	for _, way := range [][2]*side{{w.a, w.b}, {w.b, w.a}} {
		if err := move(t.Context(), way[0].cluster(t, nil), way[1].cluster(t, nil), o, &out); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		w.settle(t, way[1])
		compare(t, "after the move to "+way[1].name, before, issued(t, way[1]))
		left := &certmanagerv1.CertificateList{}
		if err := way[0].Client.List(t.Context(), left); err != nil || len(left.Items) > 0 {
			t.Errorf("%d Certificates are left in %s, %v", len(left.Items), way[0].name, err)
		}
	}
	if now := w.ca.Orders(before["account"]); now != orders {
		t.Errorf("the CA got %d orders, want the %d from before", now, orders)
	}
	t.Log(out.String())
}

// settle has a side issue something new twice: by then its controllers have looked at everything that was moved. Then
// it is deleted.
func (w *world) settle(t *testing.T, s *side) {
	t.Helper()
	for _, name := range []string{"probe1", "probe2"} {
		crt := crtOf(name, "Issuer", "ca", "probe.example.com")
		s.Create(t, crt)
		awaitReady(t, s, name)
		if err := s.Client.Delete(t.Context(), crt); err != nil {
			t.Fatal(err)
		}
		requests := &certmanagerv1.CertificateRequestList{}
		if err := s.Client.List(t.Context(), requests); err != nil {
			t.Fatal(err)
		}
		for i := range requests.Items {
			if strings.HasPrefix(requests.Items[i].Name, name) {
				if err := client.IgnoreNotFound(s.Client.Delete(t.Context(), &requests.Items[i])); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: named("team", name+"-tls")}); err != nil {
			t.Fatal(err)
		}
	}
}
