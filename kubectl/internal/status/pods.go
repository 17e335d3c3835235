package status

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/inventory"
)

// includeVolumes reads the issuers of the volumes, the latest request for each, and the newest warning about it. A user
// who may not read the requests, or the events, sees the rest.
func (s *start) includeVolumes(ctx context.Context, c client.Client, i *inventory.Inventory) error {
	pod := s.volumes[0].Pod
	requests, events := &certificatesv1.PodCertificateRequestList{}, &corev1.EventList{}
	err := c.List(ctx, requests, client.InNamespace(pod.Namespace), client.MatchingFields{"spec.podName": pod.Name})
	unread := apierrors.IsForbidden(err)
	if err != nil && !unread && !meta.IsNoMatchError(err) {
		return err
	}
	if err := c.List(ctx, events, client.InNamespace(pod.Namespace), client.MatchingFields{
		"involvedObject.kind": kindPod, "involvedObject.name": pod.Name, "type": corev1.EventTypeWarning,
	}); err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	s.volumes = explain.PodVolumes(pod, pointers(requests.Items), pointers(events.Items))
	for n := range s.volumes {
		s.volumes[n].Unread = unread
		if err := includeSigner(ctx, c, i, s.volumes[n].Source.SignerName); err != nil {
			return err
		}
	}
	return nil
}

func pointers[T any](all []T) (to []*T) {
	for i := range all {
		to = append(to, &all[i])
	}
	return to
}
