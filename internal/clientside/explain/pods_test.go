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
	about := corev1.ObjectReference{UID: "web", FieldPath: podrequest.FieldPath("issuers.cert-manager.io/shop.ca")}
	asked := func(ago time.Duration) *certificatesv1.PodCertificateRequest {
		return &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *in(-ago)}}
	}
	foreign := volumes[0]
	foreign.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "web"}}
	for _, known := range [][]metav1.Object{{authority(time.Hour)}, nil} { // without -A, that namespace is not read
		if r := NewCluster(known, nil, now).Pod(foreign); r.Class != podrequest.ReasonOtherNamespace || r.NextTry != "never" || r.Issuer.State == "does not exist" {
			t.Errorf("an Issuer of another namespace: %+v of %+v", r.Trouble, r.Issuer)
		}
	}
	waits := asked(time.Hour)
	waits.ObjectMeta, waits.CreationTimestamp = object("req", ""), *in(-time.Hour)
	waits.Spec = certificatesv1.PodCertificateRequestSpec{PodName: "web", PodUID: "web", SignerName: "issuers.cert-manager.io/shop.ca"}
	warning := &corev1.Event{ObjectMeta: object("e", ""), InvolvedObject: about, Reason: podrequest.ReasonForbidden, Message: "no right", LastTimestamp: *in(-time.Minute)}
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
		"a refresh is new":        {authority(time.Hour), asked(time.Second), true, "", "", "started", ""},
		"a refresh waits":         {authority(time.Hour), asked(time.Hour), true, podrequest.ReasonForbidden, "no right", "started", "no right"},
		"a refresh was late":      {authority(time.Hour), nil, true, "CertificateOverdueForRefresh", "overdue", "started", "the kubelet said of the Pod at 0001-01-01T00:00:00Z: overdue"},
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
		signer, _, _ := strings.Cut(message, ":")
		about := corev1.ObjectReference{UID: pod.UID, FieldPath: podrequest.FieldPath("cert-manager.io/" + signer)}
		return &corev1.Event{ObjectMeta: object("e", ""), InvolvedObject: about, Reason: reason, Message: message, LastTimestamp: *in(-ago)}
	}
	other := ask("longer", "one", pod, 0)
	other.Spec.MaxExpirationSeconds = new(int32(7200))
	requests := []*certificatesv1.PodCertificateRequest{
		ask("old", "one", pod, 2*time.Hour), ask("latest", "one", pod, time.Hour), ask("older", "one", pod, 3*time.Hour), other,
		ask("foreign", "one", &corev1.Pod{ObjectMeta: object("api", "")}, 0),
	}
	events := []*corev1.Event{
		warn(podrequest.ReasonForbidden, "one: before the request", 90*time.Minute), warn("FailedMount", `MountVolume.SetUp failed for volume "two"`, 2*time.Minute),
		warn(podrequest.ReasonForbidden, "one: no right", 30*time.Minute), warn("BackOff", "of the image", time.Minute),
		warn("Failed", "Failed to pull image \"none\"", time.Minute), warn(podrequest.ReasonIssuerMissing, "three: of another volume", time.Minute),
	}
	volumes := PodVolumes(pod, requests, events)
	if len(volumes) != 2 || volumes[0].Request == nil || volumes[0].Request.Name != "latest" || volumes[1].Request != nil {
		t.Fatalf("%+v", volumes)
	}
	if volumes[0].Warning != "one: no right" || volumes[1].Class != "FailedMount" {
		t.Errorf("%q, %q", volumes[0].Warning, volumes[1].Warning)
	}
	for signer, says := range map[string]string{"one": "", "two": "two: before the request"} {
		e := warn(podrequest.ReasonForbidden, signer+": before the request", 90*time.Minute)
		if volumes := PodVolumes(pod, requests, []*corev1.Event{e}); volumes[0].Warning != "" || volumes[1].Warning != says {
			t.Errorf("a warning of before the request: %q, %q", volumes[0].Warning, volumes[1].Warning)
		}
	}
	denied := warn("Denied", "NoKey%!(EXTRA string=PodCertificateRequest shop/r was denied)", 2*time.Minute)
	for name, c := range map[string]struct {
		started time.Duration
		event   *corev1.Event
		counts  bool
	}{
		"a mount that failed, and has come since": {time.Minute, events[1], false}, "a mount that fails again": {3 * time.Minute, events[1], true},
		"a denial": {time.Minute, denied, true}, "an image": {3 * time.Minute, events[4], false},
	} {
		runs := pod.DeepCopy()
		runs.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: *in(-c.started)}}}
		if v := PodVolumes(runs, nil, []*corev1.Event{c.event})[1]; (v.Warning != "") != c.counts || v.Warning != "" && !v.Warned.Equal(&c.event.LastTimestamp) {
			t.Errorf("%s: %q at %s", name, v.Warning, v.Warned)
		}
	}
	many := pod.DeepCopy()
	for range 200 {
		many.Spec.Volumes = append(many.Spec.Volumes, pod.Spec.Volumes...)
	}
	if volumes := PodVolumes(many, nil, nil); len(volumes) != mostVolumes {
		t.Errorf("%d volumes of a Pod are looked at", len(volumes))
	}
	pod.Namespace = "bank" // of which somebody in shop has learned the UID
	for _, v := range PodVolumes(pod, requests, events) {
		if v.Request != nil || v.Warning != "" {
			t.Errorf("a request or an event of another namespace counts: %+v", v)
		}
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
