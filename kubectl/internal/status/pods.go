package status

import (
	"context"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/clientside/inventory"
	"chancery.dev/internal/machine/podrequest"
)

// includeVolumes reads the issuers of the volumes, the latest request for each, and the newest warning about the Pod. A
// user who may not read the requests, or the events, sees the rest.
func (s *start) includeVolumes(ctx context.Context, c client.Client, i *inventory.Inventory) error {
	pod := s.volumes[0].Pod
	requests, events := &certificatesv1.PodCertificateRequestList{}, &corev1.EventList{}
	if err := c.List(ctx, requests, client.InNamespace(pod.Namespace)); err != nil && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) {
		return err
	}
	if err := c.List(ctx, events, client.InNamespace(pod.Namespace), client.MatchingFields{
		"involvedObject.kind": kindPod, "involvedObject.name": pod.Name, "type": corev1.EventTypeWarning,
	}); err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	class, warning := newest(events.Items, pod)
	for n := range s.volumes {
		v := &s.volumes[n]
		v.Class, v.Warning = class, warning
		for r := range requests.Items {
			pcr := &requests.Items[r]
			ours := pcr.Spec.PodUID == pod.UID && pcr.Spec.SignerName == v.SignerName
			if ours && (v.Request == nil || v.Request.CreationTimestamp.Before(&pcr.CreationTimestamp)) {
				v.Request = pcr
			}
		}
		if err := includeSigner(ctx, c, i, v.SignerName); err != nil {
			return err
		}
	}
	return nil
}

// newest is the newest warning about why a certificate of a Pod does not come: ours, or else the kubelet's.
func newest(events []corev1.Event, pod *corev1.Pod) (class, warning string) {
	slices.SortFunc(events, func(x, y corev1.Event) int { return y.LastTimestamp.Compare(x.LastTimestamp.Time) })
	for _, ours := range []bool{true, false} {
		for _, e := range events {
			if e.InvolvedObject.UID == pod.UID && (ours && slices.Contains(podrequest.Waits(), e.Reason) || !ours && e.Reason == "FailedMount") {
				return e.Reason, e.Message
			}
		}
	}
	return "", ""
}
