// Package kubelet answers the requests of an API server in place of a node's kubelet. It forwards ports of Pods to this
// machine, and serves logs. It runs no Pod. Only tests import it.
package kubelet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/rig"
)

// Kubelet is a node that the API server reaches.
type Kubelet struct {
	world *rig.World
	node  string

	mu   sync.Mutex
	logs map[string]string
}

// Start makes a node for Pods of a world.
func Start(t testing.TB, w *rig.World) *Kubelet {
	t.Helper()
	k := &Kubelet{world: w, node: w.ClusterName("node"), logs: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.forward)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.log)
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().(*net.TCPAddr) //nolint:forcetypeassert // httptest listens by TCP
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.node}}
	w.Create(t, node)
	t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), node) })
	node.Status = corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(address.Port)}}, //nolint:gosec // a port
	}
	if err := w.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return k
}

// Pod makes a Pod that runs on the node, with a log. Its ports are those of this machine.
func (k *Kubelet) Pod(t testing.TB, name string, labels map[string]string, log string, args ...string) *corev1.Pod {
	t.Helper()
	k.mu.Lock()
	k.logs[name] = log
	k.mu.Unlock()
	k.world.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{
		NodeName: k.node, ServiceAccountName: name, AutomountServiceAccountToken: new(bool),
		Containers: []corev1.Container{{Name: "controller", Image: "chancery", Args: args}},
	}}
	k.world.Create(t, pod)
	t.Cleanup(func() {
		_ = k.world.Client.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0))
	})
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	if err := k.world.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func (k *Kubelet) log(w http.ResponseWriter, req *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, _ = io.WriteString(w, k.logs[req.PathValue("pod")])
}

// forward speaks the protocol of port forwarding: each connection has a stream for errors and one for data.
func (*Kubelet) forward(w http.ResponseWriter, req *http.Request) {
	if _, err := httpstream.Handshake(req, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 2)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, req, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			streams <- s
		}()
		return nil
	})
	if connection == nil {
		return
	}
	defer func() { _ = connection.Close() }()
	connection.SetIdleTimeout(time.Minute)
	var failures httpstream.Stream
	for {
		select {
		case <-connection.CloseChan():
			return
		case s := <-streams:
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				failures = s
				continue
			}
			err := relay(s)
			if failures != nil && err != nil {
				_, _ = fmt.Fprint(failures, err)
			}
			if failures != nil {
				_ = failures.Close()
			}
			_ = s.Close()
		}
	}
}

// relay connects a stream to a port of this machine, until the other side has said all.
func relay(s httpstream.Stream) error {
	to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", s.Headers().Get(corev1.PortHeader))) //nolint:noctx // on this machine
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	go func() { _, _ = io.Copy(to, s) }()
	_, err = io.Copy(s, to)
	if err != nil && strings.Contains(err.Error(), "closed") {
		return nil
	}
	return err
}
