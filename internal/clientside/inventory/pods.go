package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/kube/podapi"
)

const (
	// PageSize is how many objects are read at once.
	PageSize = 500
	// podWarner is the source of our events about Pods, and podWarning how many bytes are kept of a text of one.
	podWarner  = "chancery-podcertificaterequests"
	podWarning = 2 << 10
)

// Pods reads the Pods of a namespace, or of all for an empty one, that have volumes for which one of our issuers signs.
// Pods for which no kubelet asks are left out: those that have no node yet, have finished, or are being deleted. It
// reads them in pages, and keeps of each what PodVolumes and explain need.
func Pods(ctx context.Context, c client.Reader, namespace string, selector labels.Selector) (pods []*corev1.Pod, err error) {
	err = Pages(ctx, c, &corev1.PodList{}, func(o runtime.Object) error {
		pod, is := o.(*corev1.Pod)
		if !is || pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			return nil
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
		return nil
	}, client.InNamespace(namespace), client.Limit(PageSize), client.MatchingLabelsSelector{Selector: selector})
	return pods, err
}

// PodVolumes returns the volumes of Pods for which one of our issuers signs, with the latest request for each and the
// newest warning. It reads requests and events in pages, of the namespace, or of all for an empty one; with a name,
// only those about the Pods of that name. A user who may not read the requests, or the events, sees the rest. No more
// than one request and one warning are kept for each volume: who writes into its namespace decides how many there are.
func PodVolumes(ctx context.Context, c client.Reader, namespace, name string, pods []*corev1.Pod) (volumes []explain.PodVolume, err error) {
	of := map[types.UID][]int{}
	for _, pod := range pods {
		for _, v := range explain.PodVolumes(pod, nil, nil) {
			of[pod.UID] = append(of[pod.UID], len(volumes))
			volumes = append(volumes, v)
		}
	}
	ofRequests, ofEvents := client.MatchingFields{}, client.MatchingFields{"involvedObject.kind": "Pod", "type": corev1.EventTypeWarning}
	if name != "" {
		ofRequests["spec.podName"], ofEvents["involvedObject.name"] = name, name
	}
	var unread []string
	_, err = served(ctx, c, &certificatesv1.PodCertificateRequestList{}, func(o runtime.Object) error {
		if pcr, is := podapi.ToV1(o).(*certificatesv1.PodCertificateRequest); is {
			for _, at := range of[pcr.Spec.PodUID] {
				volumes[at].Ask(pcr)
			}
			thinRequest(pcr)
		}
		return nil
	}, client.InNamespace(namespace), client.Limit(PageSize), ofRequests)
	if err := without(err, "podcertificaterequests", &unread); err != nil {
		return nil, err
	}
	err = Pages(ctx, c, &corev1.EventList{}, func(o runtime.Object) error {
		if e, is := o.(*corev1.Event); is && len(of[e.InvolvedObject.UID]) > 0 {
			e = thinEvent(e)
			for _, at := range of[e.InvolvedObject.UID] {
				volumes[at].Warn(e)
			}
		}
		return nil
	}, client.InNamespace(namespace), client.Limit(PageSize), ofEvents)
	if err := without(err, "events", &unread); err != nil {
		return nil, err
	}
	for at := range volumes {
		volumes[at].Unread = strings.Join(unread, " and ")
	}
	return volumes, nil
}

// without returns an error of a list, unless the rest can be told without the list: what may not be read is added to
// unread, and what the API server does not serve is not there.
func without(err error, resource string, unread *[]string) error {
	switch {
	case apierrors.IsForbidden(err):
		*unread = append(*unread, resource)
		return nil
	case Unserved(err):
		return nil
	default:
		return err
	}
}

// Unserved reports whether an error says that the API server does not serve a kind in a version. An error that is
// several says so if all of them do: of two places to look in, one may only be away.
func Unserved(err error) bool {
	var several utilerrors.Aggregate
	if errors.As(err, &several) {
		return !slices.ContainsFunc(several.Errors(), func(err error) bool { return !Unserved(err) })
	}
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
}

// served is Pages of a list in the best version that the API server serves. It returns the list of that version.
func served(ctx context.Context, c client.Reader, list client.ObjectList, do func(runtime.Object) error, options ...client.ListOption) (client.ObjectList, error) {
	err := Pages(ctx, c, list, do, options...)
	if _, is := list.(*certificatesv1.PodCertificateRequestList); is && Unserved(err) {
		list = podapi.RequestList(podapi.V1Beta)
		err = Pages(ctx, c, list, do, options...)
	}
	return list, err
}

// thinRequest takes away what nobody asks for, once it is known which volume a request is for.
func thinRequest(pcr *certificatesv1.PodCertificateRequest) {
	pcr.ObjectMeta = metav1.ObjectMeta{Namespace: pcr.Namespace, Name: pcr.Name, UID: pcr.UID, CreationTimestamp: pcr.CreationTimestamp}
	pcr.Spec.StubPKCS10Request, pcr.Spec.UnverifiedUserAnnotations, pcr.Status.CertificateChain = nil, nil, ""
}

// thinEvent returns what is needed of a warning about a Pod. Whoever may write events chooses how long their texts are.
func thinEvent(e *corev1.Event) *corev1.Event {
	cut := func(text string) string {
		return strings.Clone(strings.ToValidUTF8(text[:min(len(text), podWarning)], ""))
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: e.UID},
		InvolvedObject: corev1.ObjectReference{Namespace: e.Namespace, UID: types.UID(cut(string(e.InvolvedObject.UID))), FieldPath: cut(e.InvolvedObject.FieldPath)},
		Reason:         e.Reason, Message: cut(e.Message), LastTimestamp: e.LastTimestamp,
	}
}

// Pages calls do with each object of a list, which is read in pages if the options have a limit, until do returns an
// error, which it returns. The list stays empty, and gets the version of what was read.
func Pages(ctx context.Context, c client.Reader, list client.ObjectList, do func(runtime.Object) error, options ...client.ListOption) error {
	for token := ""; ; {
		page, _ := list.DeepCopyObject().(client.ObjectList) // it is what list is
		if err := c.List(ctx, page, append(slices.Clip(options), client.Continue(token))...); err != nil {
			return fmt.Errorf("read the %s list: %w", kindOf(list), err)
		}
		if err := meta.EachListItemWithAlloc(page, do); err != nil {
			return err
		}
		list.SetResourceVersion(page.GetResourceVersion())
		if token = page.GetContinue(); token == "" {
			return nil
		}
	}
}
