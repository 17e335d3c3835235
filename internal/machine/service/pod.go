package service

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/adler32"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
)

// Mode says who answers the Challenges for HTTP-01.
type Mode string

const (
	// ModeAuto lets a pod answer where the solver has a podTemplate, and the responder otherwise.
	ModeAuto Mode = "auto"
	// ModeResponder lets the responder answer: podTemplate has no effect.
	ModeResponder Mode = "responder"
	// ModePod lets a pod answer each Challenge.
	ModePod Mode = "pod"
)

// Pods configure the pods that answer a Challenge each (spec §5.8).
type Pods struct {
	// Mode says which Challenges have a pod; empty is ModeResponder.
	Mode Mode
	// Image has the acmesolver as its entry point.
	Image string
	// Requests and Limits are the resources of the container.
	Requests, Limits corev1.ResourceList
	// RunAsNonRoot makes the kubelet refuse an image that runs as root.
	RunAsNonRoot bool
	// RuntimeClassName is that of the pods; empty for none.
	RuntimeClassName string
}

// Answer reports whether a pod of its own answers each Challenge of a solver.
func (p Pods) Answer(s *acmev1.HTTP01Solver) bool {
	return p.Mode == ModePod || p.Mode == ModeAuto && templateOf(s) != nil
}

// Of names the Service that a Challenge for HTTP-01 leads to.
func (p Pods) Of(c *acmev1.Challenge) types.NamespacedName {
	if p.Answer(c.Spec.Solver.HTTP01) {
		return types.NamespacedName{Namespace: c.Namespace, Name: ObjectName(c.UID)}
	}
	return types.NamespacedName{Namespace: c.Namespace, Name: Name(TypeOf(c))}
}

func templateOf(s *acmev1.HTTP01Solver) *acmev1.SolverPodTemplate {
	switch {
	case s.Ingress != nil:
		return s.Ingress.PodTemplate
	case s.GatewayHTTPRoute != nil:
		return s.GatewayHTTPRoute.PodTemplate
	}
	return nil
}

const (
	domainLabel = "acme.cert-manager.io/http-domain"
	tokenLabel  = "acme.cert-manager.io/http-token"
)

// ObjectName is the name of each object that is made for a single Challenge. It depends on the UID: a retry finds what
// an earlier try has made, and another Challenge of the same name does not.
func ObjectName(challenge types.UID) string {
	sum := sha256.Sum256([]byte(challenge))
	return Prefix + "-" + hex.EncodeToString(sum[:8])
}

// LabelsOf are the labels of each object that is made for a single Challenge (spec §5.8). Extra labels cannot override
// the others.
func LabelsOf(c *acmev1.Challenge, extra map[string]string) map[string]string {
	out := selectorOf(c)
	for key, value := range extra {
		if _, ours := out[key]; !ours {
			out[key] = value
		}
	}
	return out
}

func selectorOf(c *acmev1.Challenge) map[string]string {
	return map[string]string{
		domainLabel: adler(c.Spec.DNSName), tokenLabel: adler(c.Spec.Token), acmev1.HTTP01SolverLabel: acmev1.HTTP01SolverLabelValue,
	}
}

func adler(s string) string { return strconv.FormatUint(uint64(adler32.Checksum([]byte(s))), 10) }

// OwnedBy are the owner references of each object that is made for a single Challenge.
func OwnedBy(c *acmev1.Challenge) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: acmev1.SchemeGroupVersion().String(), Kind: "Challenge", Name: c.Name, UID: c.UID,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
}

// NewPodService is the Service of the pod that answers a Challenge.
func NewPodService(c *acmev1.Challenge, extra map[string]string) *corev1.Service {
	out := New(c.Namespace, TypeOf(c), nil)
	out.Name, out.Labels, out.OwnerReferences = ObjectName(c.UID), LabelsOf(c, extra), OwnedBy(c)
	out.Spec.Selector = selectorOf(c)
	return out
}

// NewPod is the pod that answers a Challenge. Only its arguments say what it answers, so that any image with an
// acmesolver works.
func NewPod(c *acmev1.Challenge, p Pods, extra map[string]string) *corev1.Pod {
	spec := c.Spec
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: ObjectName(c.UID), Labels: LabelsOf(c, extra), OwnerReferences: OwnedBy(c),
			Annotations: map[string]string{"sidecar.istio.io/inject": "false", "cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyOnFailure, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			NodeSelector: map[string]string{corev1.LabelOSStable: string(corev1.Linux)},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &p.RunAsNonRoot, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "acmesolver", Image: p.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				Args: []string{
					fmt.Sprintf("--listen-port=%d", Port), "--domain=" + spec.DNSName, "--token=" + spec.Token, "--key=" + spec.Key,
				},
				Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: Port}},
				Resources: corev1.ResourceRequirements{Requests: maps.Clone(p.Requests), Limits: maps.Clone(p.Limits)},
				SecurityContext: &corev1.SecurityContext{
					ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	if p.RuntimeClassName != "" {
		pod.Spec.RuntimeClassName = &p.RuntimeClassName
	}
	if template := templateOf(spec.Solver.HTTP01); template != nil {
		maps.Copy(pod.Labels, template.Metadata.Labels)
		maps.Copy(pod.Annotations, template.Metadata.Annotations)
		fill(&pod.Spec, template.Spec)
	}
	return pod
}

// fill applies a podTemplate's spec (spec §5.8): maps and resources by key, lists at the end, the rest as a whole.
func fill(pod *corev1.PodSpec, t acmev1.SolverPodSpec) {
	maps.Copy(pod.NodeSelector, t.NodeSelector)
	pod.Tolerations = append(pod.Tolerations, t.Tolerations...)
	pod.ImagePullSecrets = append(pod.ImagePullSecrets, t.ImagePullSecrets...)
	pod.Affinity, pod.PriorityClassName, pod.ServiceAccountName = t.Affinity, t.PriorityClassName, t.ServiceAccountName
	if s := t.SecurityContext; s != nil {
		pod.SecurityContext = &corev1.PodSecurityContext{
			SELinuxOptions: s.SELinuxOptions, RunAsUser: s.RunAsUser, RunAsGroup: s.RunAsGroup, RunAsNonRoot: s.RunAsNonRoot,
			SupplementalGroups: s.SupplementalGroups, FSGroup: s.FSGroup, Sysctls: s.Sysctls,
			FSGroupChangePolicy: s.FSGroupChangePolicy, SeccompProfile: s.SeccompProfile,
		}
	}
	if r := t.Resources; r != nil {
		into := &pod.Containers[0].Resources
		into.Requests, into.Limits = merged(into.Requests, r.Requests), merged(into.Limits, r.Limits)
	}
}

func merged(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// PodState is what there is for a Challenge that a pod of its own answers.
type PodState struct {
	// Challenge is the Challenge, and Over says that it needs no answer any more.
	Challenge *acmev1.Challenge
	Over      bool
	// Service and Pod are the objects with the Challenge's ObjectName; nil for those that do not exist.
	Service *corev1.Service
	Pod     *corev1.Pod
	// Pods and ExtraLabels are the settings.
	Pods        Pods
	ExtraLabels map[string]string
}

// PodAction is what to do, in the order of the fields. So the Service is there whenever the pod is: by the Service, the
// controller of Services finds what a process that died has left.
type PodAction struct {
	// CreateService and CreatePod are to be made; nil if they are not.
	CreateService *corev1.Service
	CreatePod     *corev1.Pod
	// DeletePod and DeleteService say what is to go.
	DeletePod, DeleteService bool
	// Err is to be returned after that: why the Challenge cannot be answered now.
	Err error
}

// DecidePod returns what to do so that a pod answers a Challenge, or leaves nothing behind.
func DecidePod(s PodState) PodAction {
	ours := func(o metav1.Object) bool { return metav1.IsControlledBy(o, s.Challenge) }
	goes := func(o metav1.Object) bool { return o.GetDeletionTimestamp() != nil }
	if s.Over {
		return PodAction{
			DeletePod: s.Pod != nil && ours(s.Pod) && !goes(s.Pod), DeleteService: s.Service != nil && ours(s.Service) && !goes(s.Service),
		}
	}
	switch {
	case s.Service != nil && !ours(s.Service):
		return PodAction{Err: Taken("Service", s.Service.Name)}
	case s.Pod != nil && !ours(s.Pod):
		return PodAction{Err: Taken("Pod", s.Pod.Name)}
	case s.Service != nil && goes(s.Service):
		return PodAction{Err: beingDeleted("Service", s.Service.Name)}
	case s.Pod != nil && goes(s.Pod):
		return PodAction{Err: beingDeleted("Pod", s.Pod.Name)}
	case s.Pod != nil && ended(s.Pod):
		return PodAction{DeletePod: true, Err: beingDeleted("Pod", s.Pod.Name)} // evicted, for example
	}
	var a PodAction
	if s.Service == nil {
		a.CreateService = NewPodService(s.Challenge, s.ExtraLabels)
	}
	if s.Pod == nil {
		a.CreatePod = NewPod(s.Challenge, s.Pods, s.ExtraLabels)
	}
	return a
}

// ended reports whether a pod will never run again.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// cureOf says what helps a container that waits for a reason; empty if that is not known.
func cureOf(reason string) string {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerError", "RunContainerError", "CrashLoopBackOff":
		return "; set --acme-http01-solver-image to an image that the nodes can pull and whose entry point is chancery or acmesolver"
	}
	return ""
}

// Trouble says why a pod does not answer, as the scheduler and the kubelet report it; empty if it is ready, or if they
// report nothing.
func Trouble(p *corev1.Pod) string {
	is := func(t corev1.PodConditionType, s corev1.ConditionStatus) func(corev1.PodCondition) bool {
		return func(c corev1.PodCondition) bool { return c.Type == t && c.Status == s }
	}
	if slices.ContainsFunc(p.Status.Conditions, is(corev1.PodReady, corev1.ConditionTrue)) {
		return ""
	}
	if i := slices.IndexFunc(p.Status.Conditions, is(corev1.PodScheduled, corev1.ConditionFalse)); i >= 0 {
		return fmt.Sprintf("the pod %s has no node: %s", p.Name, p.Status.Conditions[i].Message)
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return fmt.Sprintf("the pod %s does not run yet: %s%s", p.Name, cmp.Or(w.Message, w.Reason), cureOf(w.Reason))
		}
	}
	return fmt.Sprintf("the pod %s is not ready yet: %s", p.Name, cmp.Or(string(p.Status.Phase), string(corev1.PodPending)))
}
