package waits

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/kubelet"
	"chancery.dev/kubectl/internal/plugin"
)

func run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := New(plugin.Streams{Out: &out, ErrOut: &out})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// TestWaits: the command reaches the controller that leads through the API server and the kubelet, passes by one that
// does not lead, and names the right that is missing.
func TestWaits(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "web", DNSNames: []string{"web.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "missing"},
	}}, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "cert-manager-controller"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()},
	}})
	leader, other := w.Config(), w.Config()
	leader.WaitsAddress, other.WaitsAddress = rig.FreeAddress(t).String(), rig.FreeAddress(t).String()
	other.LeaderElect, other.LeaderElectionNamespace = true, w.Namespace
	w.Run(t, leader)
	w.RunAs(t, other, w.Admin)
	node, labels := kubelet.Start(t, w), map[string]string{nameLabel: "chancery-controller"}
	node.Pod(t, "a", labels, "", "--waits-address="+other.WaitsAddress)
	flags := []string{"--kubeconfig", rig.Kubeconfig(t, w.Admin, w.Namespace), "--controller-namespace", w.Namespace}
	ask := func(ctx context.Context, more ...string) (string, error) { return run(ctx, append(more, flags...)...) }
	rig.Eventually(t, "one that does not lead says so", func(ctx context.Context) string {
		said, err := ask(ctx)
		if err == nil || !errors.Is(err, errNotLeading) {
			return said + err.Error()
		}
		return ""
	})
	node.Pod(t, "b", labels, "", "--waits-address="+leader.WaitsAddress)
	for _, as := range []string{"", "json"} {
		rig.Eventually(t, "the Certificate waits for its issuer, as "+as, func(ctx context.Context) string {
			said, err := ask(ctx, "-o", as, "--kind", "certificaterequest,certificate")
			if err != nil || !strings.Contains(said, "web") || !strings.Contains(said, "Event") {
				return said + plain(err)
			}
			return ""
		})
	}
	if said, err := ask(t.Context(), "--as", "somebody"); err == nil || !strings.Contains(err.Error(), "list pods") {
		t.Errorf("without rights: %s %v", said, err)
	}
	allow(t, w, "somebody", "pods", "list")
	if said, err := ask(t.Context(), "--as", "somebody"); err == nil || !strings.Contains(err.Error(), "create pods/portforward") {
		t.Errorf("without the right to forward: %s %v", said, err)
	}
	allow(t, w, "somebody", "pods/portforward", "get", "create")
	if said, err := ask(t.Context(), "--as", "somebody"); err != nil || !strings.Contains(said, "web") {
		t.Errorf("with the rights that are documented: %s %v", said, err)
	}
	node.Pod(t, "0", labels, "", "--waits-address="+closed(t))
	if said, err := ask(t.Context(), "--as", "somebody"); err != nil || !strings.Contains(said, "web") {
		t.Errorf("beside a Pod that is silent: %s %v", said, err)
	}
}

// TestNoController: a Pod that does not listen, and a cluster without a controller, are told apart.
func TestNoController(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	flags := []string{"--kubeconfig", rig.Kubeconfig(t, w.Admin, w.Namespace), "--controller-namespace", w.Namespace}
	if said, err := run(t.Context(), flags...); err == nil || !strings.Contains(err.Error(), "--socket") {
		t.Errorf("without a controller: %s %v", said, err)
	}
	node := kubelet.Start(t, w)
	node.Pod(t, "a", map[string]string{nameLabel: "cert-manager", "app.kubernetes.io/component": "controller"}, "", "--waits-address="+closed(t))
	if said, err := run(t.Context(), flags...); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("where nothing listens: %s %v", said, err)
	}
}

func closed(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func plain(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestIsController: the Pods of every way to install are known, and an ingress controller is none of them.
func TestIsController(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, component string
		named, want     bool
	}{
		{"chancery-controller", "", false, true},
		{"cert-manager", "controller", false, true},
		{"cert-manager", "startupapicheck", false, false},
		{"ingress-nginx", "controller", false, false},
		{"certs", "controller", true, true},
		{"webhook", "webhook", true, false},
	} {
		if got := isController(map[string]string{nameLabel: c.name, componentLabel: c.component}, c.named); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestFilter: what ends first is on top, what has no end is last, and the filters take what they say.
func TestFilter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	all := []engine.Wait{
		{Kind: "Certificate", Namespace: "shop", Name: "event", For: engine.For{What: engine.WaitEvent, Detail: strings.Repeat("é", 100)}, Since: now.Add(-time.Hour)},
		{Kind: "Challenge", Namespace: "shop", Name: "late", For: engine.For{What: engine.WaitSlot}, Until: now.Add(time.Hour)},
		{Kind: "Order", Namespace: "blog", Name: "soon", For: engine.For{What: engine.WaitCall}, Lane: "https://acme.example abc", Until: now.Add(time.Minute)},
		{Kind: "ClusterIssuer", Name: "le", For: engine.For{What: engine.WaitPark}, Until: now.Add(2 * time.Minute)},
	}
	for want, f := range map[string]filter{
		"soon le late event": {},
		"late event":         {namespace: "shop"},
		"soon late":          {kinds: []string{"order", "challenge"}},
		"le":                 {why: []string{"park"}},
		"soon":               {lane: "acme.example"},
		"":                   {namespace: "blog", why: []string{"slot"}},
	} {
		var names []string
		for _, w := range f.of(all) {
			names = append(names, w.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
	var out bytes.Buffer
	if err := table(&out, filter{}.of(all), true, false, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Order/soon", "in 60s", "60m ago", "https://acme.example abc", strings.Repeat("é", 79) + "…"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
}

// allow gives a user rights in the namespace of a world.
func allow(t *testing.T, w *rig.World, user, resource string, verbs ...string) {
	t.Helper()
	name := strings.ReplaceAll(resource, "/", "-")
	w.Create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs}}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{{Kind: "User", Name: user}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		})
}
