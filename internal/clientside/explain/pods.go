package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/machine/podrequest"
)

// PodVolume is a volume of a Pod for which a kubelet asks one of our issuers for a certificate.
type PodVolume struct {
	Pod    *corev1.Pod
	Volume string
	Source *corev1.PodCertificateProjection
	// Request is the latest request for it; nil if there is none: a cluster removes requests after a quarter of an hour.
	// Unread names the resources that the user may not read; empty for none.
	Request *certificatesv1.PodCertificateRequest
	Unread  string
	// Warning is the newest warning about the request or the volume, Class the reason of its event, and Warned its time;
	// empty for none.
	Warning, Class string
	Warned         metav1.Time
}

// mostVolumes is how many volumes of a Pod are looked at: each is compared with each request and event of the Pod.
const mostVolumes = 100

// PodVolumes returns the volumes of a Pod for which one of our issuers signs: each with the latest of these requests
// that is for it, and the newest of these events that says why its certificate does not come. What was said before that
// request was made does not count.
func PodVolumes(pod *corev1.Pod, requests []*certificatesv1.PodCertificateRequest, events []*corev1.Event) (volumes []PodVolume) {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.PodCertificate == nil || !podrequest.IsOurs(source.PodCertificate.SignerName) || len(volumes) == mostVolumes {
				continue
			}
			volume := PodVolume{Pod: pod, Volume: v.Name, Source: source.PodCertificate}
			for _, pcr := range requests {
				volume.Ask(pcr)
			}
			for _, e := range events {
				volume.Warn(e)
			}
			volumes = append(volumes, volume)
		}
	}
	return volumes
}

// Ask takes a request if it is for the volume, and the latest so far.
func (v *PodVolume) Ask(pcr *certificatesv1.PodCertificateRequest) {
	if v.asks(pcr) && (v.Request == nil || v.Request.CreationTimestamp.Before(&pcr.CreationTimestamp)) {
		v.Request = pcr
	}
}

// Warn takes an event if it says why the certificate does not come, and is the newest so far. All requests are taken
// first.
func (v *PodVolume) Warn(e *corev1.Event) {
	if v.warns(e) && (v.Class == "" || v.Warned.Before(&e.LastTimestamp)) {
		v.Class, v.Warning, v.Warned = e.Reason, e.Message, e.LastTimestamp
	}
}

// asks reports whether a request is for a volume of that kind of the Pod.
func (v PodVolume) asks(pcr *certificatesv1.PodCertificateRequest) bool {
	const day = 86400 // the default of both
	spec, source := pcr.Spec, v.Source
	lasts := func(seconds *int32) int32 { return *cmp.Or(seconds, new(int32(day))) }
	return pcr.Namespace == v.Pod.Namespace && spec.PodUID == v.Pod.UID && spec.SignerName == source.SignerName &&
		lasts(spec.MaxExpirationSeconds) == lasts(source.MaxExpirationSeconds) && maps.Equal(spec.UnverifiedUserAnnotations, source.UserAnnotations)
}

// warns reports whether an event says why the certificate does not come. The namespace counts, too: a UID that an event
// names may be that of a Pod of others.
func (v *PodVolume) warns(e *corev1.Event) bool {
	about := e.InvolvedObject
	if e.Namespace != v.Pod.Namespace || about.UID != v.Pod.UID || !IsPodTrouble(e) || v.Request != nil && e.LastTimestamp.Before(&v.Request.CreationTimestamp) {
		return false
	}
	switch ready := readySince(v.Pod); {
	case slices.Contains(podrequest.Waits(), e.Reason):
		return about.FieldPath == podrequest.FieldPath(v.Source.SignerName)
	case e.Reason != "FailedMount":
		return true
	case started(v.Pod) && !ready.Before(&e.LastTimestamp): // it was mounted since; an event stays for an hour
		return false
	default:
		return strings.Contains(e.Message, strconv.Quote(v.Volume))
	}
}

// IsPodTrouble reports whether an event about a Pod is one of ours, or of the kubelet, for a certificate that does not
// come. The kubelet has the reason Failed for images and containers as well: only its message tells them apart.
func IsPodTrouble(e *corev1.Event) bool {
	if e.Reason == "Denied" || e.Reason == "Failed" {
		return strings.Contains(e.Message, "PodCertificateRequest ")
	}
	return slices.Contains(podrequest.Waits(), e.Reason) || slices.Contains(kubeletTrouble(), e.Reason)
}

// kubeletTrouble are the reasons of the kubelet's events about a certificate of a Pod that runs.
func kubeletTrouble() []string {
	return []string{"Denied", "Failed", "CertificateOverdueForRefresh", "CertificateExpired", "FailedMount"}
}

// Pod explains the certificate in a volume of a Pod.
func (w *Cluster) Pod(v PodVolume) Report {
	kind, namespace, name := SignerOf(v.Source.SignerName)
	ref, foreign := cmmeta.IssuerReference{Kind: kind, Name: name}, namespace != "" && namespace != v.Pod.Namespace
	r := Report{
		Node: Node{
			Kind: "Pod", Namespace: v.Pod.Namespace, Name: v.Pod.Name, About: Name("Pod", v.Pod.Namespace, v.Pod.Name) + ", volume " + v.Volume,
			Outcome: Waiting.String(), State: "waiting",
		},
		Issuer: w.issuerNode(ref, namespace), Since: &v.Pod.CreationTimestamp, Volume: v.Volume,
	}
	if v.Request != nil {
		r.Since = &v.Request.CreationTimestamp
	}
	if started(v.Pod) { // its certificate is good while a refresh is under way
		r.Outcome, r.State = Issued.String(), "started"
	}
	if v.Unread != "" {
		r.State += "; you may not read " + v.Unread + ", which say more"
	}
	condition := verdictOn(v.Request)
	issuer, missing := w.issuer(ref, namespace)
	if foreign && missing { // perhaps its namespace was not read
		r.Issuer.Outcome, r.Issuer.State = "", ""
	}
	switch {
	case condition != nil && condition.Type == certificatesv1.PodCertificateRequestConditionTypeIssued:
		r.Outcome, r.State, r.Expires, r.Renews = Issued.String(), "issued", v.Request.Status.NotAfter, v.Request.Status.BeginRefreshAt
	case condition != nil:
		r.Outcome, r.State = Failed.String(), "denied"
		r.Trouble = Trouble{
			Class: condition.Reason, Cause: terminal.Line(condition.Reason + ": " + condition.Message), NextTry: "never",
			WhatToDo: v.correct(),
		}
	case v.Request == nil && started(v.Pod):
		if slices.Contains(kubeletTrouble(), v.Class) {
			r.Trouble = v.warned()
		}
	case foreign:
		r.Trouble = Trouble{
			Class: podrequest.ReasonOtherNamespace, Cause: "the signer names an Issuer of another namespace, which signs for Pods of its own namespace only",
			NextTry: "never", WhatToDo: v.correct(),
		}
	case missing, issuer != nil && notReady(issuer) != nil:
		f := w.ofIssuer(r.Issuer, issuer)
		r.Trouble = f.trouble(w.now)
		if missing {
			r.WhatToDo = "Create the issuer, or name another signer in the volume, and create the Pod anew"
		}
	case v.Warning != "":
		r.Trouble = v.warned()
	case v.Request != nil && w.now.Sub(v.Request.CreationTimestamp.Time) > unseen:
		r.Trouble = Trouble{
			Class: string(cause.NoController), Cause: "no controller has answered the request", NextTry: nextBy(cause.NoController),
			WhatToDo: "See whether the controller runs with --pod-certificates, and has the rights of chancery install --pod-certificates",
		}
	}
	return r
}

// PodRequest explains a request for a certificate of a Pod, by the newest warning about the Pod, or nil.
func (w *Cluster) PodRequest(pcr *certificatesv1.PodCertificateRequest, warning *corev1.Event) Report {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pcr.Namespace, Name: pcr.Spec.PodName, UID: pcr.Spec.PodUID}}
	v := PodVolume{Pod: pod, Source: &corev1.PodCertificateProjection{SignerName: pcr.Spec.SignerName}, Request: pcr}
	if warning != nil && v.warns(warning) {
		v.Class, v.Warning = warning.Reason, warning.Message
	}
	r := w.Pod(v)
	r.About = Name(r.Kind, r.Namespace, r.Name)
	return r
}

// started reports whether the volumes of a Pod were ready at a time.
func started(pod *corev1.Pod) bool {
	return pod.Status.Phase != "" && pod.Status.Phase != corev1.PodPending || readySince(pod) != nil
}

// readySince is since when the volumes of a Pod are ready; nil if that is not known.
func readySince(pod *corev1.Pod) *metav1.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime
		}
	}
	return nil
}

// describePod says whether a Pod has its volumes.
func describePod(pod *corev1.Pod) (outcome Outcome, state string) {
	if started(pod) {
		return Issued, strings.ToLower(string(pod.Status.Phase))
	}
	return Waiting, "waiting for its volumes"
}

func describePodRequest(pcr *certificatesv1.PodCertificateRequest) (outcome Outcome, state, reason string) {
	switch verdict := verdictOn(pcr); {
	case verdict == nil:
		return Waiting, "new", ""
	case verdict.Type == certificatesv1.PodCertificateRequestConditionTypeIssued:
		return Issued, "issued", ""
	default:
		return Failed, strings.ToLower(verdict.Type), verdict.Reason + ": " + verdict.Message
	}
}

// correct is what to do where the spec of the Pod is in the way.
func (v PodVolume) correct() string {
	if v.Volume == "" {
		return "Correct the volume of the Pod, and create the Pod anew"
	}
	return fmt.Sprintf("Correct the volume %s of the Pod, and create the Pod anew", v.Volume)
}

// warned is the newest warning as a trouble. The kubelet says once that a refresh is late, and not that it has come
// after all: who reads it needs the time.
func (v PodVolume) warned() Trouble {
	said := v.Warning
	if started(v.Pod) && slices.Contains(kubeletTrouble(), v.Class) {
		said = "the kubelet said of the Pod at " + v.Warned.UTC().Format(time.RFC3339) + ": " + said
	}
	return Trouble{Class: v.Class, Cause: terminal.Line(said), NextTry: "as soon as that has changed", WhatToDo: podCure(v.Class)}
}

// podCure is what helps against a warning about a Pod; the message says the rest.
func podCure(reason string) string {
	switch reason {
	case podrequest.ReasonForbidden:
		return "Give the ServiceAccount the right, or let all have certificates of the issuer"
	case podrequest.ReasonCAEndsSoon:
		return "Renew the CA of the issuer"
	case podrequest.ReasonNotForPods, podrequest.ReasonIssuerType:
		return "Name an issuer that signs for Pods in the volume, and create the Pod anew, or correct the issuer"
	case podrequest.ReasonServices:
		return "Correct the Service or the labels of the Pod, or name another Service in the volume, and create the Pod anew"
	case podrequest.ReasonKubeletTooOld:
		return "Upgrade the node, or run the Pod on another one"
	default:
		return "Correct what the cause names: it is tried again by itself then"
	}
}

// verdictOn is the condition that finishes a request; nil if there is none yet.
func verdictOn(pcr *certificatesv1.PodCertificateRequest) *metav1.Condition {
	if pcr != nil && len(pcr.Status.Conditions) > 0 {
		return &pcr.Status.Conditions[0]
	}
	return nil
}
