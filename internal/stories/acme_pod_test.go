package stories_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cli"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/port"
)

// node runs the pods of a namespace as a kubelet would, and leads requests to them as an ingress controller would: from
// the Ingress for the host and the path to the Service, and from the Service's selector to the pod.
type node struct {
	client client.WithWatch
	w      *rig.World

	mu sync.Mutex
	// addresses of the pods that run, by name, and how to stop each.
	addresses map[string]string
	stops     map[string]context.CancelFunc
	// args are those of each pod that has been started.
	args [][]string
}

func newNode(t *testing.T, w *rig.World) *node {
	t.Helper()
	c, err := client.NewWithWatch(w.Admin, client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{client: c, w: w, addresses: map[string]string{}, stops: map[string]context.CancelFunc{}}
	pods, err := c.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(w.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for event := range pods.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				n.seen(t, event.Type, pod, &running)
			}
		}
	})
	t.Cleanup(func() {
		pods.Stop()
		n.mu.Lock()
		for _, stop := range n.stops {
			stop()
		}
		n.mu.Unlock()
		running.Wait()
	})
	return n
}

// seen starts a pod that is new, and stops one that is deleted.
func (n *node) seen(t *testing.T, what watch.EventType, pod *corev1.Pod, running *sync.WaitGroup) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	stop := n.stops[pod.Name]
	switch {
	case what == watch.Deleted && stop != nil:
		stop()
		delete(n.addresses, pod.Name)
	case what == watch.Added && stop == nil:
		args := slices.Clone(pod.Spec.Containers[0].Args)
		n.args = append(n.args, pod.Spec.Containers[0].Args)
		address, err := port.Free(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		args[0] = fmt.Sprintf("--listen-port=%d", address.Port()) // on a node, each pod has an address of its own
		ctx, stop := context.WithCancel(context.Background())
		n.stops[pod.Name], n.addresses[pod.Name] = stop, address.String()
		running.Go(func() {
			command := cli.New() // as the entry point of the image
			command.SetArgs(args)
			if err := command.ExecuteContext(ctx); err != nil {
				t.Error(err)
			}
		})
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		if err := client.IgnoreNotFound(n.client.Status().Update(ctx, pod)); err != nil {
			t.Error(err)
		}
	}
}

// ServeHTTP implements http.Handler.
func (n *node) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	address, err := n.find(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: address})
		r.Out.Host = r.In.Host
	}}
	proxy.ServeHTTP(w, req)
}

func (n *node) find(req *http.Request) (string, error) {
	ingresses, service, pods := &networkingv1.IngressList{}, &corev1.Service{}, &corev1.PodList{}
	if err := n.client.List(req.Context(), ingresses, client.InNamespace(n.w.Namespace)); err != nil {
		return "", err
	}
	host, _, _ := strings.Cut(req.Host, ":")
	for i := range ingresses.Items {
		rule := ingresses.Items[i].Spec.Rules[0]
		path := rule.HTTP.Paths[0]
		if rule.Host != host || path.Path != req.URL.Path {
			continue
		}
		if err := n.w.Get(req.Context(), path.Backend.Service.Name, service); err != nil {
			return "", err
		}
		if err := n.client.List(req.Context(), pods, client.InNamespace(n.w.Namespace), client.MatchingLabels(service.Spec.Selector)); err != nil {
			return "", err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(pods.Items) == 1 && n.addresses[pods.Items[0].Name] != "" && path.Backend.Service.Port.Number == service.Spec.Ports[0].Port {
			return n.addresses[pods.Items[0].Name], nil
		}
		return "", fmt.Errorf("the Service %s has %d pods", service.Name, len(pods.Items))
	}
	return "", fmt.Errorf("there is no route for %s%s", host, req.URL.Path)
}

// TestHTTP01ByPod: a solver with a podTemplate makes a pod answer each Challenge, started by cert-manager's arguments
// alone. The certificate comes without any responder, and nothing is left.
func TestHTTP01ByPod(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	n := newNode(t, w.World)
	server := &http.Server{Addr: w.http.String(), Handler: n, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.ListenAndServe() }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	issuer := w.issuer()
	issuer.Spec.ACME.Solvers[1].HTTP01.Ingress.PodTemplate = &acmev1.SolverPodTemplate{
		Metadata: acmev1.SolverObjectMeta{Labels: map[string]string{"team": "web"}},
		Spec:     acmev1.SolverPodSpec{NodeSelector: map[string]string{"zone": "a"}},
	}
	w.Create(t, issuer, certificate(w.World, "web", "acme", "a.http.example.com", "b.http.example.com"))
	cfg := w.Config()
	cfg.ACME.HTTP01Address = ""
	w.Run(t, cfg)
	awaitReady(t, w.World, "web")
	w.NothingLeft(t, w.dns.TXT)
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}, &networkingv1.IngressList{}} {
		if err := w.Client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil || meta.LenList(list) > 0 {
			t.Errorf("%T: %d are left, %v", list, meta.LenList(list), err)
		}
	}
	found := &certmanagerv1.ClusterIssuer{}
	if err := w.Get(t.Context(), issuer.Name, found); err != nil {
		t.Fatal(err)
	}
	if c := certmanagerv1.FindIssuerCondition(found.Status.Conditions, certmanagerv1.IssuerConditionHTTP01Ready); c != nil {
		t.Errorf("the issuer misses a responder that nobody needs: %+v", c)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.args) != 2 {
		t.Errorf("%d pods were started", len(n.args))
	}
	for _, args := range n.args {
		var names []string
		for _, arg := range args {
			name, _, _ := strings.Cut(arg, "=")
			names = append(names, name)
		}
		if !slices.Equal(names, []string{"--listen-port", "--domain", "--token", "--key"}) || args[0] != "--listen-port=8089" {
			t.Errorf("arguments: %q", args)
		}
	}
}
