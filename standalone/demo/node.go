package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/clientside/explain"
	"chancery.dev/standalone/kubelet"
)

// nodeName is the name of the only node.
const nodeName = "demo"

// nodePeriod is how often the node looks whether a Pod has its certificates.
const nodePeriod = 20 * time.Millisecond

// node is what the control plane lacks for a Pod: a kubelet gets the certificates of its volumes. Then the node says
// that the Pod runs. No container does.
type node struct {
	*kubelet.Kubelet

	clients *kubernetes.Clientset
}

// startNode makes a node, with the rights that Kubernetes gives a kubelet. It works until ctx ends.
func startNode(ctx context.Context, config *rest.Config, c client.Client) (*node, error) {
	user := "system:node:" + nodeName
	for _, o := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: owner + "-node"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		},
	} {
		if err := c.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			return nil, fmt.Errorf("make a node for Pods: %w", err)
		}
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:nodes", "system:authenticated"}}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect the node to the API server: %w", err)
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	watched := informers.NewSharedInformerFactory(clients, 0)
	n := &node{clients: clients, Kubelet: kubelet.New(clients, watched, nodeName,
		events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: nodeName}), clock.RealClock{})}
	watched.Start(ctx.Done())
	go n.Run(ctx)
	return n, nil
}

// await says of each Pod that it runs as soon as its volumes have their certificates, and says it again if the API
// server does not take it. It ends with the last Pod, or with ctx.
func (n *node) await(ctx context.Context) error {
	waiting := n.GetPods()
	return wait.PollUntilContextCancel(ctx, nodePeriod, true, func(ctx context.Context) (bool, error) {
		waiting = slices.DeleteFunc(waiting, func(pod *corev1.Pod) bool {
			for _, v := range explain.PodVolumes(pod, nil, nil) {
				if _, missing := n.Credentials(ctx, pod, v.Volume); missing != nil {
					return false
				}
			}
			_, err := n.clients.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType,
				[]byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
			return err == nil
		})
		return len(waiting) == 0, nil
	})
}
