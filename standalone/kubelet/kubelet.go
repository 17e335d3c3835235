// Package kubelet is the part of a kubelet that gets certificates for the Pods of a node: the code of Kubernetes that
// makes the keys and the requests. It is for control planes without nodes. It runs no Pod, and writes no volume.
package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/podcertificate"
	"k8s.io/utils/clock"
)

// Kubelet gets certificates for Pods, and refreshes them, while Run runs.
type Kubelet struct {
	*podcertificate.IssuingManager

	mu   sync.Mutex
	pods []*corev1.Pod
}

// New returns the Kubelet of a node. The Node object exists, and clients has the rights of the node. The caller starts
// watched, whose informers the Kubelet takes, and then calls Run.
func New(clients kubernetes.Interface, watched informers.SharedInformerFactory, node string, events record.EventRecorder, now clock.WithTicker) *Kubelet {
	k := &Kubelet{}
	k.IssuingManager = podcertificate.NewIssuingManager(clients, k, events, watched.Certificates().V1().PodCertificateRequests(),
		watched.Core().V1().Nodes(), types.NodeName(node), now)
	return k
}

// Add makes the Kubelet get the certificates of a Pod, which is as the API server has it.
func (k *Kubelet) Add(ctx context.Context, pod *corev1.Pod) {
	k.mu.Lock()
	k.pods = append(k.pods, pod)
	k.mu.Unlock()
	k.TrackPod(ctx, pod)
}

// Clear makes the Kubelet forget all Pods.
func (k *Kubelet) Clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods = nil
}

// GetPodByUID implements podcertificate.PodManager.
func (k *Kubelet) GetPodByUID(uid types.UID) (*corev1.Pod, bool) {
	pods := k.GetPods()
	at := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
	if at < 0 {
		return nil, false
	}
	return pods[at], true
}

// GetPods implements podcertificate.PodManager.
func (k *Kubelet) GetPods() []*corev1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.pods)
}

// Credentials are the key and the chain that a kubelet writes into a volume of a Pod. There is an error as long as
// there is no certificate.
func (k *Kubelet) Credentials(ctx context.Context, pod *corev1.Pod, volume string) (tls.Certificate, error) {
	for _, v := range pod.Spec.Volumes {
		if v.Name != volume || v.Projected == nil {
			continue
		}
		for i, source := range v.Projected.Sources {
			if source.PodCertificate == nil {
				continue
			}
			key, chain, err := k.GetPodCertificateCredentialBundle(ctx, pod.Namespace, pod.Name, string(pod.UID), volume, i)
			if err != nil {
				return tls.Certificate{}, err
			}
			return tls.X509KeyPair(chain, key)
		}
	}
	return tls.Certificate{}, fmt.Errorf("the Pod %s has no volume %s with a certificate", pod.Name, volume)
}
