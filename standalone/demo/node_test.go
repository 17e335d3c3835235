package demo

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"chancery.dev/standalone/kubelet"
)

// TestNodeSaysItAgain: that the API server refuses a status once does not end the demo.
func TestNodeSaysItAgain(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{clients: clients, Kubelet: kubelet.New(clients, informers.NewSharedInformerFactory(clients, 0), nodeName, record.NewFakeRecorder(1), clock.RealClock{})}
	n.Add(t.Context(), &corev1.Pod{ObjectMeta: meta("web", "")}) // without volumes, it has all its certificates
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute) // as rig.Patience
	defer stop()
	if err := n.await(ctx); err != nil || asked.Load() != 2 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}
