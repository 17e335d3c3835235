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

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/slow"
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
	rig.Eventually(t, "the keys of the issuances are deleted", func(ctx context.Context) string {
		keys := &corev1.SecretList{}
		if err := s.Client.List(ctx, keys, client.MatchingLabels{certmanagerv1.NextPrivateKeyLabel: certmanagerv1.LabelTrue}); err != nil || len(keys.Items) > 0 {
			return fmt.Sprint(len(keys.Items), err)
		}
		return ""
	})
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

// TestMoveAndBack moves everything to another cluster and back, while the controllers of both run. The command is
// killed after every seventh write (in the slow part crash on the way there after each), with the answer unseen, and
// is run again: nothing is issued or registered again, nothing is lost, and no Certificate is ever worked on by both
// sides.
func TestMoveAndBack(t *testing.T) {
	slow.Test(t, slow.Installs)
	t.Parallel()
	w := newWorld(t)
	w.run(t, w.a)
	w.run(t, w.b)
	w.fill(t, w.a)
	before := issued(t, w.a)
	orders := w.ca.Orders(before["account"])
	writes := int64(7)
	if slow.Runs(slow.Crash) {
		writes = 1
	}
	w.moveKilled(t, w.a, w.b, writes)
	w.settle(t, w.b)
	compare(t, "after the move there", before, issued(t, w.b))
	w.moveKilled(t, w.b, w.a, 7)
	w.settle(t, w.a)
	compare(t, "after the move back", before, issued(t, w.a))
	if now := w.ca.Orders(before["account"]); now != orders {
		t.Errorf("the CA got %d orders, want the %d from before", now, orders)
	}
}

// moveKilled runs the command, which is killed after so many writes, until it ends by itself.
func (w *world) moveKilled(t *testing.T, from, to *side, each int64) {
	t.Helper()
	var writes atomic.Int64
	a, b := from.cluster(t, &writes), to.cluster(t, &writes)
	o := &options{all: true, wait: time.Minute, deleteSource: true}
	for kills := 0; ; kills++ {
		var out bytes.Buffer
		writes.Store(each)
		err := move(t.Context(), a, b, o, &out)
		w.oneSide(t)
		switch {
		case err == nil:
			t.Logf("%d kills, then:\n%s", kills, &out)
			nothingLeft(t, from)
			return
		case !errors.Is(err, errKilled) || kills > 500:
			t.Fatalf("after %d kills: %v\n%s", kills, err, &out)
		}
	}
}

// nothingLeft checks that the source has nothing of what was moved, but Secrets.
func nothingLeft(t *testing.T, s *side) {
	t.Helper()
	for _, list := range []client.ObjectList{
		&certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{}, &certmanagerv1.CertificateList{},
		&certmanagerv1.CertificateRequestList{}, &acmev1.OrderList{}, &acmev1.ChallengeList{},
	} {
		if err := s.Client.List(t.Context(), list); err != nil || meta.LenList(list) > 0 {
			t.Errorf("%d are left of %T in %s, %v", meta.LenList(list), list, s.name, err)
		}
	}
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

// oneSide checks that no Certificate is worked on by both sides.
func (w *world) oneSide(t *testing.T) {
	t.Helper()
	active := map[string]string{}
	for _, s := range []*side{w.a, w.b} {
		list := &certmanagerv1.CertificateList{}
		if err := s.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			crt := &list.Items[i]
			if pausedBy(crt) != "" {
				continue
			}
			if other := active[crt.Name]; other != "" {
				t.Errorf("Certificate %s is worked on in %s and in %s", crt.Name, other, s.name)
			}
			active[crt.Name] = s.name
		}
	}
}

// TestMoveWithoutControllers moves where no controllers run.
func TestMoveWithoutControllers(t *testing.T) {
	t.Parallel()
	a, b := &side{World: rig.NewWorldOn(t, rig.OwnCluster(t)), name: "a"}, &side{World: rig.NewWorldOn(t, rig.Cluster(t)), name: "b"}
	t.Run("one namespace", func(t *testing.T) { oneNamespace(t, a, b) })
	t.Run("refuses", func(t *testing.T) { refuses(t, a, b) })
}

// oneNamespace moves what has a label in one namespace: what it needs from elsewhere is copied, and stays as it is in
// the source.
func oneNamespace(t *testing.T, a, b *side) {
	t.Helper()
	ns, shared := b.ClusterName("one"), b.ClusterName("shared")
	labelled := func(name string) metav1.ObjectMeta {
		m := named(ns, name)
		m.Labels = map[string]string{"app": "web"}
		return m
	}
	crt := func(name string, ref cmmeta.IssuerReference) *certmanagerv1.Certificate {
		c := crtOf(name, ref.Kind, ref.Name, name+".example.com")
		c.ObjectMeta, c.Spec.IssuerRef.Group = labelled(name), ref.Group
		return c
	}
	owned, other := crt("owned", cmmeta.IssuerReference{Kind: "ClusterIssuer", Name: shared}), crt("other", cmmeta.IssuerReference{Name: "self"})
	ingress := &networkingv1.Ingress{ObjectMeta: named(ns, "web"), Spec: networkingv1.IngressSpec{
		DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
	}}
	a.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, ingress)
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "web", UID: ingress.UID}}
	other.Labels = nil
	request := &certmanagerv1.CertificateRequest{ObjectMeta: labelled("asked"), Spec: certmanagerv1.CertificateRequestSpec{
		Request: []byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"), IssuerRef: cmmeta.IssuerReference{Name: "x", Kind: "Other", Group: "example.com"},
	}}
	a.Create(t, owned, other, request,
		crt("external", cmmeta.IssuerReference{Kind: "Other", Name: "x", Group: "example.com"}),
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: shared}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: shared}}},
		&corev1.Secret{ObjectMeta: named(resources, shared), Data: map[string][]byte{"tls.crt": []byte("a")}})
	request.Status.Conditions = []certmanagerv1.CertificateRequestCondition{
		{Type: "Ready", Status: "False", Reason: "Denied"}, {Type: "Denied", Status: "True"},
	}
	if err := a.Client.Status().Update(t.Context(), request); err == nil {
		t.Error("anybody may deny the request of an issuer that is not known: the test shows nothing")
	}
	request.Status.Conditions = request.Status.Conditions[:1]
	if err := a.Client.Status().Update(t.Context(), request); err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	o := &options{namespace: ns, selector: "app=web"}
	to := b.cluster(t, nil)
	to.resources = b.Namespace
	if err := move(t.Context(), a.cluster(t, nil), to, o, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, says := range []string{
		"make  Namespace " + ns, "copy  ClusterIssuer " + shared, "copy  Secret " + resources + "/" + shared,
		"external is issued by Other x of example.com, which is not moved", "owned belongs to Ingress web, which b does not have",
	} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("the command does not say %q:\n%s", says, &out)
		}
	}
	for _, want := range []struct {
		in     *side
		o      client.Object
		paused string
	}{
		{a, &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: shared}}, ""},
		{b, &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: shared}}, ""},
		{a, &corev1.Secret{ObjectMeta: named(resources, shared)}, ""},
		{b, &corev1.Secret{ObjectMeta: named(b.Namespace, shared)}, ""},
		{a, &certmanagerv1.Certificate{ObjectMeta: named(ns, "owned")}, movedTo + string(to.uid)},
		{b, &certmanagerv1.Certificate{ObjectMeta: named(ns, "owned")}, ""},
		{b, &certmanagerv1.Certificate{ObjectMeta: named(ns, "external")}, ""},
		{b, &certmanagerv1.CertificateRequest{ObjectMeta: named(ns, "asked")}, ""},
		{a, &certmanagerv1.Certificate{ObjectMeta: named(ns, "other")}, ""},
	} {
		if err := want.in.Client.Get(t.Context(), client.ObjectKeyFromObject(want.o), want.o); err != nil || pausedBy(want.o) != want.paused {
			t.Errorf("%T %s in %s is paused by %q, want %q: %v", want.o, want.o.GetName(), want.in.name, pausedBy(want.o), want.paused, err)
		}
	}
	if err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "other"}, other); !apierrors.IsNotFound(err) {
		t.Errorf("what has not the label is in the target: %v", err)
	}
}

// refuses: what cannot be moved is refused by name, and nothing is written before.
func refuses(t *testing.T, a, b *side) {
	t.Helper()
	ns := b.Namespace
	a.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		&certmanagerv1.Issuer{ObjectMeta: named(ns, "self"), Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.Issuer{ObjectMeta: named(ns, "ca"), Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "ca"}}},
		&corev1.Secret{ObjectMeta: named(ns, "ca"), Data: map[string][]byte{"tls.crt": []byte("a")}})
	var writes atomic.Int64 // none is allowed
	o := &options{namespace: ns}
	refused := func(words ...string) {
		t.Helper()
		var out bytes.Buffer
		err := move(t.Context(), a.cluster(t, &writes), b.cluster(t, &writes), o, &out)
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("the move ends with %v, want an error with %q", err, w)
			}
		}
	}

	o.namespace = "nowhere"
	refused("a has nothing to move there")
	o.namespace = ns

	b.Create(t, &corev1.Secret{ObjectMeta: named(ns, "ca"), Data: map[string][]byte{"tls.crt": []byte("b")}},
		&certmanagerv1.Issuer{ObjectMeta: named(ns, "self"), Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "other"}}})
	refused("Secret "+ns+"/ca is in b already", "Issuer "+ns+"/self is in b already")

	for _, o := range []client.Object{
		&certmanagerv1.Issuer{ObjectMeta: named(ns, "self")}, &corev1.Secret{ObjectMeta: named(ns, "ca")},
	} {
		if err := b.Client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	self, pause := &certmanagerv1.Issuer{ObjectMeta: named(ns, "self")}, []byte(`{"metadata":{"annotations":{"chancery.dev/paused":""}}}`)
	if err := a.Client.Patch(t.Context(), self, client.RawPatch(types.MergePatchType, pause)); err != nil {
		t.Fatal(err)
	}
	refused("Issuer " + ns + "/self is paused already")
	if err := a.Client.Delete(t.Context(), self); err != nil {
		t.Fatal(err)
	}

	now, holder, seconds := metav1.NowMicro(), "host-external-cert-manager-controller", int32(60)
	lease := &coordinationv1.Lease{ObjectMeta: named("kube-system", "cert-manager-controller"), Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &seconds,
	}}
	a.Create(t, lease)
	refused("in a, cert-manager's own controller runs", "Scale its Deployment to 0")
	if err := a.Client.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}

	o.dryRun = true
	var out bytes.Buffer
	if err := move(t.Context(), a.cluster(t, &writes), b.cluster(t, &writes), o, &out); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if want := "move  Issuer " + ns + "/ca\n  move  Secret " + ns + "/ca\n"; !strings.Contains(out.String(), want) {
		t.Errorf("a dry run says\n%s\nwant %s", &out, want)
	}
	b = a
	refused("the same cluster")
	b = &side{World: &rig.World{Admin: rig.BareCluster(t)}, name: "bare"}
	refused("bare does not have the definition of Issuer", "chancery install")
}

// TestMoveUnderWay: a request that does not end is left behind, and the Certificate asks again in the target, and only
// there.
func TestMoveUnderWay(t *testing.T) {
	slow.Test(t, slow.Installs)
	t.Parallel()
	w := &world{a: &side{World: rig.NewWorldOn(t, rig.OwnCluster(t)), name: "a"}, b: &side{World: rig.NewWorldOn(t, rig.Cluster(t)), name: "b"}}
	ns := w.b.Namespace
	w.a.Namespace = ns
	w.a.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	stopA, stopB := w.a.Run(t, w.a.Config()), w.b.Run(t, w.b.Config())
	defer stopA()
	defer stopB()
	crt := crtOf("waits", "Issuer", "late", "waits.example.com")
	crt.Namespace = ns
	w.a.Create(t, crt)
	requests := func(s *side) []certmanagerv1.CertificateRequest {
		list := &certmanagerv1.CertificateRequestList{}
		if err := s.Client.List(t.Context(), list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	rig.Eventually(t, "the request waits for its issuer", func(context.Context) string {
		for _, r := range requests(w.a) {
			if len(r.Status.Conditions) > 1 {
				return ""
			}
		}
		return "no request that waits"
	})

	o := &options{namespace: ns, wait: time.Millisecond}
	var out bytes.Buffer
	if err := move(t.Context(), w.a.cluster(t, nil), w.b.cluster(t, nil), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, s := range []*side{w.a, w.b} {
		s.Create(t, &certmanagerv1.Issuer{ObjectMeta: named(ns, "late"), Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}})
	}
	rig.Eventually(t, "it is issued in the target", func(ctx context.Context) string {
		now := &certmanagerv1.Certificate{}
		if err := w.b.Get(ctx, "waits", now); err != nil {
			return err.Error()
		}
		if now.Status.Revision == nil {
			return fmt.Sprint(now.Status.Conditions)
		}
		return ""
	})
	for _, r := range requests(w.a) {
		if !unfinished(&r) || pausedBy(&r) == "" {
			t.Errorf("in the source, %s goes on: %+v", r.Name, r.Status.Conditions)
		}
	}
	o.deleteSource = true
	o.wait = time.Minute
	if err := move(t.Context(), w.a.cluster(t, nil), w.b.cluster(t, nil), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if left := requests(w.a); len(left) > 0 {
		t.Errorf("%d requests are left in the source", len(left))
	}
	if !strings.Contains(out.String(), "is under way") {
		t.Errorf("the plan does not say that a request is left behind:\n%s", &out)
	}
}
