package route_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwapiv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/http01/route"
)

// forget is longer than what was read of a parent holds.
const forget = 4 * time.Second

// installGatewayAPI applies definitions that come with the library, until the test ends.
func (w *world) installGatewayAPI(t *testing.T, resources ...string) {
	t.Helper()
	for _, crd := range rig.GatewayAPI(t, resources...) {
		if err := w.client.Create(t.Context(), crd); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.client.Delete(context.Background(), crd) })
	}
}

// awaitGatewayAPI waits until a new client finds what is asked for, or no longer does.
func (w *world) awaitGatewayAPI(t *testing.T, served bool) {
	t.Helper()
	rig.Eventually(t, fmt.Sprint("the Gateway API is served: ", served), func(ctx context.Context) string {
		c, err := client.New(rig.Cluster(t), client.Options{Scheme: w.client.Scheme()})
		if err != nil {
			return err.Error()
		}
		for _, list := range []client.ObjectList{&gwapiv1.GatewayList{}, &gwapiv1.ListenerSetList{}, &gwapiv1.HTTPRouteList{}, &gwapiv1beta1.ReferenceGrantList{}} {
			err := c.List(ctx, list, client.InNamespace(w.Namespace))
			if served && err != nil || !served && !meta.IsNoMatchError(err) {
				return fmt.Sprintf("%T: %v", list, err)
			}
		}
		return ""
	})
}

func listener(name string, port gwapiv1.PortNumber, protocol gwapiv1.ProtocolType) gwapiv1.Listener {
	l := gwapiv1.Listener{Name: gwapiv1.SectionName(name), Port: port, Protocol: protocol}
	if protocol == gwapiv1.HTTPSProtocolType {
		l.TLS = &gwapiv1.ListenerTLSConfig{CertificateRefs: []gwapiv1.SecretObjectReference{{Name: "tls"}}}
	}
	return l
}

func (w *world) gateway(t *testing.T, name string, listeners ...gwapiv1.Listener) *gwapiv1.Gateway {
	t.Helper()
	g := &gwapiv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: gwapiv1.GatewaySpec{GatewayClassName: "any", Listeners: listeners}}
	w.Create(t, g)
	return g
}

// by is a solver with these parents.
func by(refs ...gwapiv1.ParentReference) *acmev1.HTTP01Solver {
	return &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{ParentRefs: refs}}
}

// sections presents a Challenge, and returns where its HTTPRoute attaches.
func (w *world) sections(t *testing.T, task solver.Task) string {
	t.Helper()
	w.present(t, task)
	list := &gwapiv1.HTTPRouteList{}
	if err := w.client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, found := range list.Items {
		if !metav1.IsControlledBy(&found, task.Challenge) {
			continue
		}
		for _, ref := range found.Spec.ParentRefs {
			section := gwapiv1.SectionName("-")
			if ref.SectionName != nil {
				section = *ref.SectionName
			}
			out = append(out, fmt.Sprintf("%s %s/%s", *ref.Kind, ref.Name, section))
		}
	}
	return strings.Join(out, ", ")
}

func TestParents(t *testing.T) { // alone: TestHTTPRoute begins without the Gateway API
	w := newWorld(t)
	t.Cleanup(func() { w.awaitGatewayAPI(t, false) })
	w.installGatewayAPI(t, "httproutes", "gateways", "listenersets", "referencegrants")
	w.awaitGatewayAPI(t, true)
	t.Run("granted", testGranted)
	t.Run("mended", w.testMended)
	t.Run("chosen", w.testChosen)
	t.Run("closed", w.testClosed)
	t.Run("unreadable", w.testUnreadable)
	t.Run("a hundred", w.testHundred)
}

// testMended gives a Gateway for TLS alone what its Challenge asks for.
func (w *world) testMended(t *testing.T) {
	g := w.gateway(t, "secure", listener("tls", 443, gwapiv1.HTTPSProtocolType))
	task := w.challenge(t, "mended", "www.example.test", by(gwapiv1.ParentReference{Name: "secure"}))
	err := w.router.Present(t.Context(), task)
	f := fault.Of(err)
	want := fmt.Sprintf("no listener takes the HTTPRoute: Gateway %[1]s/secure: listener tls is HTTPS; add one with protocol HTTP on port 80 "+
		"that admits www.example.test and HTTPRoutes of namespace %[1]s", w.Namespace)
	if f == nil || f.Reason != route.ReasonNoListener || f.Kind != fault.KindAfter || f.Delay > 10*time.Second || f.Error() != want {
		t.Fatalf("%v, want %s", err, want)
	}
	g.Spec.Listeners = append(g.Spec.Listeners, listener("web", 80, gwapiv1.HTTPProtocolType))
	if err := w.client.Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	w.ahead.Add(int64(forget))
	if got := w.sections(t, task); got != "Gateway secure/web" {
		t.Error(got)
	}
	w.cleanUp(t, task)
	list := &gwapiv1.HTTPRouteList{}
	if err := w.client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("after clean-up: %v, %d HTTPRoutes", err, len(list.Items))
	}
}

func (w *world) testChosen(t *testing.T) {
	w.gateway(t, "one", listener("tls", 443, gwapiv1.HTTPSProtocolType))
	w.gateway(t, "both", listener("tls", 443, gwapiv1.HTTPSProtocolType), listener("web", 80, gwapiv1.HTTPProtocolType))
	infra := gwapiv1.Namespace(w.Namespace + "-infra")
	selector, all := gwapiv1.NamespacesFromSelector, gwapiv1.Kind("ListenerSet")
	selective := listener("selective", 80, gwapiv1.HTTPProtocolType)
	selective.AllowedRoutes = &gwapiv1.AllowedRoutes{Namespaces: &gwapiv1.RouteNamespaces{
		From: &selector, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
	}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(infra)}}
	t.Cleanup(func() { _ = w.client.Delete(context.Background(), namespace) })
	for _, obj := range []client.Object{
		namespace,
		&gwapiv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: string(infra), Name: "shared"}, Spec: gwapiv1.GatewaySpec{
			GatewayClassName: "any", Listeners: []gwapiv1.Listener{listener("closed", 8080, gwapiv1.HTTPProtocolType), selective},
		}},
		&gwapiv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "set"}, Spec: gwapiv1.ListenerSetSpec{
			ParentRef: gwapiv1.ParentGatewayReference{Namespace: &infra, Name: "shared"},
			Listeners: []gwapiv1.ListenerEntry{{Name: "own", Port: 443, Protocol: gwapiv1.HTTPSProtocolType, TLS: listener("", 0, gwapiv1.HTTPSProtocolType).TLS}},
		}},
	} {
		if err := w.client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	section := gwapiv1.SectionName("tls")
	for name, c := range map[string]struct {
		refs       []gwapiv1.ParentReference
		want, says string
	}{
		"http":       {[]gwapiv1.ParentReference{{Name: "both"}}, "Gateway both/web", ""},
		"selector":   {[]gwapiv1.ParentReference{{Name: "shared", Namespace: &infra}}, "Gateway shared/selective", ""},
		"set":        {[]gwapiv1.ParentReference{{Name: "set", Kind: &all}}, "Gateway shared/selective", ""},
		"section":    {[]gwapiv1.ParentReference{{Name: "both", SectionName: &section}}, "Gateway both/tls", ""},
		"one-of-two": {[]gwapiv1.ParentReference{{Name: "one"}, {Name: "both"}}, "Gateway both/web", "/one: listener tls is HTTPS; add one"},
		"not-there":  {[]gwapiv1.ParentReference{{Name: "none"}}, "Gateway none/-", "/none does not exist"},
	} {
		task := w.challenge(t, name, "www.example.test", by(c.refs...))
		if got := w.sections(t, task); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		_, said, _ := strings.Cut(w.router.Status(t.Context(), task), "no Gateway has taken up")
		if said == "" || !strings.Contains(said, c.says) || c.says == "" && strings.Contains(said, "; ") {
			t.Errorf("%s: status %q", name, said)
		}
	}
}

// testClosed has parents of another namespace that do not admit the Challenge's say the same as those that do not
// exist.
func (w *world) testClosed(t *testing.T) {
	other := gwapiv1.Namespace(w.Namespace + "-closed")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(other)}}
	t.Cleanup(func() { _ = w.client.Delete(context.Background(), namespace) })
	hidden := listener("hidden", 80, gwapiv1.HTTPProtocolType)
	hidden.Hostname = new(gwapiv1.Hostname("www.example.test"))
	own := func(name, gateway string) client.Object {
		return &gwapiv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, Spec: gwapiv1.ListenerSetSpec{
			ParentRef: gwapiv1.ParentGatewayReference{Namespace: &other, Name: gwapiv1.ObjectName(gateway)},
			Listeners: []gwapiv1.ListenerEntry{{Name: "own", Port: 443, Protocol: gwapiv1.HTTPSProtocolType, TLS: listener("", 0, gwapiv1.HTTPSProtocolType).TLS}},
		}}
	}
	for _, obj := range []client.Object{
		namespace, own("of-there", "there"), own("of-none", "none"),
		&gwapiv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: string(other), Name: "there"}, Spec: gwapiv1.GatewaySpec{
			GatewayClassName: "any", Listeners: []gwapiv1.Listener{hidden},
		}},
		&gwapiv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: string(other), Name: "there"}, Spec: gwapiv1.ListenerSetSpec{
			ParentRef: gwapiv1.ParentGatewayReference{Name: "there"},
			Listeners: []gwapiv1.ListenerEntry{{Name: "hidden", Port: 80, Protocol: gwapiv1.HTTPProtocolType}},
		}},
	} {
		if err := w.client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	set := gwapiv1.Kind("ListenerSet")
	said := func(name string, ref gwapiv1.ParentReference) string {
		err := w.router.Present(t.Context(), w.challenge(t, name, "www.example.test", by(ref)))
		if f := fault.Of(err); f == nil || f.Reason != route.ReasonNoListener || !strings.Contains(err.Error(), "does not exist, or admits no HTTPRoutes") {
			t.Errorf("%s: %v", name, err)
			return ""
		}
		return err.Error()
	}
	for name, c := range map[string][2]gwapiv1.ParentReference{
		"gateway": {{Name: "there", Namespace: &other}, {Name: "none", Namespace: &other}},
		"set":     {{Name: "there", Namespace: &other, Kind: &set}, {Name: "none", Namespace: &other, Kind: &set}},
		"own-set": {{Name: "of-there", Kind: &set}, {Name: "of-none", Kind: &set}},
	} {
		there, none := said(name+"-there", c[0]), said(name+"-none", c[1])
		if strings.ReplaceAll(there, "there", "none") != none {
			t.Errorf("%s: %s\nwhere there is none: %s", name, there, none)
		}
	}
}

// testUnreadable has a role as it was before, which lets nobody read Gateways.
func (w *world) testUnreadable(t *testing.T) {
	w.gateway(t, "unread", listener("tls", 443, gwapiv1.HTTPSProtocolType))
	name := w.ClusterName("older")
	w.Create(t,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{gwapiv1.GroupName}, Resources: []string{"httproutes"}, Verbs: []string{"get", "create", "patch", "delete"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		})
	older, err := client.New(rig.As(rig.Cluster(t), name), client.Options{Scheme: w.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	before := w.router
	defer func() { w.router = before }()
	options := w.options
	options.Client = older
	w.router = route.New(options)
	task := w.challenge(t, "unread", "www.example.test", by(gwapiv1.ParentReference{Name: "unread"}))
	rig.Eventually(t, "the role is in force", func(ctx context.Context) string {
		return ignore(older.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: "none"}, &gwapiv1.HTTPRoute{}))
	})
	if got := w.sections(t, task); got != "Gateway unread/-" {
		t.Error(got)
	}
	if said := w.router.Status(t.Context(), task); !strings.Contains(said, "/unread may not be read: ") {
		t.Errorf("status %q", said)
	}
}

// testHundred: a hundred Challenges that come together look at their parent once.
func (w *world) testHundred(t *testing.T) {
	w.gateway(t, "busy", listener("tls", 443, gwapiv1.HTTPSProtocolType), listener("web", 80, gwapiv1.HTTPProtocolType))
	first := w.challenge(t, "of-many", "www.example.test", by(gwapiv1.ParentReference{Name: "busy"}))
	w.ahead.Add(int64(forget))
	w.requests.taken()
	var all sync.WaitGroup
	for n := range 100 {
		all.Go(func() {
			c := first.Challenge.DeepCopy()
			c.Name, c.UID = fmt.Sprint(c.Name, n), types.UID(fmt.Sprint(c.UID, n))
			if err := w.router.Present(t.Context(), solver.Task{Challenge: c}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	// More than one only if they take longer than what was read holds.
	if got := w.requests.taken(); got["PATCH httproutes"] != 100 || got["GET gateways"] == 0 || got["GET gateways"] > 5 {
		t.Errorf("%v", got)
	}
}
