package explain

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/machine/podrequest"
)

// PodVolume is a volume of a Pod for which a kubelet asks one of our issuers for a certificate.
type PodVolume struct {
	Pod                *corev1.Pod
	Volume, SignerName string
	// Request is the latest request for it; nil if there is none: a cluster removes requests after a quarter of an hour.
	Request *certificatesv1.PodCertificateRequest
	// Warning is the newest warning about why it does not come, and Class the reason of its event; empty for none.
	Warning, Class string
}

// PodVolumes returns the volumes of a Pod for which one of our issuers signs.
func PodVolumes(pod *corev1.Pod) (volumes []PodVolume) {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.PodCertificate != nil && podrequest.IsOurs(source.PodCertificate.SignerName) {
				volumes = append(volumes, PodVolume{Pod: pod, Volume: v.Name, SignerName: source.PodCertificate.SignerName})
			}
		}
	}
	return volumes
}

// Pod explains the certificate in a volume of a Pod.
func (w *Cluster) Pod(v PodVolume) Report {
	kind, namespace, name := SignerOf(v.SignerName)
	ref := cmmeta.IssuerReference{Kind: kind, Name: name}
	r := Report{
		Node: Node{
			Kind: "Pod", Namespace: v.Pod.Namespace, Name: v.Pod.Name, About: Name("Pod", v.Pod.Namespace, v.Pod.Name) + ", volume " + v.Volume,
			Outcome: Waiting.String(), State: "waiting",
		},
		Issuer: w.issuerNode(ref, namespace), Since: &v.Pod.CreationTimestamp,
	}
	condition := verdictOn(v.Request)
	switch issuer, missing := w.issuer(ref, namespace); {
	case condition != nil && condition.Type == certificatesv1.PodCertificateRequestConditionTypeIssued:
		r.Outcome, r.State, r.Expires, r.Renews = Issued.String(), "issued", v.Request.Status.NotAfter, v.Request.Status.BeginRefreshAt
	case condition != nil:
		r.Outcome, r.State = Failed.String(), "denied"
		r.Trouble = Trouble{
			Class: condition.Reason, Cause: terminal.Line(condition.Reason + ": " + condition.Message), NextTry: "never",
			WhatToDo: fmt.Sprintf("Correct the volume %s of the Pod, and create the Pod anew", v.Volume),
		}
	case v.Request == nil && v.Pod.Status.Phase == corev1.PodRunning:
		r.Outcome, r.State = Issued.String(), "running, and its request is gone"
	case missing, issuer != nil && notReady(issuer) != nil:
		f := w.ofIssuer(r.Issuer, issuer)
		r.Trouble = f.trouble(w.now)
	case v.Warning != "":
		r.Trouble = Trouble{Class: v.Class, Cause: terminal.Line(v.Warning), NextTry: "as soon as that has changed", WhatToDo: podCure(v.Class)}
	}
	return r
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
