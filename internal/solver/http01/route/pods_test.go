package route_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/machine/service"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/http01/route"
)

// podWorld has no responder, and a pod for each Challenge.
func podWorld(t *testing.T) *world {
	t.Helper()
	w := idleWorld(t)
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	w.pods = service.Pods{Mode: service.ModePod, Image: "registry.test/chancery:v1", RunAsNonRoot: true, Requests: small, Limits: small}
	w.start(t)
	return w
}

// made lists what there is for a Challenge alone, by kind.
func (w *world) made(t *testing.T, task solver.Task) map[string]client.Object {
	t.Helper()
	out := map[string]client.Object{}
	key := client.ObjectKey{Namespace: w.Namespace, Name: service.ObjectName(task.Challenge.UID)}
	for kind, object := range map[string]client.Object{"Pod": &corev1.Pod{}, "Service": &corev1.Service{}, "Ingress": &networkingv1.Ingress{}} {
		switch err := w.client.Get(t.Context(), key, object); {
		case err == nil:
			out[kind] = object
		case !apierrors.IsNotFound(err):
			t.Fatal(err)
		}
	}
	return out
}

// TestPod: a Challenge has a pod, a Service and a route of its own, made once each; the namespace may be restricted;
// and nothing is left.
func TestPod(t *testing.T) {
	t.Parallel()
	w := podWorld(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	enforce := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := w.client.Patch(t.Context(), namespace, enforce); err != nil {
		t.Fatal(err)
	}
	task := w.challenge(t, "c", "www.example.test", byIngress())
	w.requests.taken()
	w.present(t, task)
	want := map[string]int{"GET pods": 2, "POST services": 1, "POST pods": 1, "PATCH ingresses": 2}
	if diff := cmp.Diff(want, w.requests.taken()); diff != "" {
		t.Errorf("requests (-want +got): %s", diff)
	}
	made := w.made(t, task)
	if len(made) != 3 {
		t.Fatalf("made: %v", made)
	}
	pod, svc, in := made["Pod"].(*corev1.Pod), made["Service"].(*corev1.Service), made["Ingress"].(*networkingv1.Ingress)
	if to := in.Spec.Rules[0].HTTP.Paths[0].Backend.Service; to.Name != svc.Name || to.Port.Number != svc.Spec.Ports[0].Port {
		t.Errorf("the Ingress leads to %+v, the Service is %s", to, svc.Name)
	}
	if port := svc.Spec.Ports[0]; port.Port != 8089 || port.TargetPort.IntValue() != 8089 {
		t.Errorf("the port of the Service: %+v", port)
	}
	for name, value := range svc.Spec.Selector {
		if pod.Labels[name] != value {
			t.Errorf("the Service selects %s=%s, the pod has %v", name, value, pod.Labels)
		}
	}
	for kind, object := range made {
		if !metav1.IsControlledBy(object, task.Challenge) || object.GetLabels()["team"] != "web" {
			t.Errorf("%s: %+v", kind, object)
		}
	}
	if said := w.router.Status(t.Context(), task); !strings.Contains(said, "the pod "+pod.Name+" is not ready yet: Pending") {
		t.Errorf("status %q", said)
	}
	w.cleanUp(t, task)
	if left := w.made(t, task); len(left) > 0 {
		t.Errorf("left: %v", slices.Collect(maps.Keys(left)))
	}
}

// TestPodRefused: what the API server says of a podTemplate is told, and the pod of somebody else stays.
func TestPodRefused(t *testing.T) {
	t.Parallel()
	w := podWorld(t)
	missing := w.challenge(t, "missing", "www.example.test", &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{
		PodTemplate: &acmev1.SolverPodTemplate{Spec: acmev1.SolverPodSpec{PriorityClassName: "of-nobody"}},
	}})
	if err := w.router.Present(t.Context(), missing); err == nil || !strings.Contains(err.Error(), "of-nobody") {
		t.Errorf("a priority class that does not exist: %v", err)
	}
	w.cleanUp(t, missing)
	taken := w.challenge(t, "taken", "www.example.test", byIngress())
	theirs := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: service.ObjectName(taken.Challenge.UID)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
	}
	w.Create(t, theirs)
	if err := w.router.Present(t.Context(), taken); err == nil || !strings.Contains(err.Error(), "somebody else's") {
		t.Errorf("a pod of that name: %v", err)
	}
	w.cleanUp(t, taken)
	if left := w.made(t, taken); len(left) != 1 || left["Pod"].GetUID() != theirs.UID {
		t.Errorf("left: %v", slices.Collect(maps.Keys(left)))
	}
}

// errKilled is what a process meets that has been killed: nothing that it wants to do is done.
var errKilled = errors.New("killed")

// process is a Router of its own, with its own view of what it has written. It is killed when it has sent a number of
// requests, before or after the last of them is carried out.
func (w *world) process(t *testing.T, requests int, carriedOut bool) *route.Router {
	t.Helper()
	rc := rig.As(rig.Cluster(t), rig.Controller)
	left := requests
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if strings.Contains(req.URL.Path, w.Namespace) { // discovery does not count
				left--
			}
			switch {
			case left >= 0:
				return next.RoundTrip(req)
			case left == -1 && carriedOut:
				answer, err := next.RoundTrip(req)
				if err == nil {
					_ = answer.Body.Close()
				}
			}
			return nil, errKilled
		})
	})
	live, err := client.New(rc, client.Options{Scheme: w.client.Scheme(), Mapper: w.client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	cached, err := client.New(rc, client.Options{Scheme: w.client.Scheme(), Mapper: w.client.RESTMapper(), Cache: &client.CacheOptions{Reader: w.options.Cache}})
	if err != nil {
		t.Fatal(err)
	}
	options := w.options
	options.Client, options.Services = live, ownwrites.New(cached, w.now)
	return route.New(options)
}

// seen waits until the cache has what the API server has of a Challenge's Service: a process that takes over begins
// with a new cache.
func (w *world) seen(t *testing.T, task solver.Task) {
	t.Helper()
	key := client.ObjectKey{Namespace: w.Namespace, Name: service.ObjectName(task.Challenge.UID)}
	rig.Eventually(t, "the cache has the Service", func(ctx context.Context) string {
		live, cached := &corev1.Service{}, &corev1.Service{}
		is, sees := w.client.Get(ctx, key, live), w.options.Cache.Get(ctx, key, cached)
		if apierrors.IsNotFound(is) != apierrors.IsNotFound(sees) {
			return fmt.Sprint(is, sees)
		}
		return ""
	})
}

// TestPodCrash kills the process before and after each request of a Challenge's life. The process that takes over
// leaves nothing; and if nobody cleans up, the controller of Services does. All moments are the slow part crash.
func TestPodCrash(t *testing.T) {
	t.Parallel()
	w := podWorld(t)
	const most = 12 // more than there are requests
	died := map[string]int{}
	whole := slow.Runs(slow.Crash)
	for n := range most {
		if !whole && n != 2 && n != 5 && n != most-1 {
			continue
		}
		for _, carriedOut := range []bool{false, true} {
			for _, in := range []string{"Present", "CleanUp"} {
				task := w.challenge(t, strings.ToLower(fmt.Sprintf("%s-%d-%t", in, n, carriedOut)), "www.example.test", byIngress())
				step := func(r *route.Router) error { return r.Present(t.Context(), task) }
				if in == "CleanUp" {
					w.present(t, task)
					w.seen(t, task)
					step = func(r *route.Router) error { return r.CleanUp(t.Context(), task) }
				}
				if err := step(w.process(t, n, carriedOut)); errors.Is(err, errKilled) {
					died[in]++
				} else if err != nil {
					t.Fatal(err)
				}
				w.seen(t, task)
				next := w.process(t, 1000, false)
				if n%2 == 0 { // the next process goes on where the other has stopped, or ends it at once
					if in == "Present" {
						if err := next.Present(t.Context(), task); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := next.CleanUp(t.Context(), task); err != nil {
					t.Fatal(err)
				}
				if left := w.made(t, task); len(left) > 0 {
					t.Errorf("killed in %s after %d requests (%t): left %v", in, n, carriedOut, slices.Collect(maps.Keys(left)))
				}
			}
		}
	}
	least, all := 8, 2*most
	if !whole {
		least, all = 2, 2*3
	}
	if died["Present"] < least || died["Present"] == all || died["CleanUp"] < least || died["CleanUp"] == all {
		t.Errorf("killed: %v", died)
	}
}

// TestPodSweep: the pod and the Service of a Challenge that has gone without a clean-up are deleted, those of another
// Challenge stay.
func TestPodSweep(t *testing.T) {
	t.Parallel()
	w := podWorld(t)
	lost, needed := w.challenge(t, "lost", "a.example.test", byIngress()), w.challenge(t, "needed", "b.example.test", byIngress())
	w.present(t, lost)
	w.present(t, needed)
	if err := w.client.Delete(t.Context(), lost.Challenge); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(t, service.ObjectName(lost.Challenge.UID))
	// The garbage collector may have been first at the Service, and the pod is its business then, too.
	rig.Eventually(t, "the pod is gone", func(ctx context.Context) string {
		if err := w.Get(ctx, service.ObjectName(lost.Challenge.UID), &corev1.Pod{}); err != nil {
			return ignore(err)
		}
		return "it is there"
	})
	w.ahead.Add(int64(time.Hour))
	if made := w.made(t, needed); len(made) != 3 {
		t.Errorf("of the Challenge in flight there is %v", made)
	}
}
