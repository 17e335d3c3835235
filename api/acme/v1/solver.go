package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ACMEChallengeSolver says which names it is for and how it proves them: exactly one of http01,
// dns01, dnsPersist01 and tlsALPN01.
// +kubebuilder:validation:XValidation:rule=`[has(self.http01), has(self.dns01), has(self.dnsPersist01), has(self.tlsALPN01)].filter(x, x).size() == 1`,message="exactly one of http01, dns01, dnsPersist01 and tlsALPN01 must be set"
// +kubebuilder:validation:XValidation:rule=`!has(self.waitInsteadOfSelfCheck) || !has(self.settleTime) && !has(self.selfCheckDeadline)`,message="settleTime and selfCheckDeadline: have no effect without a self check: leave them out, or waitInsteadOfSelfCheck"
type ACMEChallengeSolver struct {
	// Names that the solver is for. Without a selector: all that no other solver selects.
	// +optional
	Selector *CertificateDNSNameSelector `json:"selector,omitempty"`

	// Prove names by answering an HTTP request.
	// +optional
	HTTP01 *HTTP01Solver `json:"http01,omitempty"`

	// Prove names by a TXT record.
	// +optional
	DNS01 *DNS01Solver `json:"dns01,omitempty"`

	// Prove names by a TXT record that somebody else has put there, to stay: nothing is written, and no
	// credentials are needed.
	// +optional
	DNSPersist01 *DNSPersist01Solver `json:"dnsPersist01,omitempty"`

	// Prove names by answering a TLS handshake on port 443. Nothing routes it: that the protocol acme-tls/1
	// of the names reaches the responder is up to a load balancer or a TLSRoute of yours.
	// +optional
	TLSALPN01 *TLSALPN01Solver `json:"tlsALPN01,omitempty"`

	// Do not check that the challenge can be seen: ask the ACME server to validate this long after it
	// was presented.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self == '0' || self.matches(r'^([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$')`,message="waitInsteadOfSelfCheck: must not be negative, written as in 30s or 2m"
	WaitInsteadOfSelfCheck *metav1.Duration `json:"waitInsteadOfSelfCheck,omitempty"`

	// How long to wait, after the self check has passed, before the ACME server is asked to validate:
	// its servers may see the answer later. Default: 0s, and longer, up to 2m, where that was too soon.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self == '0' || self.matches(r'^([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$')`,message="settleTime: must not be negative, written as in 30s or 2m"
	SettleTime *metav1.Duration `json:"settleTime,omitempty"`

	// What to do once the self check has failed for long. Unset: it is tried again until the ACME server
	// gives the authorization up.
	// +optional
	SelfCheckDeadline *SelfCheckDeadline `json:"selfCheckDeadline,omitempty"`
}

// SelfCheckDeadline says what to do once the self check of a challenge has failed for long.
type SelfCheckDeadline struct {
	// How long after the challenge was presented (status.presentedAt), at least 1s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s')`,message="selfCheckDeadline.after: must be at least 1s, written as in 90s or 10m"
	After metav1.Duration `json:"after"`

	// Accept: ask the ACME server to validate all the same. Fail: end the challenge, with a reason that
	// says what the self check saw last.
	Then SelfCheckDeadlineAction `json:"then"`
}

// SelfCheckDeadlineAction is what happens at a SelfCheckDeadline.
// +kubebuilder:validation:Enum=Accept;Fail
type SelfCheckDeadlineAction string

// The actions at a SelfCheckDeadline.
const (
	SelfCheckDeadlineAccept SelfCheckDeadlineAction = "Accept"
	SelfCheckDeadlineFail   SelfCheckDeadlineAction = "Fail"
)

// CertificateDNSNameSelector selects names. All parts that are set have to match.
type CertificateDNSNameSelector struct {
	// Labels that the Certificate must have.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// Names that match exactly. A wildcard must be listed as such.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	DNSNames []string `json:"dnsNames,omitempty"`

	// Zones whose names match. The longest match wins over shorter ones.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	DNSZones []string `json:"dnsZones,omitempty"`
}

// TLSALPN01Solver answers TLS-ALPN-01 challenges (RFC 8737, for IP addresses RFC 8738). There is nothing to
// configure.
type TLSALPN01Solver struct{}

// HTTP01Solver answers HTTP-01 challenges (RFC 8555 §8.3) through exactly one kind of route.
// +kubebuilder:validation:XValidation:rule=`has(self.ingress) != has(self.gatewayHTTPRoute)`,message="http01: exactly one of ingress and gatewayHTTPRoute must be set"
type HTTP01Solver struct {
	// Route requests by an Ingress.
	// +optional
	Ingress *HTTP01IngressSolver `json:"ingress,omitempty"`

	// Route requests by a Gateway API HTTPRoute.
	// +optional
	GatewayHTTPRoute *HTTP01GatewaySolver `json:"gatewayHTTPRoute,omitempty"`
}

// HTTP01IngressSolver routes HTTP-01 requests by an Ingress. At most one of class, ingressClassName and
// name may be set.
// +kubebuilder:validation:XValidation:rule=`[has(self.class) && self.class != "", has(self.ingressClassName) && self.ingressClassName != "", has(self.name) && self.name != ""].filter(x, x).size() <= 1`,message="http01.ingress: at most one of class, ingressClassName and name may be set"
type HTTP01IngressSolver struct {
	// Class of the Ingress, set by the older annotation kubernetes.io/ingress.class.
	// +optional
	Class *string `json:"class,omitempty"`

	// Class of the Ingress, set by its field ingressClassName.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="ingressClassName: must be a DNS subdomain, such as nginx"
	IngressClassName *string `json:"ingressClassName,omitempty"`

	// Existing Ingress to edit in place of making one.
	// +optional
	Name string `json:"name,omitempty"`

	// Type of the Service that is made. Empty means NodePort.
	// +optional
	// +kubebuilder:validation:Enum="";ClusterIP;NodePort
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`

	// Changes to the Pod that answers, where one is made.
	// +optional
	PodTemplate *SolverPodTemplate `json:"podTemplate,omitempty"`

	// Changes to the Ingress that is made.
	// +optional
	IngressTemplate *SolverIngressTemplate `json:"ingressTemplate,omitempty"`
}

// HTTP01GatewaySolver routes HTTP-01 requests by a Gateway API HTTPRoute.
type HTTP01GatewaySolver struct {
	// Labels of the HTTPRoute that is made.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Gateways that the HTTPRoute attaches to. May be left to annotations of the Certificate.
	// +optional
	// +listType=atomic
	ParentRefs []gwapiv1.ParentReference `json:"parentRefs,omitempty"`

	// Type of the Service that is made. Empty means NodePort.
	// +optional
	// +kubebuilder:validation:Enum="";ClusterIP;NodePort
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`

	// Changes to the Pod that answers, where one is made.
	// +optional
	PodTemplate *SolverPodTemplate `json:"podTemplate,omitempty"`
}

// SolverIngressTemplate changes the Ingress that an HTTP-01 solver makes.
type SolverIngressTemplate struct {
	// Metadata to add.
	// +optional
	Metadata SolverObjectMeta `json:"metadata,omitzero"`
}

// SolverObjectMeta is metadata to add to an object that a solver makes.
type SolverObjectMeta struct {
	// Annotations to add.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// Labels to add.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// SolverPodTemplate changes the Pod that answers HTTP-01 requests.
type SolverPodTemplate struct {
	// Metadata to add.
	// +optional
	Metadata SolverObjectMeta `json:"metadata,omitzero"`

	// Fields to set.
	// +optional
	Spec SolverPodSpec `json:"spec,omitzero"`
}

// SolverPodSpec is the part of a Pod that may be changed.
type SolverPodSpec struct {
	// Labels of the nodes that the Pod may run on.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Scheduling constraints.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Taints that the Pod tolerates.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Priority class.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Service account.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Secrets to pull images with.
	// +optional
	// +listType=atomic
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// Security attributes. They replace the default ones as a whole.
	// +optional
	SecurityContext *SolverPodSecurityContext `json:"securityContext,omitempty"`

	// Compute resources. Each entry replaces the default one.
	// +optional
	Resources *SolverPodResources `json:"resources,omitempty"`
}

// SolverPodResources is the compute resources of the Pod that answers HTTP-01 requests.
type SolverPodResources struct {
	// Most that the Pod may use.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`

	// Least that the Pod needs.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// SolverPodSecurityContext is the security attributes of the Pod that answers HTTP-01 requests.
type SolverPodSecurityContext struct {
	// SELinux context.
	// +optional
	SELinuxOptions *corev1.SELinuxOptions `json:"seLinuxOptions,omitempty"`

	// User id of the process.
	// +optional
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// Group id of the process.
	// +optional
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`

	// Refuse to run as root.
	// +optional
	RunAsNonRoot *bool `json:"runAsNonRoot,omitempty"`

	// Further groups of the process.
	// +optional
	// +listType=atomic
	SupplementalGroups []int64 `json:"supplementalGroups,omitempty"`

	// Group that owns volumes.
	// +optional
	FSGroup *int64 `json:"fsGroup,omitempty"`

	// Kernel parameters.
	// +optional
	// +listType=atomic
	Sysctls []corev1.Sysctl `json:"sysctls,omitempty"`

	// When the ownership of volumes is changed.
	// +optional
	FSGroupChangePolicy *corev1.PodFSGroupChangePolicy `json:"fsGroupChangePolicy,omitempty"`

	// Seccomp profile.
	// +optional
	SeccompProfile *corev1.SeccompProfile `json:"seccompProfile,omitempty"`
}
