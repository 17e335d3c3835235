package inventory

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/clientside/explain"
)

const (
	// podPage is how many Pods, requests and events are read at once.
	podPage = 500
	// podMost is how many requests and events about one Pod are looked at, the newest: who writes into its namespace
	// decides how many there are.
	podMost = 100
	// podWarner is the source of our events about Pods, and podWarning how many bytes of one are kept.
	podWarner  = "chancery-podcertificaterequests"
	podWarning = 2 << 10
)

// Pods reads the Pods of a namespace, or of all for an empty one, that have volumes for which one of our issuers signs.
// It reads them in pages, and keeps of each what PodVolumes and explain need.
func Pods(ctx context.Context, c client.Reader, namespace string, selector labels.Selector) (pods []*corev1.Pod, err error) {
	err = pages(ctx, c, &corev1.PodList{}, func(o runtime.Object) {
		pod, is := o.(*corev1.Pod)
		if !is {
			return
		}
		thin := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, CreationTimestamp: pod.CreationTimestamp},
			Status:     corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions},
		}
		var last string
		for _, v := range explain.PodVolumes(pod, nil, nil) {
			if v.Volume != last { // one volume may have several certificates
				at := slices.IndexFunc(pod.Spec.Volumes, func(of corev1.Volume) bool { return of.Name == v.Volume })
				thin.Spec.Volumes = append(thin.Spec.Volumes, pod.Spec.Volumes[at])
			}
			last = v.Volume
		}
		if last != "" {
			pods = append(pods, thin)
		}
	}, client.InNamespace(namespace), client.Limit(podPage), client.MatchingLabelsSelector{Selector: selector})
	return pods, err
}

// PodVolumes returns the volumes of Pods for which one of our issuers signs, with the latest request for each and the
// newest warning. It reads requests and events in pages, of the namespace, or of all for an empty one; with a name,
// only those about the Pods of that name. A user who may not read the requests, or the events, sees the rest.
func PodVolumes(ctx context.Context, c client.Reader, namespace, name string, pods []*corev1.Pod) (volumes []explain.PodVolume, err error) {
	requests, events := map[types.UID][]*certificatesv1.PodCertificateRequest{}, map[types.UID][]*corev1.Event{}
	known := map[types.UID]bool{}
	for _, pod := range pods {
		known[pod.UID] = true
	}
	ofRequests, ofEvents := client.MatchingFields{}, client.MatchingFields{"involvedObject.kind": "Pod", "type": corev1.EventTypeWarning}
	if name != "" {
		ofRequests["spec.podName"], ofEvents["involvedObject.name"] = name, name
	}
	err = pages(ctx, c, &certificatesv1.PodCertificateRequestList{}, func(o runtime.Object) {
		if pcr, is := o.(*certificatesv1.PodCertificateRequest); is && known[pcr.Spec.PodUID] {
			thinRequest(pcr)
			requests[pcr.Spec.PodUID] = newest(requests[pcr.Spec.PodUID], pcr, func(pcr *certificatesv1.PodCertificateRequest) time.Time { return pcr.CreationTimestamp.Time })
		}
	}, client.InNamespace(namespace), client.Limit(podPage), ofRequests)
	unread := apierrors.IsForbidden(err)
	if err != nil && !unread && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, err
	}
	err = pages(ctx, c, &corev1.EventList{}, func(o runtime.Object) {
		if e, is := o.(*corev1.Event); is && known[e.InvolvedObject.UID] && explain.IsPodTrouble(e.Reason) {
			e.ManagedFields = nil
			events[e.InvolvedObject.UID] = newest(events[e.InvolvedObject.UID], e, func(e *corev1.Event) time.Time { return e.LastTimestamp.Time })
		}
	}, client.InNamespace(namespace), client.Limit(podPage), ofEvents)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	for _, pod := range pods {
		for _, v := range explain.PodVolumes(pod, requests[pod.UID], events[pod.UID]) {
			v.Unread = unread
			volumes = append(volumes, v)
		}
	}
	return volumes, nil
}

// newest adds one, and keeps the newest of them, podMost at least and twice as many at most.
func newest[T any](all []T, one T, at func(T) time.Time) []T {
	if all = append(all, one); len(all) < 2*podMost {
		return all
	}
	slices.SortFunc(all, func(x, y T) int { return at(y).Compare(at(x)) })
	return slices.Clone(all[:podMost])
}

// thinRequest takes away what nobody asks for.
func thinRequest(pcr *certificatesv1.PodCertificateRequest) {
	pcr.ManagedFields, pcr.Spec.StubPKCS10Request, pcr.Status.CertificateChain = nil, nil, ""
}

// pages calls do with each object of a list, which is read in pages if the options have a limit. The list stays empty,
// and gets the version of what was read.
func pages(ctx context.Context, c client.Reader, list client.ObjectList, do func(runtime.Object), options ...client.ListOption) error {
	for token := ""; ; {
		page := emptyOf(list)
		if err := c.List(ctx, page, append(slices.Clip(options), client.Continue(token))...); err != nil {
			return fmt.Errorf("read the %s list: %w", kindOf(list), err)
		}
		_ = meta.EachListItemWithAlloc(page, func(o runtime.Object) error { // the function gives no error
			do(o)
			return nil
		})
		list.SetResourceVersion(page.GetResourceVersion())
		if token = page.GetContinue(); token == "" {
			return nil
		}
	}
}

// emptyOf returns a list of the same kind without objects.
func emptyOf(list client.ObjectList) client.ObjectList {
	empty, _ := reflect.New(reflect.TypeOf(list).Elem()).Interface().(client.ObjectList) // it is what list is
	return empty
}
