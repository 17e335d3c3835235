package service

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/rig/golden"
)

func podSettings() Pods {
	return Pods{
		Mode: ModeAuto, Image: "registry.test/acmesolver:v1", RunAsNonRoot: true, RuntimeClassName: "gvisor",
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
	}
}

func solvedBy(s *acmev1.HTTP01Solver) *acmev1.Challenge {
	return &acmev1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "challenge"},
		Spec: acmev1.ChallengeSpec{
			DNSName: "www.example.com", Token: "token", Key: "token.key", Solver: acmev1.ACMEChallengeSolver{HTTP01: s},
		},
	}
}

// wholeTemplate has every field of a podTemplate.
const wholeTemplate = `
metadata:
  labels: {acme.cert-manager.io/http01-solver: overridden, team: web}
  annotations: {sidecar.istio.io/inject: "true", note: x}
spec:
  nodeSelector: {zone: a}
  affinity: {nodeAffinity: {}}
  tolerations: [{key: dedicated, operator: Exists}]
  priorityClassName: low
  serviceAccountName: solver
  imagePullSecrets: [{name: registry}]
  securityContext:
    seLinuxOptions: {level: s0}
    runAsUser: 1000
    runAsGroup: 1001
    runAsNonRoot: false
    supplementalGroups: [1002]
    fsGroup: 1003
    sysctls: [{name: net.core.somaxconn, value: "1"}]
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: Unconfined}
  resources:
    limits: {memory: 128Mi}
    requests: {cpu: 20m, ephemeral-storage: 1Mi}
`

// TestNewPod shows the pod and the Service of a Challenge, without a podTemplate and with a whole one.
func TestNewPod(t *testing.T) {
	template := &acmev1.SolverPodTemplate{}
	if err := yaml.UnmarshalStrict([]byte(wholeTemplate), template); err != nil {
		t.Fatal(err)
	}
	extra := map[string]string{"team": "ops", acmev1.HTTP01SolverLabel: "overridden"}
	var out strings.Builder
	for _, s := range []*acmev1.HTTP01Solver{
		{Ingress: &acmev1.HTTP01IngressSolver{}},
		{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{PodTemplate: template, ServiceType: corev1.ServiceTypeClusterIP}},
	} {
		c, settings := solvedBy(s), podSettings()
		for _, object := range []any{NewPod(c, settings, extra), NewPodService(c, extra)} {
			text, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "---\n%s", text)
		}
		if again := podSettings(); fmt.Sprint(settings) != fmt.Sprint(again) {
			t.Error("a podTemplate has changed the settings")
		}
	}
	golden.Check(t, "pod.yaml", out.String())
}

// TestMode says which Challenges a pod of its own answers.
func TestMode(t *testing.T) {
	plain := &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}
	byIngress := &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{PodTemplate: &acmev1.SolverPodTemplate{}}}
	byRoute := &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{PodTemplate: &acmev1.SolverPodTemplate{}}}
	for mode, want := range map[Mode][3]bool{ModeAuto: {false, true, true}, ModeResponder: {}, "": {}, ModePod: {true, true, true}} {
		for i, s := range []*acmev1.HTTP01Solver{plain, byIngress, byRoute} {
			pods := Pods{Mode: mode}
			if got := pods.Answer(s); got != want[i] {
				t.Errorf("mode %q, solver %d: %t", mode, i, got)
			}
			if own := pods.Of(solvedBy(s)).Name == ObjectName("challenge"); own != want[i] {
				t.Errorf("mode %q, solver %d leads to a Service of its own: %t", mode, i, own)
			}
		}
	}
}

func podActions(a PodAction) string {
	var words []string
	if a.CreateService != nil {
		words = append(words, "create the Service")
	}
	if a.CreatePod != nil {
		words = append(words, "create the pod")
	}
	if a.DeletePod {
		words = append(words, "delete the pod")
	}
	if a.DeleteService {
		words = append(words, "delete the Service")
	}
	if a.Err != nil {
		words = append(words, a.Err.Error())
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// TestDecidePodTable is exhaustive over what there is of the Service and of the pod.
func TestDecidePodTable(t *testing.T) {
	c := solvedBy(&acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}})
	meta := func(change func(*metav1.ObjectMeta)) func(*PodState, bool) {
		return func(s *PodState, pod bool) {
			if pod {
				s.Pod = NewPod(c, podSettings(), nil)
				change(&s.Pod.ObjectMeta)
				return
			}
			s.Service = NewPodService(c, nil)
			change(&s.Service.ObjectMeta)
		}
	}
	there := []struct {
		name string
		set  func(s *PodState, pod bool)
	}{
		{"absent", func(*PodState, bool) {}},
		{"ours", meta(func(*metav1.ObjectMeta) {})},
		{"being deleted", meta(func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &metav1.Time{Time: now} })},
		{"somebody else's", meta(func(m *metav1.ObjectMeta) { m.OwnerReferences = nil })},
		{"failed", func(s *PodState, pod bool) {
			if pod {
				s.Pod = NewPod(c, podSettings(), nil)
				s.Pod.Status.Phase = corev1.PodFailed
			}
		}},
	}
	var out strings.Builder
	for _, over := range []bool{false, true} {
		for _, service := range there[:4] {
			for _, pod := range there {
				s := PodState{Challenge: c, Over: over, Pods: podSettings()}
				service.set(&s, false)
				pod.set(&s, true)
				a := DecidePod(s)
				fmt.Fprintf(&out, "over %t, Service %s, pod %s: %s\n", over, service.name, pod.name, podActions(a))
				if a.CreatePod != nil && s.Service == nil && a.CreateService == nil || a.DeleteService && s.Pod != nil && service.name == pod.name && !a.DeletePod && pod.name == "ours" {
					t.Errorf("the pod is there without its Service: %s", podActions(a))
				}
			}
		}
	}
	golden.Check(t, "pod_decide.txt", out.String())
}

// TestTrouble tells of a pod what its node and the scheduler report.
func TestTrouble(t *testing.T) {
	pod := func(s corev1.PodStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: s}
	}
	waiting := func(w corev1.ContainerStateWaiting) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &w}}}
	}
	const cure = "; set --acme-http01-solver-image to an image that the nodes can pull and whose entry point is chancery or acmesolver"
	for want, s := range map[string]corev1.PodStatus{
		"": {Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		"the pod p has no node: 0/3 nodes are available": {
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}},
		},
		"the pod p does not run yet: Back-off pulling" + cure: {ContainerStatuses: waiting(corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling"})},
		"the pod p does not run yet: ErrImagePull" + cure:     {ContainerStatuses: waiting(corev1.ContainerStateWaiting{Reason: "ErrImagePull"})},
		"the pod p does not run yet: ContainerCreating":       {ContainerStatuses: waiting(corev1.ContainerStateWaiting{Reason: "ContainerCreating"})},
		"the pod p is not ready yet: Pending":                 {},
		"the pod p is not ready yet: Running":                 {Phase: corev1.PodRunning},
	} {
		if got := Trouble(pod(s)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
