package status

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/inventory"
	"chancery.dev/internal/machine/podrequest"
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
	slices.SortFunc(events.Items, func(x, y corev1.Event) int { return y.LastTimestamp.Compare(x.LastTimestamp.Time) })
	for n := range s.volumes {
		v := &s.volumes[n]
		v.Unread = unread
		for r := range requests.Items {
			pcr := &requests.Items[r]
			if isFor(pcr, v) && (v.Request == nil || v.Request.CreationTimestamp.Before(&pcr.CreationTimestamp)) {
				v.Request = pcr
			}
		}
		v.Class, v.Warning = newest(events.Items, v)
		if err := includeSigner(ctx, c, i, v.Source.SignerName); err != nil {
			return err
		}
	}
	return nil
}

// isFor reports whether a request is for a volume of that kind of the Pod.
func isFor(pcr *certificatesv1.PodCertificateRequest, v *explain.PodVolume) bool {
	const day = 86400 // the default of both
	spec, source := pcr.Spec, v.Source
	lasts := func(seconds *int32) int32 { return *cmp.Or(seconds, new(int32(day))) }
	return spec.PodUID == v.Pod.UID && spec.SignerName == source.SignerName && lasts(spec.MaxExpirationSeconds) == lasts(source.MaxExpirationSeconds) &&
		maps.Equal(spec.UnverifiedUserAnnotations, source.UserAnnotations)
}

// newest is the newest warning about why the certificate of a volume does not come; events are in the order of time,
// the latest first. What was said before the latest request was made does not count.
func newest(events []corev1.Event, v *explain.PodVolume) (class, warning string) {
	for _, e := range events {
		old := v.Request != nil && e.LastTimestamp.Before(&v.Request.CreationTimestamp)
		known := slices.Contains(podrequest.Waits(), e.Reason) || slices.Contains(explain.KubeletTrouble(), e.Reason)
		others := e.Reason == "FailedMount" && !strings.Contains(e.Message, strconv.Quote(v.Volume))
		if e.InvolvedObject.UID == v.Pod.UID && known && !old && !others {
			return e.Reason, e.Message
		}
	}
	return "", ""
}
