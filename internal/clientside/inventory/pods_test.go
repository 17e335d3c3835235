package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/rig/growth"
)

const signerName = "cert-manager.io/pods"

// server lists objects that it makes, in pages, as an API server does.
type server struct {
	client.Reader

	pods, perPod int
	// largest is the most objects that one answer had; lists are how many answers there were.
	largest, lists int
	// older says that it serves requests as v1beta1 alone.
	older bool
	// failure is the answer to a list of requests, if there is one, and forbidden that to a list of events.
	failure, forbidden error
}

func (s *server) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := &client.ListOptions{}
	o.ApplyOptions(options)
	s.lists++
	var from int
	_, _ = fmt.Sscan(o.Continue, &from)
	total := 0
	var one func(i int) runtime.Object
	switch list.(type) {
	case *corev1.PodList:
		total = s.pods
		one = func(i int) runtime.Object { return podOf(i) }
	case *certificatesv1.PodCertificateRequestList, *certificatesv1beta1.PodCertificateRequestList:
		if _, isV1 := list.(*certificatesv1.PodCertificateRequestList); isV1 == s.older && s.failure == nil {
			return &meta.NoKindMatchError{}
		}
		if s.failure != nil {
			return s.failure
		}
		total = s.pods * s.perPod
		one = func(i int) runtime.Object {
			if s.older {
				return podapi.In(podapi.V1Beta, requestOf(i%s.pods, i/s.pods))
			}
			return requestOf(i%s.pods, i/s.pods)
		}
	case *corev1.EventList:
		if s.forbidden != nil {
			return s.forbidden
		}
		total = s.pods * s.perPod
		one = func(i int) runtime.Object { return eventOf(i%s.pods, i/s.pods) }
	}
	to := total
	if o.Limit > 0 {
		to = min(total, from+int(o.Limit))
	}
	var items []runtime.Object
	for i := from; i < to; i++ {
		items = append(items, one(i))
	}
	if s.largest = max(s.largest, len(items)); to < total {
		list.SetContinue(fmt.Sprint(to))
	}
	return meta.SetList(list, items)
}

func podOf(i int) *corev1.Pod {
	source := corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: signerName, UserAnnotations: map[string]string{"chancery.dev/services": "web"}}}
	if i%2 == 1 {
		source.PodCertificate.SignerName = "example.com/pods"
	}
	name := fmt.Sprintf("web-%d", i)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Annotations: map[string]string{"large": strings.Repeat("x", 1000)}}}
	pod.Spec.NodeName = "node"
	pod.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "identity", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source, source}},
	}}}
	return pod
}

func requestOf(pod, number int) *certificatesv1.PodCertificateRequest {
	pcr := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("req-%d-%d", pod, number), UID: types.UID(fmt.Sprintf("req-%d-%d", pod, number))}}
	pcr.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000+number), 0))
	pcr.Spec.SignerName, pcr.Spec.PodUID = signerName, types.UID(fmt.Sprintf("web-%d", pod))
	pcr.Status.CertificateChain = strings.Repeat("x", 1000)
	pcr.Annotations, pcr.Spec.UnverifiedUserAnnotations = map[string]string{"large": "x"}, map[string]string{"chancery.dev/services": "web"}
	return pcr
}

func eventOf(pod, number int) *corev1.Event {
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", UID: types.UID(fmt.Sprintf("event-%d-%d", pod, number))},
		InvolvedObject: corev1.ObjectReference{UID: types.UID(fmt.Sprintf("web-%d", pod)), FieldPath: podrequest.FieldPath(signerName)},
		Reason:         "SignerForbidden", Message: fmt.Sprintf("warning %d", number), Source: corev1.EventSource{Component: podWarner},
	}
	e.LastTimestamp = metav1.NewTime(time.Unix(int64(2000+number), 0))
	return e
}

// TestPodVolumes: everything is read in pages; of each Pod with a signer of ours, the latest request and the newest
// event count, however many there are, and nothing else is kept of a Pod.
func TestPodVolumes(t *testing.T) {
	t.Parallel()
	s := &server{pods: 1200, perPod: 3}
	pods, err := Pods(t.Context(), s, "", labels.Everything())
	if err != nil || len(pods) != 600 || len(pods[0].Spec.Volumes) != 1 || pods[0].Annotations != nil {
		t.Fatalf("%v: %d Pods, the first is %+v", err, len(pods), pods[:min(1, len(pods))])
	}
	volumes, err := PodVolumes(t.Context(), s, "", "", pods)
	if err != nil || len(volumes) != 1200 {
		t.Fatalf("%v: %d volumes", err, len(volumes))
	}
	if s.largest != PageSize || s.lists != 3+8+8 {
		t.Errorf("%d answers of %d objects at most", s.lists, s.largest)
	}
	for _, v := range volumes {
		if v.Request == nil || !strings.HasSuffix(v.Request.Name, "-2") || v.Warning != "warning 2" || v.Unread != "" || isThick(v.Request) {
			t.Fatalf("%+v", v)
		}
	}
	s.failure = apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	if volumes, err = PodVolumes(t.Context(), s, "", "", pods); err != nil || volumes[0].Unread != "podcertificaterequests" || volumes[0].Request != nil || volumes[0].Warning != "warning 2" {
		t.Errorf("requests that may not be read: %v %+v", err, volumes[0])
	}
	s.forbidden = s.failure
	if volumes, err = PodVolumes(t.Context(), s, "", "", pods); err != nil || volumes[0].Unread != "podcertificaterequests and events" || volumes[0].Warning != "" {
		t.Errorf("events that may not be read: %v %+v", err, volumes[0])
	}
	many := &server{pods: 1, perPod: 1007}
	volumes, err = PodVolumes(t.Context(), many, "", "", pods[:1])
	if want := fmt.Sprintf("warning %d", many.perPod-1); err != nil || volumes[0].Warning != want || volumes[0].Request.Name != fmt.Sprintf("req-0-%d", many.perPod-1) {
		t.Errorf("%v: of many events the newest is %q, of many requests %s", err, volumes[0].Warning, volumes[0].Request.Name)
	}
}

// isThick reports whether a request has what nobody asks for, and Pods choose the size of.
func isThick(pcr *certificatesv1.PodCertificateRequest) bool {
	return pcr.Status.CertificateChain != "" || pcr.Annotations != nil || pcr.Spec.UnverifiedUserAnnotations != nil
}

// TestPodsWithoutKubelet: Pods for which no kubelet asks are left out.
func TestPodsWithoutKubelet(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Pod){
		"one that runs": func(*corev1.Pod) {}, "without a node": func(pod *corev1.Pod) { pod.Spec.NodeName = "" },
		"being deleted": func(pod *corev1.Pod) {
			pod.DeletionTimestamp, pod.Finalizers = new(metav1.Now()), []string{"example.com/x"}
		},
		"evicted":  func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed },
		"finished": func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded },
	} {
		pod := podOf(0)
		change(pod)
		pods, err := Pods(t.Context(), cluster(t, interceptor.Funcs{}, pod), "", labels.Everything())
		if err != nil || (len(pods) == 1) != (name == "one that runs") {
			t.Errorf("%s: %v: %d Pods", name, err, len(pods))
		}
	}
}

// TestForbiddenWatch: who may list requests of Pods, or events, and not watch them sees the rest, and nothing that gets
// old.
func TestForbiddenWatch(t *testing.T) {
	t.Parallel()
	of := func(kind string) client.WithWatch {
		funcs := interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
			if kindOf(list) == kind {
				return nil, apierrors.NewForbidden(schema.GroupResource{}, "", nil)
			}
			return c.Watch(ctx, list, o...)
		}}
		return cluster(t, funcs, certificate("web"), requestOf(0, 0), eventOf(0, 0))
	}
	for kind, left := range map[string]int{"PodCertificateRequest": 2, "Event": 2, "": 3} {
		seen := errors.New("seen")
		err := Follow(t.Context(), of(kind), Scope{PodRequests: true}, func(i *Inventory, _ bool) error {
			if len(i.Objects()) != left || i.Unread()[kind] != (kind != "") {
				t.Errorf("%s: %d objects, unread: %v", kind, len(i.Objects()), i.Unread())
			}
			return seen
		}, func(err error) error { return err })
		if !errors.Is(err, seen) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := Follow(t.Context(), of("Certificate"), Scope{}, nil, func(err error) error { return err }); !apierrors.IsForbidden(err) {
		t.Errorf("Certificates that may not be watched: %v", err)
	}
}

// TestOlderVersion: where the API server has the requests as v1beta1 alone, they are read, and watched, as that.
func TestOlderVersion(t *testing.T) {
	t.Parallel()
	s := &server{pods: 2, perPod: 3, older: true}
	pods, err := Pods(t.Context(), s, "", labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := PodVolumes(t.Context(), s, "", "", pods)
	if err != nil || volumes[0].Request == nil || volumes[0].Request.Name != "req-0-2" || isThick(volumes[0].Request) {
		t.Errorf("%v %+v", err, volumes[0])
	}
	request := podapi.In(podapi.V1Beta, requestOf(0, 0))
	without := func(list client.ObjectList) bool {
		_, isV1 := list.(*certificatesv1.PodCertificateRequestList)
		return isV1
	}
	c := cluster(t, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if without(list) {
				return &meta.NoKindMatchError{}
			}
			return c.List(ctx, list, o...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
			if without(list) {
				return nil, &meta.NoKindMatchError{}
			}
			return c.Watch(ctx, list, o...)
		},
	}, request)
	seen, looks := errors.New("seen"), 0
	err = Follow(t.Context(), c, Scope{PodRequests: true}, func(i *Inventory, changed bool) error {
		requests := 0
		for _, o := range i.Objects() {
			if _, is := o.(*certificatesv1.PodCertificateRequest); is {
				requests++
			}
		}
		switch {
		case !changed:
			return nil
		case looks == 0 && requests == 1:
			looks++
			return c.Create(t.Context(), podapi.In(podapi.V1Beta, requestOf(0, 1)))
		case looks == 1 && requests == 2:
			return seen
		default:
			t.Errorf("look %d: %d requests", looks, requests)
			return seen
		}
	}, func(err error) error { return err })
	if !errors.Is(err, seen) {
		t.Error(err)
	}
}

// TestUnserved: a kind is not served if each place that was looked at says so. One that is away has not said so.
func TestUnserved(t *testing.T) {
	t.Parallel()
	away, missing := apierrors.NewServiceUnavailable("away"), &meta.NoKindMatchError{}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{missing, true},
		{away, false},
		{apierrors.NewNotFound(schema.GroupResource{}, ""), true},
		{fmt.Errorf("read: %w", missing), true},
		{utilerrors.NewAggregate([]error{missing, missing}), true},
		{fmt.Errorf("read: %w", utilerrors.NewAggregate([]error{missing, away})), false},
	} {
		if got := Unserved(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}

// TestPodsCost: time and memory grow with the number of Pods, and with the number of events about one, not faster.
func TestPodsCost(t *testing.T) {
	read := func(s *server) func() {
		return func() {
			pods, err := Pods(t.Context(), s, "", labels.Everything())
			if err == nil {
				_, err = PodVolumes(t.Context(), s, "", "", pods)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	growth.Linear(t, 4000, func(size int) func() { return read(&server{pods: size, perPod: 1}) })
	growth.Linear(t, 4000, func(size int) func() { return read(&server{pods: 1, perPod: size}) })
}

// TestPodRequests: with PodRequests, the requests for our signers are read in pages, and kept without their chains; of
// the warnings about a Pod, the newest is kept, and its beginning. Where there are no such requests, or the user may
// not read them, the rest is read.
func TestPodRequests(t *testing.T) {
	t.Parallel()
	s := &server{pods: 600, perPod: 3}
	i, err := Read(t.Context(), s, Scope{OnlyIssuers: true, PodRequests: true})
	if err != nil {
		t.Fatal(err)
	}
	requests, warnings := 0, 0
	for _, o := range i.Objects() {
		switch o := o.(type) {
		case *certificatesv1.PodCertificateRequest:
			if requests++; isThick(o) {
				t.Fatalf("%+v", o)
			}
		case *corev1.Event:
			if warnings++; o.Message != "warning 2" {
				t.Fatalf("%+v", o)
			}
		}
	}
	if requests != 1800 || warnings != 600 || s.largest != PageSize {
		t.Errorf("%d requests, %d warnings, %d at once", requests, warnings, s.largest)
	}
	foreign, other := requestOf(0, 0), eventOf(0, 9)
	foreign.Spec.SignerName, other.Reason = "example.com/pods", "BackOff"
	long := eventOf(0, 3)
	long.UID, long.Message = "long", strings.Repeat("é", podWarning)
	if i.put(foreign) || i.put(other) || i.put(eventOf(0, 1)) || !i.put(long) {
		t.Error("a request or an event of others, or an older warning is kept, or a newer one is not")
	}
	others, another := eventOf(0, 9), eventOf(0, 9)
	others.Namespace, another.InvolvedObject.FieldPath = "bank", podrequest.FieldPath("cert-manager.io/others")
	large := strings.Repeat("x", 1<<20)
	others.UID, another.UID, another.InvolvedObject.Name, another.Annotations = "others", "another", large, map[string]string{"large": large}
	if !i.put(others) || !i.put(another) || i.objects["long"] == nil {
		t.Error("an event of another namespace, or about another volume, takes the place of one")
	}
	if e, is := i.objects["another"].(*corev1.Event); !is || e.Size() > 1000 {
		t.Errorf("%d bytes are kept of an event", e.Size())
	}
	if e, is := i.objects["long"].(*corev1.Event); !is || len(e.Message) > podWarning || i.objects["event-0-2"] != nil {
		t.Errorf("%+v, and the warning before it is %v", e, i.objects["event-0-2"])
	}
	for name, of := range map[string]error{
		"": apierrors.NewForbidden(schema.GroupResource{}, "", nil), "older": &meta.NoKindMatchError{}, "gone": apierrors.NewNotFound(schema.GroupResource{}, ""),
	} {
		i, err := Read(t.Context(), &server{pods: 1, perPod: 1, failure: of}, Scope{OnlyIssuers: true, PodRequests: true})
		if err != nil || i.Unread()["PodCertificateRequest"] != (name == "") {
			t.Errorf("%v: %v, unread %v", of, err, i.Unread())
		}
	}
}
