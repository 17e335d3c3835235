package engine_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/ownwrites"
)

// Pods stand for a new kind here: a Pod that was made an hour ago or more is Running.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "1", CreationTimestamp: metav1.NewTime(made)}}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod).WithStatusSubresource(pod).Build()
	now := made.Add(59 * time.Minute)
	clock := func() time.Time { return now }

	e := engine.New(ctx, engine.Options{Client: ownwrites.New(api, clock), Now: clock})
	pods := engine.Run(e, engine.Kind[*corev1.Pod, struct{}, *corev1.Pod, time.Duration]{
		Name: "pods", New: func() *corev1.Pod { return &corev1.Pod{} }, Events: record.NewFakeRecorder(1),
		// Observe gathers what the decision needs.
		Observe: func(_ context.Context, p *engine.Pass[*corev1.Pod, struct{}]) (*corev1.Pod, error) {
			return p.Object, nil
		},
		// Decide is pure: what is left to wait.
		Decide: func(pod *corev1.Pod, now time.Time) time.Duration {
			return pod.CreationTimestamp.Add(time.Hour).Sub(now)
		},
		// Plan says what the decision means. The engine writes the status, and wakes the Pod.
		Plan: func(_ context.Context, p *engine.Pass[*corev1.Pod, struct{}], _ *corev1.Pod, left time.Duration) (engine.Plan, error) {
			if left > 0 {
				return engine.Plan{Wake: clock().Add(left), Waits: engine.For{What: engine.WaitTime, Detail: "its hour"}}, nil
			}
			changed := p.Object.DeepCopy()
			changed.Status.Phase = corev1.PodRunning
			return engine.Plan{Status: changed}, nil
		},
	})
	for range 2 {
		result, err := pods.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		if err == nil {
			err = api.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		}
		fmt.Printf("phase %q, again in %s, %v\n", pod.Status.Phase, result.RequeueAfter, err)
		now = made.Add(time.Hour)
	}
	// Output:
	// phase "", again in 1m0s, <nil>
	// phase "Running", again in 0s, <nil>
}
