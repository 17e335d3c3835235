package explain

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/podrequest"
)

// TestPod: what is known of a certificate of a Pod, from its request or, where that is gone, from its events.
func TestPod(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: object("web", "")}
	source := func(signerName string) corev1.VolumeProjection {
		return corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: signerName}}
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "identity", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{}, source("example.com/pods"), source("issuers.cert-manager.io/shop.ca")},
	}}}}
	volumes := PodVolumes(pod, nil, nil)
	if len(volumes) != 1 || volumes[0].Volume != "identity" || volumes[0].Source.SignerName != "issuers.cert-manager.io/shop.ca" {
		t.Fatalf("%+v", volumes)
	}
	verdict := func(condition, reason string) *certificatesv1.PodCertificateRequest {
		pcr := &certificatesv1.PodCertificateRequest{}
		pcr.Status.Conditions = []metav1.Condition{{Type: condition, Reason: reason, Message: "because"}}
		pcr.Status.NotAfter, pcr.Status.BeginRefreshAt = in(24*time.Hour), in(16*time.Hour)
		return pcr
	}
	asked := func(ago time.Duration) *certificatesv1.PodCertificateRequest {
		return &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *in(-ago)}}
	}
	foreign := volumes[0]
	foreign.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "web"}}
	if r := NewCluster([]metav1.Object{authority(time.Hour)}, nil, now).Pod(foreign); r.Class != podrequest.ReasonOtherNamespace || r.NextTry != "never" {
		t.Errorf("an Issuer of another namespace: %+v", r.Trouble)
	}
	waits := asked(time.Hour)
	waits.ObjectMeta, waits.CreationTimestamp = object("req", ""), *in(-time.Hour)
	waits.Spec = certificatesv1.PodCertificateRequestSpec{PodName: "web", PodUID: "web", SignerName: "issuers.cert-manager.io/shop.ca"}
	warning := &corev1.Event{InvolvedObject: corev1.ObjectReference{UID: "web"}, Reason: podrequest.ReasonForbidden, Message: "no right", LastTimestamp: *in(-time.Minute)}
	known := NewCluster([]metav1.Object{authority(time.Hour)}, nil, now)
	if r := known.PodRequest(waits, warning); r.Title() != "Pod shop/web" || r.Cause != "no right" || r.Class != podrequest.ReasonForbidden {
		t.Errorf("a request that waits: %+v", r)
	}
	if r := known.PodRequest(waits, nil); !strings.Contains(r.Cause, "no controller has answered") {
		t.Errorf("a request without a warning: %+v", r)
	}
	waits.Status.Conditions = verdict("Denied", "RequestNamesSomething").Status.Conditions
	if r := known.PodRequest(waits, warning); r.State != "denied" || r.WhatToDo != "Correct the volume of the Pod, and create the Pod anew" {
		t.Errorf("a request that is denied: %+v", r)
	}
	broken := authority(time.Hour)
	broken.Status.Conditions[0].Status, broken.Status.Conditions[0].Message = cmmeta.ConditionFalse, "no Secret"
	for name, c := range map[string]struct {
		issuer         metav1.Object
		request        *certificatesv1.PodCertificateRequest
		running        bool
		class, warning string
		state, cause   string
	}{
		"issued":                  {authority(time.Hour), verdict("Issued", "Issued"), true, "", "", "issued", ""},
		"issued after a warning":  {authority(time.Hour), verdict("Issued", "Issued"), false, podrequest.ReasonForbidden, "no right", "issued", ""},
		"denied":                  {authority(time.Hour), verdict("Denied", "RequestNamesSomething"), false, "", "", "denied", "RequestNamesSomething: because"},
		"waits for a right":       {authority(time.Hour), asked(time.Hour), false, podrequest.ReasonForbidden, "no right", "waiting", "no right"},
		"waits, and it is gone":   {authority(time.Hour), nil, false, "FailedMount", "not issued yet", "waiting", "not issued yet"},
		"nothing is known":        {authority(time.Hour), nil, false, "", "", "waiting", ""},
		"runs":                    {authority(time.Hour), nil, true, podrequest.ReasonForbidden, "an old one", "started", ""},
		"a refresh is denied":     {authority(time.Hour), nil, true, "Denied", "no such annotation", "started", "no such annotation"},
		"nobody answers":          {authority(time.Hour), asked(time.Hour), false, "", "", "waiting", "no controller has answered"},
		"asked a moment ago":      {authority(time.Hour), asked(time.Second), false, "", "", "waiting", ""},
		"the issuer is not there": {nil, nil, false, podrequest.ReasonIssuerMissing, "missing", "waiting", "Issuer shop/ca does not exist"},
		"the issuer is broken":    {broken, nil, false, podrequest.ReasonIssuerNotReady, "old words", "waiting", "no Secret"},
	} {
		v := volumes[0]
		v.Pod = pod.DeepCopy()
		if v.Request, v.Class, v.Warning = c.request, c.class, c.warning; c.running {
			v.Pod.Status.Phase = corev1.PodRunning
		}
		var objects []metav1.Object
		if c.issuer != nil {
			objects = append(objects, c.issuer)
		}
		r := NewCluster(objects, nil, now).Pod(v)
		if !strings.HasPrefix(r.State, c.state) || !strings.Contains(r.Cause, c.cause) || c.cause == "" && r.Cause != "" || (r.Cause == "") != (r.WhatToDo == "") {
			t.Errorf("%s: %s: %q, %q", name, r.State, r.Cause, r.WhatToDo)
		}
		if issued := c.state == "issued"; (r.Expires != nil) != issued || issued && r.Title() != "Pod shop/web, volume identity" {
			t.Errorf("%s: %s expires %v", name, r.Title(), r.Expires)
		}
	}
	for state, o := range map[string]metav1.Object{
		"waiting for its volumes": pod, "running": &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		"new": asked(time.Hour), "issued": verdict("Issued", "Issued"), "denied: RequestNamesSomething: because": verdict("Denied", "RequestNamesSomething"),
	} {
		outcomes := map[string]Outcome{"running": Issued, "issued": Issued, "denied": Failed}
		word, _, _ := strings.Cut(state, ":")
		if d := Describe(o); d.Words() != state || d.Outcome != outcomes[word] {
			t.Errorf("%s: %+v", state, d)
		}
	}
	for _, reason := range podrequest.Waits() {
		if podCure(reason) == "" {
			t.Errorf("nothing helps against %s", reason)
		}
	}
}

// TestPodVolumes: of several requests and events, each volume has the latest that is about it.
func TestPodVolumes(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: object("web", "")}
	for _, name := range []string{"one", "two"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{SignerName: "cert-manager.io/" + name}}},
		}}})
	}
	ask := func(name, signer string, pod *corev1.Pod, ago time.Duration) *certificatesv1.PodCertificateRequest {
		pcr := &certificatesv1.PodCertificateRequest{ObjectMeta: object(name, "")}
		pcr.CreationTimestamp, pcr.Spec.SignerName, pcr.Spec.PodUID = *in(-ago), "cert-manager.io/"+signer, pod.UID
		return pcr
	}
	warn := func(reason, message string, ago time.Duration) *corev1.Event {
		return &corev1.Event{InvolvedObject: corev1.ObjectReference{UID: pod.UID}, Reason: reason, Message: message, LastTimestamp: *in(-ago)}
	}
	other := ask("longer", "one", pod, 0)
	other.Spec.MaxExpirationSeconds = new(int32(7200))
	requests := []*certificatesv1.PodCertificateRequest{
		ask("old", "one", pod, 2*time.Hour), ask("latest", "one", pod, time.Hour), ask("older", "one", pod, 3*time.Hour), other,
		ask("foreign", "one", &corev1.Pod{ObjectMeta: object("api", "")}, 0),
	}
	events := []*corev1.Event{
		warn(podrequest.ReasonForbidden, "before the request", 90*time.Minute), warn("FailedMount", `MountVolume.SetUp failed for volume "two"`, 2*time.Minute),
		warn(podrequest.ReasonForbidden, "for both", 30*time.Minute), warn("BackOff", "of the image", time.Minute),
	}
	volumes := PodVolumes(pod, requests, events)
	if len(volumes) != 2 || volumes[0].Request == nil || volumes[0].Request.Name != "latest" || volumes[1].Request != nil {
		t.Fatalf("%+v", volumes)
	}
	if volumes[0].Warning != "for both" || volumes[1].Class != "FailedMount" {
		t.Errorf("%q, %q", volumes[0].Warning, volumes[1].Warning)
	}
	if volumes := PodVolumes(pod, requests, events[:1]); volumes[0].Warning != "" || volumes[1].Warning != "before the request" {
		t.Errorf("a warning of before the request: %q, %q", volumes[0].Warning, volumes[1].Warning)
	}
}

// TestPodRows: Pods in trouble are on top, then those that wait; a filter takes what it says.
func TestPodRows(t *testing.T) {
	t.Parallel()
	row := func(name string, outcome Outcome, cause string) Report {
		return Report{
			Node: Node{Kind: "Pod", Namespace: "shop", Name: name, Outcome: outcome.String()}, Issuer: Node{Kind: "ClusterIssuer", Name: "of-" + name}, Volume: "identity",
			Trouble: Trouble{Cause: cause},
		}
	}
	all := []Report{row("a", Issued, ""), row("d", Issued, "a refresh is denied"), row("b", Waiting, ""), row("c", Failed, "denied")}
	for want, f := range map[string]Filter{"c d b a": {}, "c d b": {NotReady: true}, "a": {Issuer: "of-a"}} {
		var names []string
		for _, r := range PodRows(all, f, now) {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
}
