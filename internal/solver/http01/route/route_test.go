package route_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/controller/responderservices"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/machine/service"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/http01/route"
)

// world is a namespace with a Router and its reconciler at work.
type world struct {
	*rig.World

	router *route.Router
	// options are those of the router.
	options route.Options
	engine  *engine.Engine
	client  client.Client
	// responder is the Service of the responder.
	responder types.NamespacedName
	// pods say which Challenges a pod of its own answers.
	pods service.Pods
	// scope are the namespaces that are watched.
	scope map[string]cache.Config
	// log is what the reconciler says; nowhere by default.
	log logr.Logger
	// ahead is how far the clock is ahead of the machine's.
	ahead atomic.Int64
	// requests counts what the Router and its reconciler ask of the API server, by verb.
	requests requests
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := idleWorld(t)
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.1", "192.0.2.2")
	w.start(t) // knows the responder's addresses
	return w
}

// idleWorld has no reconciler yet. It will see one namespace only: those of other tests
// have other responders.
func idleWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: rig.NewWorld(t)}
	w.responder = types.NamespacedName{Namespace: w.Namespace, Name: "responder"}
	w.scope = map[string]cache.Config{w.Namespace: {}}
	return w
}

// start starts the reconciler until the test ends, or stop is called.
func (w *world) start(t *testing.T) (stop func()) {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	rc := rig.Cluster(t)
	options := cache.Options{DefaultNamespaces: w.scope}
	if err := responderservices.Narrow(&options, w.responder); err != nil {
		t.Fatal(err)
	}
	m, err := ctrl.NewManager(rc, ctrl.Options{Scheme: scheme, Logger: w.log, Metrics: metricsserver.Options{BindAddress: "0"}, Cache: options})
	if err != nil {
		t.Fatal(err)
	}
	if w.client, err = client.New(rc, client.Options{Scheme: scheme, Mapper: m.GetRESTMapper()}); err != nil {
		t.Fatal(err)
	}
	counted := rig.As(rc, rig.Controller)
	counted.Wrap(w.requests.count)
	direct, err := client.New(counted, client.Options{Scheme: scheme, Mapper: m.GetRESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	cached, err := client.New(counted, client.Options{Scheme: scheme, Mapper: m.GetRESTMapper(), Cache: &client.CacheOptions{Reader: m.GetCache()}})
	if err != nil {
		t.Fatal(err)
	}
	over, extra := ownwrites.New(cached, w.now), map[string]string{"team": "web", acmev1.HTTP01SolverLabel: "overridden"}
	ctx, cancel := context.WithCancel(context.Background())
	w.engine = engine.New(ctx, engine.Options{Client: over, Now: w.now})
	deps := &controller.Deps{Manager: m, Client: over, Engine: w.engine, Now: w.now}
	w.options = route.Options{
		Client: direct, Services: over, Cache: m.GetCache(), Responder: w.responder, Pods: w.pods, ExtraLabels: extra, Now: w.now,
	}
	w.router = route.New(w.options)
	if err := responderservices.Setup(ctx, deps, responderservices.Options{Responder: w.responder, Pods: w.pods, Direct: w.router.Direct, ExtraLabels: extra}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	if !m.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the cache did not sync")
	}
	return stop
}

func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// challenge makes a Challenge in flight.
func (w *world) challenge(t *testing.T, name, dnsName string, http *acmev1.HTTP01Solver) solver.Task {
	t.Helper()
	c := &acmev1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: acmev1.ChallengeSpec{
			URL: "https://ca.test/" + name, AuthorizationURL: "https://ca.test/authz/" + name, DNSName: dnsName, Type: acmev1.ChallengeTypeHTTP01,
			Token: "token-" + name, Key: "token-" + name + ".key", IssuerRef: cmmeta.IssuerReference{Name: "acme"},
			Solver: acmev1.ACMEChallengeSolver{HTTP01: http},
		},
	}
	w.Create(t, c)
	c.Status = acmev1.ChallengeStatus{Processing: true, State: acmev1.Pending}
	if err := w.client.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return solver.Task{Challenge: c}
}

// endpoints says what the Responder's addresses of a family are.
func (w *world) endpoints(t *testing.T, family discoveryv1.AddressType, ready, unready string) {
	t.Helper()
	name, port, yes, no := "http", int32(8089), true, false
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.responder.Namespace, Name: "responder-" + strings.ToLower(string(family)), Labels: map[string]string{discoveryv1.LabelServiceName: "responder"},
		},
		AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{ready}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
			{Addresses: []string{unready}, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
		},
	}
	err := w.Client.Create(t.Context(), slice)
	if apierrors.IsAlreadyExists(err) {
		err = w.Client.Update(t.Context(), slice)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// awaitAddresses waits until an EndpointSlice leads to an address alone.
func (w *world) awaitAddresses(t *testing.T, slice string, want ...string) {
	t.Helper()
	rig.Eventually(t, slice+" leads to "+fmt.Sprint(want), func(ctx context.Context) string {
		found := &discoveryv1.EndpointSlice{}
		if err := w.Get(ctx, slice, found); err != nil {
			return err.Error()
		}
		var got []string
		for _, e := range found.Endpoints {
			got = append(got, e.Addresses...)
		}
		if !slices.Equal(got, want) {
			return fmt.Sprint(got)
		}
		return ""
	})
}

func (w *world) present(t *testing.T, task solver.Task) {
	t.Helper()
	rig.Eventually(t, "the responder is seen", func(ctx context.Context) string {
		if err := w.router.Unanswered(ctx, task.Challenge.Spec.Solver.HTTP01); err != nil {
			return err.Error()
		}
		return ""
	})
	for range 2 { // a retry changes nothing
		if err := w.router.Present(t.Context(), task); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) cleanUp(t *testing.T, task solver.Task) {
	t.Helper()
	for range 2 {
		if err := w.router.CleanUp(t.Context(), task); err != nil {
			t.Fatal(err)
		}
	}
}

// end deletes a Challenge, whose route is cleaned up.
func (w *world) end(t *testing.T, task solver.Task) {
	t.Helper()
	w.cleanUp(t, task)
	if err := w.client.Delete(t.Context(), task.Challenge); err != nil {
		t.Fatal(err)
	}
}

// TestOneServiceForANamespace follows the Responder's addresses, for many Challenges by
// one Service, which goes ten minutes after the last of them.
func TestOneServiceForANamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.1", "192.0.2.2")
	w.endpoints(t, discoveryv1.AddressTypeIPv6, "2001:db8::1", "2001:db8::2")
	http := &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{ServiceType: corev1.ServiceTypeClusterIP}}
	tasks := make([]solver.Task, 5)
	var all sync.WaitGroup
	for n := range tasks {
		tasks[n] = w.challenge(t, fmt.Sprint("c", n), "www.example.test", http)
		all.Go(func() { w.present(t, tasks[n]) })
	}
	all.Wait()
	list := &corev1.ServiceList{}
	if err := w.client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Spec.Type != corev1.ServiceTypeClusterIP || list.Items[0].Labels["team"] != "web" {
		t.Fatalf("Services: %+v", list.Items)
	}
	service := list.Items[0].Name
	w.awaitAddresses(t, service+"-ipv4", "192.0.2.1")
	w.awaitAddresses(t, service+"-ipv6", "2001:db8::1")
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.2", "192.0.2.1")
	w.awaitAddresses(t, service+"-ipv4", "192.0.2.2")

	for _, task := range tasks {
		w.end(t, task)
	}
	w.ahead.Store(int64(9 * time.Minute))
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.3", "192.0.2.1") // an event queues it
	w.awaitAddresses(t, service+"-ipv4", "192.0.2.3")
	w.awaitGone(t, service)
	again := w.challenge(t, "again", "www.example.test", http)
	w.present(t, again)
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.4", "192.0.2.1")
	w.awaitAddresses(t, service+"-ipv4", "192.0.2.4")
}

// awaitGone waits until a Service that nobody needs any more is deleted. A look at it that comes before
// the watch has told of the last Challenge's end takes it for used: so there are more, each much later.
func (w *world) awaitGone(t *testing.T, service string) {
	t.Helper()
	rig.Eventually(t, "the Service is gone", func(ctx context.Context) string {
		err := w.Get(ctx, service, &corev1.Service{})
		if err != nil {
			return ignore(err)
		}
		now := w.ahead.Add(int64(11 * time.Minute))
		// An event queues all.
		w.endpoints(t, discoveryv1.AddressTypeIPv4, fmt.Sprintf("192.0.2.%d", 4+now/int64(11*time.Minute)%200), "192.0.2.1")
		return "it is there"
	})
}

func ignore(err error) string {
	if apierrors.IsNotFound(err) {
		return ""
	}
	return err.Error()
}

func TestIngress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class, strict := "public", w.Namespace
	for name, c := range map[string]struct {
		dns    string
		http   acmev1.HTTP01IngressSolver
		expect func(*networkingv1.Ingress) bool
	}{
		"class-name": {"www.example.test", acmev1.HTTP01IngressSolver{IngressClassName: &class}, func(in *networkingv1.Ingress) bool {
			return *in.Spec.IngressClassName == class && in.Spec.Rules[0].Host == "www.example.test" &&
				in.Annotations["nginx.ingress.kubernetes.io/whitelist-source-range"] == "0.0.0.0/0,::/0"
		}},
		"class": {"www.example.test", acmev1.HTTP01IngressSolver{Class: &class}, func(in *networkingv1.Ingress) bool {
			return in.Spec.IngressClassName == nil && in.Annotations["kubernetes.io/ingress.class"] == class
		}},
		"address":  {"192.0.2.1", acmev1.HTTP01IngressSolver{}, func(in *networkingv1.Ingress) bool { return in.Spec.Rules[0].Host == "" }},
		"address6": {"2001:db8::1", acmev1.HTTP01IngressSolver{}, func(in *networkingv1.Ingress) bool { return in.Spec.Rules[0].Host == "" }},
		"template": {"www.example.test", acmev1.HTTP01IngressSolver{IngressTemplate: &acmev1.SolverIngressTemplate{Metadata: acmev1.SolverObjectMeta{
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"x.test/whitelist-source-range": "192.0.2.0/24"},
		}}}, func(in *networkingv1.Ingress) bool {
			_, ours := in.Annotations["nginx.ingress.kubernetes.io/whitelist-source-range"]
			return !ours && in.Labels["a"] == "b" && in.Labels["team"] == "web" && in.Labels[acmev1.HTTP01SolverLabel] == "true" && in.Annotations["x.test/whitelist-source-range"] == "192.0.2.0/24"
		}},
		// Some controllers' admission refuses exact paths (this one's is below).
		"no-exact-path": {"www.example.test", acmev1.HTTP01IngressSolver{IngressClassName: &strict}, func(in *networkingv1.Ingress) bool {
			return *in.Spec.Rules[0].HTTP.Paths[0].PathType == networkingv1.PathTypeImplementationSpecific
		}},
	} {
		if name == "no-exact-path" {
			w.refuseExactPaths(t, strict)
		}
		task := w.challenge(t, name, c.dns, &acmev1.HTTP01Solver{Ingress: &c.http})
		w.present(t, task)
		list := &networkingv1.IngressList{}
		if err := w.client.List(t.Context(), list, client.InNamespace(w.Namespace), client.HasLabels{"acme.cert-manager.io/http-token"}); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 {
			t.Fatalf("%s: %d Ingresses", name, len(list.Items))
		}
		in := &list.Items[0]
		path := in.Spec.Rules[0].HTTP.Paths[0]
		if !c.expect(in) || path.Path != "/.well-known/acme-challenge/token-"+name || path.Backend.Service.Port.Number != 8089 || !metav1.IsControlledBy(in, task.Challenge) {
			t.Errorf("%s: %+v", name, in)
		}
		if name != "no-exact-path" && *path.PathType != networkingv1.PathTypeExact {
			t.Errorf("%s: path type %s", name, *path.PathType)
		}
		if said := w.router.Status(t.Context(), task); !strings.Contains(said, "no load balancer address") || strings.Contains(said, "has no ready endpoints") {
			t.Errorf("%s: status %q", name, said)
		}
		w.cleanUp(t, task)
		if err := w.Get(t.Context(), in.Name, in); !apierrors.IsNotFound(err) {
			t.Errorf("%s: after clean-up: %v", name, err)
		}
	}
}

// refuseExactPaths makes the API server refuse what the admission of some controllers
// does, for one class.
func (w *world) refuseExactPaths(t *testing.T, class string) {
	t.Helper()
	fail := admissionv1.Fail
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"networking.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"ingresses"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("!has(object.spec.ingressClassName) || object.spec.ingressClassName != %q || "+
					"object.spec.rules.all(r, r.http.paths.all(p, p.pathType != 'Exact'))", class),
				Message: "path cannot be used with pathType Exact",
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: class, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	for _, obj := range []client.Object{policy, binding} {
		if err := w.client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.client.Delete(context.Background(), obj) })
	}
	rig.Eventually(t, "the policy is in force", func(ctx context.Context) string {
		exact := networkingv1.PathTypeExact
		probe := &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe"},
			Spec: networkingv1.IngressSpec{IngressClassName: &class, Rules: []networkingv1.IngressRule{{
				IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
					Path: "/", PathType: &exact, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "x", Port: networkingv1.ServiceBackendPort{Number: 1}}},
				}}}},
			}}},
		}
		if err := w.client.Create(ctx, probe, client.DryRunAll); err == nil {
			return "an exact path is let in"
		}
		return ""
	})
}

// TestEditInPlace adds and removes many paths at once, while somebody else edits the
// same Ingress, and leaves nothing else changed.
func TestEditInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prefix := networkingv1.PathTypePrefix
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "shop", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	own := networkingv1.IngressRule{Host: "www.example.test", IngressRuleValue: networkingv1.IngressRuleValue{
		HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: backend}}},
	}}
	site := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "site"},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{own}},
	}
	w.Create(t, site)
	http := &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Name: "site"}}
	tasks := make([]solver.Task, 12)
	for n := range tasks {
		tasks[n] = w.challenge(t, fmt.Sprint("c", n), []string{"www.example.test", "other.example.test"}[n%2], http)
	}
	const edits = 20
	inParallel := func(do func(solver.Task)) {
		var all sync.WaitGroup
		for _, task := range tasks {
			all.Go(func() { do(task) })
		}
		for n := range edits {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"somebody":"%d"}}}`, n)
			if err := w.client.Patch(t.Context(), site.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Error(err)
			}
		}
		all.Wait()
	}
	inParallel(func(task solver.Task) { w.present(t, task) })
	found := &networkingv1.Ingress{}
	if err := w.Get(t.Context(), "site", found); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, rule := range found.Spec.Rules {
		counts[rule.Host] = len(rule.HTTP.Paths)
	}
	if want := map[string]int{"www.example.test": 7, "other.example.test": 6}; !reflect.DeepEqual(counts, want) {
		t.Errorf("paths by host: %v, want %v", counts, want)
	}
	if last := found.Spec.Rules[0].HTTP.Paths[6]; last.Path != "/" {
		t.Errorf("the challenges do not come first: %+v", found.Spec.Rules[0])
	}
	inParallel(func(task solver.Task) { w.cleanUp(t, task) })
	if err := w.Get(t.Context(), "site", found); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(site.Spec, found.Spec); diff != "" || found.Annotations["somebody"] != fmt.Sprint(edits-1) {
		t.Errorf("after clean-up (-before +after): %s %v", diff, found.Annotations)
	}
	missing := w.challenge(t, "missing", "www.example.test", &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Name: "none"}})
	err := w.router.Present(t.Context(), missing)
	if f := fault.Of(err); f == nil || f.Reason != route.ReasonIngressMissing || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("without the Ingress: %v", err)
	}
	w.cleanUp(t, missing)
}

func TestHTTPRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	namespace, kind, set := gwapiv1.Namespace("infra"), gwapiv1.Kind("Gateway"), gwapiv1.Kind("ListenerSet")
	parents := []gwapiv1.ParentReference{{Name: "gateway", Namespace: &namespace, Kind: &kind}, {Name: "listeners", Kind: &set}}
	http := &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{
		Labels: map[string]string{"route": "public"}, ParentRefs: parents,
	}}
	task := w.challenge(t, "c", "www.example.test", http)
	err := w.router.Present(t.Context(), task)
	if f := fault.Of(err); f == nil || f.Reason != route.ReasonNoGatewayAPI {
		t.Errorf("without the Gateway API: %v", err)
	}
	w.cleanUp(t, task)
	w.installGatewayAPI(t, "httproutes")
	rig.Eventually(t, "HTTPRoutes are served", func(ctx context.Context) string {
		if err := w.router.Present(ctx, task); err != nil {
			return err.Error()
		}
		return ""
	})
	w.present(t, task)
	list := &gwapiv1.HTTPRouteList{}
	if err := w.client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d HTTPRoutes", len(list.Items))
	}
	found := &list.Items[0]
	rule := found.Spec.Rules[0]
	if found.Labels["route"] != "public" || found.Spec.Hostnames[0] != "www.example.test" ||
		len(found.Spec.ParentRefs) != 2 || found.Spec.ParentRefs[0].Name != "gateway" || *found.Spec.ParentRefs[1].Kind != "ListenerSet" ||
		*rule.Matches[0].Path.Value != "/.well-known/acme-challenge/token-c" || *rule.BackendRefs[0].Port != 8089 {
		t.Errorf("%+v", found)
	}
	if said := w.router.Status(t.Context(), task); !strings.Contains(said, "no Gateway has taken up") {
		t.Errorf("status %q", said)
	}
	found.Status.Parents = []gwapiv1.RouteParentStatus{{
		ParentRef: found.Spec.ParentRefs[0], ControllerName: "example.test/gateway",
		Conditions: []metav1.Condition{
			{Type: "Accepted", Status: "False", Reason: "NoMatchingListenerHostname", Message: "no listener for it", LastTransitionTime: metav1.Now()},
			{Type: "ResolvedRefs", Status: "True", Reason: "ResolvedRefs", LastTransitionTime: metav1.Now()},
		},
	}}
	if err := w.client.Status().Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	if said := w.router.Status(t.Context(), task); !strings.Contains(said, "NoMatchingListenerHostname") || strings.Contains(said, "ResolvedRefs") {
		t.Errorf("status %q", said)
	}
	w.cleanUp(t, task)
	if err := w.Get(t.Context(), found.Name, found); !apierrors.IsNotFound(err) {
		t.Errorf("after clean-up: %v", err)
	}
	w.present(t, w.challenge(t, "address", "2001:db8::1", http))
	if err := w.client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || len(list.Items[0].Spec.Hostnames) != 0 {
		t.Errorf("of an IP address: %+v", list.Items)
	}
}
