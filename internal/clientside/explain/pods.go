package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	// Unread says that the user may not read requests.
	Request *certificatesv1.PodCertificateRequest
	Unread  bool
	// Warning is the newest warning about the request or the volume, and Class the reason of its event; empty for none.
	Warning, Class string
}

// PodVolumes returns the volumes of a Pod for which one of our issuers signs: each with the latest of these requests
// that is for it, and the newest of these events that says why its certificate does not come. What was said before that
// request was made does not count.
func PodVolumes(pod *corev1.Pod, requests []*certificatesv1.PodCertificateRequest, events []*corev1.Event) (volumes []PodVolume) {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.PodCertificate == nil || !podrequest.IsOurs(source.PodCertificate.SignerName) {
				continue
			}
			volume := PodVolume{Pod: pod, Volume: v.Name, Source: source.PodCertificate}
			for _, pcr := range requests {
				if volume.asks(pcr) && (volume.Request == nil || volume.Request.CreationTimestamp.Before(&pcr.CreationTimestamp)) {
					volume.Request = pcr
				}
			}
			var newest *corev1.Event
			for _, e := range events {
				if volume.warns(e) && (newest == nil || newest.LastTimestamp.Before(&e.LastTimestamp)) {
					newest, volume.Class, volume.Warning = e, e.Reason, e.Message
				}
			}
			volumes = append(volumes, volume)
		}
	}
	return volumes
}

// asks reports whether a request is for a volume of that kind of the Pod.
func (v PodVolume) asks(pcr *certificatesv1.PodCertificateRequest) bool {
	const day = 86400 // the default of both
	spec, source := pcr.Spec, v.Source
	lasts := func(seconds *int32) int32 { return *cmp.Or(seconds, new(int32(day))) }
	return spec.PodUID == v.Pod.UID && spec.SignerName == source.SignerName && lasts(spec.MaxExpirationSeconds) == lasts(source.MaxExpirationSeconds) &&
		maps.Equal(spec.UnverifiedUserAnnotations, source.UserAnnotations)
}

// warns reports whether an event says why the certificate does not come.
func (v PodVolume) warns(e *corev1.Event) bool {
	old := v.Request != nil && e.LastTimestamp.Before(&v.Request.CreationTimestamp)
	others := e.Reason == "FailedMount" && !strings.Contains(e.Message, strconv.Quote(v.Volume))
	return e.InvolvedObject.UID == v.Pod.UID && !old && !others && IsPodTrouble(e.Reason)
}

// IsPodTrouble reports whether the reason of an event about a Pod is one of ours, or of the kubelet, for a certificate
// that does not come.
func IsPodTrouble(reason string) bool {
	return slices.Contains(podrequest.Waits(), reason) || slices.Contains(kubeletTrouble(), reason)
}

// kubeletTrouble are the reasons of the kubelet's events about a certificate of a Pod that runs.
func kubeletTrouble() []string {
	return []string{"Denied", "Failed", "CertificateOverdueForRefresh", "CertificateExpired", "FailedMount"}
}

// Pod explains the certificate in a volume of a Pod.
func (w *Cluster) Pod(v PodVolume) Report {
	kind, namespace, name := SignerOf(v.Source.SignerName)
	ref := cmmeta.IssuerReference{Kind: kind, Name: name}
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
	condition := verdictOn(v.Request)
	switch issuer, missing := w.issuer(ref, namespace); {
	case condition != nil && condition.Type == certificatesv1.PodCertificateRequestConditionTypeIssued:
		r.Outcome, r.State, r.Expires, r.Renews = Issued.String(), "issued", v.Request.Status.NotAfter, v.Request.Status.BeginRefreshAt
	case condition != nil:
		r.Outcome, r.State = Failed.String(), "denied"
		r.Trouble = Trouble{
			Class: condition.Reason, Cause: terminal.Line(condition.Reason + ": " + condition.Message), NextTry: "never",
			WhatToDo: v.correct(),
		}
	case v.Request == nil && started(v.Pod):
		r.Outcome, r.State = Issued.String(), "started"
		if v.Unread {
			r.State = "started; you may not read podcertificaterequests, which say more"
		}
		if slices.Contains(kubeletTrouble(), v.Class) {
			r.Trouble = v.warned()
		}
	case namespace != "" && namespace != v.Pod.Namespace:
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
	return pod.Status.Phase != "" && pod.Status.Phase != corev1.PodPending || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
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

// warned is the newest warning as a trouble.
func (v PodVolume) warned() Trouble {
	return Trouble{Class: v.Class, Cause: terminal.Line(v.Warning), NextTry: "as soon as that has changed", WhatToDo: podCure(v.Class)}
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
