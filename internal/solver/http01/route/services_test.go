package route_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/service"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/http01/route"
)

// serviceName is that of the Service where a solver asks for no type.
const serviceName = "cm-acme-http-solver"

func byIngress() *acmev1.HTTP01Solver {
	return &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}
}

// requests counts requests to the API server by verb and resource.
type requests struct {
	mu     sync.Mutex
	counts map[string]int
	// ahead is done once, before the next patch of an Ingress reaches the API server.
	ahead func()
}

func (r *requests) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		path := strings.Split(req.URL.Path, "/")
		resource := ""
		for i, part := range path {
			if part == "namespaces" && i+2 < len(path) {
				resource = path[i+2]
			}
		}
		r.mu.Lock()
		if r.counts == nil {
			r.counts = map[string]int{}
		}
		r.counts[req.Method+" "+resource]++
		var ahead func()
		if req.Method == http.MethodPatch && resource == "ingresses" {
			ahead, r.ahead = r.ahead, nil
		}
		r.mu.Unlock()
		if ahead != nil {
			ahead()
		}
		return next.RoundTrip(req)
	})
}

// taken returns what was counted since the last time.
func (r *requests) taken() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := maps.Clone(r.counts)
	clear(r.counts)
	return was
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// service waits for the Service of the namespace to exist, other than one before.
func (w *world) service(t *testing.T, before types.UID) *corev1.Service {
	t.Helper()
	found := &corev1.Service{}
	rig.Eventually(t, "the Service exists", func(ctx context.Context) string {
		if err := w.Get(ctx, serviceName, found); err != nil {
			return err.Error()
		}
		if found.UID == before || found.DeletionTimestamp != nil {
			return "it is the one before"
		}
		return ""
	})
	return found
}

// TestRequests holds the budget of a Challenge: two requests by an Ingress, and nothing
// is read. Only the first of a namespace makes the Service too, and its EndpointSlice.
func TestRequests(t *testing.T) {
	t.Parallel()
	w := idleWorld(t)
	w.responder.Namespace = rig.NewWorld(t).Namespace // beside it, the responder's own Service would be looked for
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.1", "192.0.2.2")
	w.start(t) // knows the responder's addresses
	w.requests.taken()
	first := w.challenge(t, "first", "a.example.test", byIngress())
	if err := w.router.Present(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w.awaitAddresses(t, serviceName+"-ipv4", "192.0.2.1")
	got := w.requests.taken()
	delete(got, "PATCH endpointslices") // the reconciler may say the same once more
	if diff := cmp.Diff(map[string]int{"POST services": 1, "PATCH ingresses": 1}, got); diff != "" {
		t.Errorf("the first Challenge (-want +got): %s", diff)
	}
	rig.Eventually(t, "the Service is in the cache", func(ctx context.Context) string {
		if said := w.router.Status(ctx, first); strings.Contains(said, "is missing") {
			return said
		}
		return ""
	})
	w.requests.taken()
	second := w.challenge(t, "second", "b.example.test", byIngress())
	if err := w.router.Present(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if err := w.router.CleanUp(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	got = w.requests.taken()
	delete(got, "PATCH endpointslices")
	if diff := cmp.Diff(map[string]int{"PATCH ingresses": 1, "DELETE ingresses": 1}, got); diff != "" {
		t.Errorf("another Challenge (-want +got): %s", diff)
	}
}

// TestNoResponder: without a responder that is ready, a Challenge says what to do, and nothing is made for it.
func TestNoResponder(t *testing.T) {
	t.Parallel()
	w := idleWorld(t)
	w.start(t)
	task := w.challenge(t, "c", "www.example.test", byIngress())
	err := w.router.Present(t.Context(), task)
	if f := fault.Of(err); f == nil || f.Reason != route.ReasonNoResponder || !strings.Contains(err.Error(), "run `chancery install --image=IMAGE`") {
		t.Errorf("Present: %v", err)
	}
	made := w.requests.taken()
	if made["POST services"]+made["PATCH ingresses"] > 0 {
		t.Errorf("requests: %v", made)
	}
	w.endpoints(t, discoveryv1.AddressTypeIPv6, "2001:db8::1", "2001:db8::2")
	rig.Eventually(t, "the Challenge is presented", func(ctx context.Context) string {
		if err := w.router.Present(ctx, task); err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestServiceOfSomebodyElse leaves a Service alone that only has the name of ours.
func TestServiceOfSomebodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	theirs := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "theirs"}, Ports: []corev1.ServicePort{{Name: "http", Port: 8080}}},
	}
	w.Create(t, theirs)
	task := w.challenge(t, "c", "www.example.test", byIngress())
	for range 2 {
		err := w.router.Present(t.Context(), task)
		if f := fault.Of(err); f == nil || f.Reason != service.ReasonTaken || !strings.Contains(err.Error(), serviceName) {
			t.Errorf("Present: %v", err)
		}
	}
	now := &corev1.Service{}
	if err := w.Get(t.Context(), serviceName, now); err != nil {
		t.Fatal(err)
	}
	if now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("it was changed: %+v", now)
	}
	if err := w.client.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	w.present(t, task)
	if got := w.service(t, theirs.UID); len(got.Spec.Selector) != 0 || got.Labels[acmev1.HTTP01SolverLabel] != "true" {
		t.Errorf("%+v", got)
	}
}

// TestServicesOfPods leaves the Services of a cert-manager that was here before alone,
// which carry our label.
func TestServicesOfPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	theirs := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName + "-x7k2p", Labels: map[string]string{acmev1.HTTP01SolverLabel: "true"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{acmev1.HTTP01SolverLabel: "true"}, Ports: []corev1.ServicePort{{Port: 8089}}},
	}
	w.Create(t, theirs)
	w.end(t, w.presented(t, "c"))
	w.awaitGone(t, serviceName)
	now := &corev1.Service{}
	if err := w.Get(t.Context(), theirs.Name, now); err != nil {
		t.Fatal(err)
	}
	if now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("it was changed: %+v", now)
	}
}

// presented makes a Challenge by an Ingress, and presents it.
func (w *world) presented(t *testing.T, name string) solver.Task {
	t.Helper()
	task := w.challenge(t, name, "www.example.test", byIngress())
	w.present(t, task)
	return task
}

// TestIngressOfSomebodyElse leaves an Ingress alone that has the name of a Challenge's,
// and puts the Challenge's own right again.
func TestIngressOfSomebodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	task := w.challenge(t, "c", "www.example.test", byIngress())
	w.present(t, task)
	list := &networkingv1.IngressList{}
	if err := w.client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil || len(list.Items) != 1 {
		t.Fatal(err, len(list.Items))
	}
	ours := &list.Items[0]
	ours.Spec.Rules[0].Host = "other.example.test"
	if err := w.client.Update(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	w.present(t, task)
	now := &networkingv1.Ingress{}
	if err := w.Get(t.Context(), ours.Name, now); err != nil {
		t.Fatal(err)
	}
	if now.Spec.Rules[0].Host != "www.example.test" {
		t.Errorf("an Ingress that was changed stays so: %+v", now.Spec)
	}
	w.cleanUp(t, task)
	theirs := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: ours.Name}, Spec: ours.Spec}
	w.Create(t, theirs)
	err := w.router.Present(t.Context(), task)
	if f := fault.Of(err); f == nil || f.Reason != route.ReasonRouteTaken {
		t.Errorf("Present: %v", err)
	}
	if err := w.Get(t.Context(), ours.Name, now); err != nil {
		t.Fatal(err)
	}
	if now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("it was changed: %+v", now)
	}
}

// TestServiceDeletedInFlight makes a Service again that Challenges in flight need: at
// once, and if nobody was looking when it was deleted.
func TestServiceDeletedInFlight(t *testing.T) {
	t.Parallel()
	w := idleWorld(t)
	stop := w.start(t)
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.1", "192.0.2.2")
	task := w.challenge(t, "c", "www.example.test", byIngress())
	w.present(t, task)
	before := w.service(t, "")
	if err := w.client.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	before = w.service(t, before.UID)
	stop()
	if err := w.client.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	w.start(t)
	after := w.service(t, before.UID)
	rig.Eventually(t, "its EndpointSlice is its own", func(ctx context.Context) string {
		slice := &discoveryv1.EndpointSlice{}
		if err := w.Get(ctx, serviceName+"-ipv4", slice); err != nil {
			return err.Error()
		}
		if !metav1.IsControlledBy(slice, after) {
			return "it is of the one before"
		}
		return ""
	})
	w.awaitAddresses(t, serviceName+"-ipv4", "192.0.2.1")
}

// TestServiceStays: a Service stays for ten minutes after the last Challenge, however old the Service and whatever
// ended before.
func TestServiceStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// until waits until the Service waits for its end, and returns when that is; zero if none has been set.
	until := func(idle bool) (end time.Time) {
		rig.Eventually(t, fmt.Sprint("the Service is idle: ", idle), func(context.Context) string {
			waits := w.engine.Waits()
			if (len(waits) == 1) != idle {
				return fmt.Sprintf("%+v", waits)
			}
			if idle {
				end = waits[0].Until
			}
			return ""
		})
		return end
	}
	first := w.presented(t, "first")
	w.service(t, "")
	until(false)
	w.ahead.Store(int64(time.Hour))
	before := w.now()
	w.end(t, first)
	if end := until(true); end.Before(before.Add(10*time.Minute)) || end.After(w.now().Add(10*time.Minute)) {
		t.Errorf("it ended at %s, and the Service ends at %s", before, end)
	}
	w.ahead.Add(int64(9 * time.Minute))
	second := w.presented(t, "second")
	until(false)
	before = w.now()
	w.end(t, second)
	if end := until(true); end.Before(before.Add(10*time.Minute)) || end.After(w.now().Add(10*time.Minute)) {
		t.Errorf("another ended at %s, and the Service ends at %s", before, end)
	}
}

// TestEndpointSliceOfSomebodyElse puts an EndpointSlice right that somebody has changed, or whose label somebody has
// taken away, and leaves one alone that only has its name.
func TestEndpointSliceOfSomebodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	port := int32(80)
	theirs := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: serviceName + "-ipv6", Labels: map[string]string{discoveryv1.LabelServiceName: "theirs"}},
		AddressType: discoveryv1.AddressTypeIPv6, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"2001:db8::9"}}},
	}
	w.Create(t, theirs)
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.1", "192.0.2.2")
	w.presented(t, "c")
	w.awaitAddresses(t, serviceName+"-ipv4", "192.0.2.1")
	for what, change := range map[string]func(*discoveryv1.EndpointSlice){
		"address": func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"192.0.2.9"} },
		"label":   func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "another" },
	} {
		rig.Eventually(t, "its "+what+" is changed", func(ctx context.Context) string {
			slice := &discoveryv1.EndpointSlice{}
			if err := w.Get(ctx, serviceName+"-ipv4", slice); err != nil {
				return err.Error()
			}
			change(slice)
			return said(w.client.Update(ctx, slice))
		})
		rig.Eventually(t, "its "+what+" is put right", func(ctx context.Context) string {
			slice := &discoveryv1.EndpointSlice{}
			if err := w.Get(ctx, serviceName+"-ipv4", slice); err != nil {
				return err.Error()
			}
			if slice.Endpoints[0].Addresses[0] != "192.0.2.1" || slice.Labels[discoveryv1.LabelServiceName] != serviceName {
				return fmt.Sprintf("%+v", slice)
			}
			return ""
		})
	}
	w.endpoints(t, discoveryv1.AddressTypeIPv6, "2001:db8::1", "2001:db8::2")
	w.requests.taken()
	rig.Eventually(t, "it is asked for", func(context.Context) string {
		w.requests.mu.Lock()
		defer w.requests.mu.Unlock()
		return map[bool]string{false: "not yet"}[w.requests.counts["PATCH endpointslices"] > 0]
	})
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.3", "192.0.2.2")
	w.awaitAddresses(t, serviceName+"-ipv4", "192.0.2.3") // it holds up nothing else
	now := &discoveryv1.EndpointSlice{}
	if err := w.Get(t.Context(), theirs.Name, now); err != nil {
		t.Fatal(err)
	}
	if now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("it was changed: %+v", now)
	}
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestOneNamespace is a controller that watches one namespace, with a responder in
// another that has a Service left over from a wider one.
func TestOneNamespace(t *testing.T) {
	t.Parallel()
	w, other := idleWorld(t), rig.NewWorld(t)
	other.Create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName, Labels: map[string]string{acmev1.HTTP01SolverLabel: "true"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8089}}},
	})
	w.responder = types.NamespacedName{Namespace: other.Namespace, Name: "responder"}
	w.log = funcr.New(func(_, said string) {
		if strings.Contains(said, `"error"=`) {
			t.Error(said)
		}
	}, funcr.Options{})
	stop := w.start(t)
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.1", "192.0.2.2")
	task := w.challenge(t, "c", "www.example.test", byIngress())
	w.present(t, task)
	w.awaitAddresses(t, serviceName+"-ipv4", "192.0.2.1")
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.2", "192.0.2.1")
	w.awaitAddresses(t, serviceName+"-ipv4", "192.0.2.2")
	slices := &discoveryv1.EndpointSliceList{}
	if err := w.client.List(t.Context(), slices, client.InNamespace(other.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(slices.Items) != 1 {
		t.Errorf("the namespace of the responder has %d EndpointSlices", len(slices.Items))
	}
	stop() // it says no more to the test
}
