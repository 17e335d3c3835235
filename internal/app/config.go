// Package app assembles Chancery: it holds the configuration, and the one list that connects signers, solvers and
// reconcilers.
//
// `chancery controller`, chancery-standalone and the tests run this package. The package reads no flags and decides
// nothing about certificates: internal/cli reads the flags, and the packages in internal/machine decide.
package app

import (
	"maps"
	"net/netip"
	"time"

	"chancery.dev/api"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/controller/shims"
	"chancery.dev/internal/controller/trustbundles"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/install"
	"chancery.dev/internal/kube/servingcert"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/machine/service"
	"chancery.dev/internal/tracing"
)

// Config is what a user can set (spec §9.3). DefaultConfig has the defaults.
type Config struct {
	// ClusterResourceNamespace holds the Secrets of ClusterIssuers and the Orders of
	// CertificateSigningRequests for them.
	ClusterResourceNamespace string
	// Namespaces limits the controller to these namespaces, and switches off everything that is cluster-scoped; empty
	// means all.
	Namespaces []string
	// AdmissionNamespace holds the ConfigMaps that the admission policies read.
	AdmissionNamespace string
	// Scope limits the controller further; for tests. The zero value is everything.
	Scope controller.Scope

	// PodCertificates makes the controller sign PodCertificateRequests, by issuers that say so. TrustBundles says which
	// CA issuers may have their roots in ClusterTrustBundles.
	PodCertificates bool
	TrustBundles    trustbundles.Issuers
	// AcceptForeignCRDs lets the controller work with the definitions of others, which lack rules and fields of ours.
	AcceptForeignCRDs bool
	// LeaderElect lets only one of several replicas work, but for answers to challenges and the signatures for Pods.
	LeaderElect             bool
	LeaderElectionNamespace string
	Election

	// MetricsAddress and HealthAddress are host:port to serve /metrics and /livez on; "0" serves none.
	MetricsAddress string
	HealthAddress  string
	// MetricsTLS is how /metrics is served over TLS.
	MetricsTLS MetricsTLS

	// ProfilerAddress is host:port to serve Go's profiles on; empty serves none.
	ProfilerAddress string

	// Tracing says where the traces of issuances go; without an Endpoint, nowhere.
	Tracing tracing.Options

	// WaitsAddress is where the list of waits is served: a loopback host:port, unix: and a path, or empty for nowhere.
	WaitsAddress string

	// Workers is how many objects of a kind are reconciled at once.
	Workers int
	// Backoff bounds the wait after a failed issuance.
	Backoff certificate.Backoff
	// CopiedAnnotationPrefixes chooses what CertificateRequests inherit.
	CopiedAnnotationPrefixes []string
	// EnableCertificateOwnerRef makes each Certificate the owner of its target Secret.
	EnableCertificateOwnerRef bool
	// HeadStart delays the reading of Ingresses, objects of the Gateway API and CertificateSigningRequests at a start,
	// after everything else is read: the other controllers do not wait for these objects.
	HeadStart time.Duration
	// Shims says which objects ask for Certificates by annotations.
	Shims shims.Options
	// StepEvents emits an event for each step of an issuance, as cert-manager does.
	StepEvents bool
	// AutoApprove lets the built-in approver approve CertificateRequests.
	AutoApprove bool
	// ApproveSigners limits the built-in approver to requests of these signers.
	ApproveSigners request.SignerPatterns
	// CSRApprovers says who approves each form of CertificateSigningRequest; for a form without an entry,
	// DefaultApprover does, or nobody if AutoApprove is false.
	CSRApprovers map[request.Form]request.Approver
	// CSRMachineGroups are the groups of nodes and bootstrap tokens whose CertificateSigningRequests are approved like
	// those of users. The requests of nodes and bootstrap tokens of other groups wait for the consent of a person.
	CSRMachineGroups []string

	// Ambient says who may use the controller's own credentials.
	Ambient AmbientConfig

	// ACME configures Orders and Challenges.
	ACME ACMEConfig

	// KeepKinds makes the controller keep the table of the kinds of external issuers, which the approval policy reads.
	// A cluster has one such table.
	KeepKinds bool
	// Injection configures the CA injector.
	Injection InjectionConfig

	// IssuerEgress says which addresses are permitted for the hosts that Issuers name, and for self checks.
	IssuerEgress EgressConfig

	// Unmet are switches that the user has set and that change nothing here; New names them in one line of the log.
	Unmet []string
	// off are cert-manager's names of the controllers that do not run: see SwitchOff.
	off []string

	// UserAgent is what CAs and other servers outside the cluster are told: the program
	// and its version (RFC 8555 §6.1).
	UserAgent string

	// Now is the clock; nil is the machine's.
	Now func() time.Time
	// Clock, for tests, is a clock that everything waits by too; it replaces Now.
	Clock controller.Clock
}

// Election are the times of the lease. LeaseDuration is how long the other replicas wait for a leader that does not
// renew the lease, RenewDeadline how long the leader acts without a renewal, RetryPeriod how often the leader renews.
type Election struct{ LeaseDuration, RenewDeadline, RetryPeriod time.Duration }

// DefaultElection lets another replica lead within 18 seconds after the leader's node died: the lease runs out after 15
// seconds. A replica that may not watch the lease reads it every RetryPeriod, and sees the last renewal so much later.
func DefaultElection() Election { return Election{15 * time.Second, 10 * time.Second, 3 * time.Second} }

// OriginalElection are the defaults of spec §9.3. A user who sets one of these times gets the other two from here.
func OriginalElection() Election {
	return Election{60 * time.Second, 40 * time.Second, 15 * time.Second}
}

// AmbientConfig says which issuers may use the credentials that the controller finds in
// its own surroundings: those of its machine, or of its service account at a cloud.
type AmbientConfig struct {
	Issuers, ClusterIssuers bool
}

// DefaultConfig returns the defaults of spec §9.3, but for the Election: see DefaultElection.
func DefaultConfig() Config {
	return Config{
		ClusterResourceNamespace: "cert-manager",
		AdmissionNamespace:       api.ExternalIssuersNamespace,
		UserAgent:                "chancery",
		LeaderElect:              true,
		LeaderElectionNamespace:  "kube-system",
		Election:                 DefaultElection(),
		MetricsAddress:           "0.0.0.0:9402",
		MetricsTLS:               MetricsTLS{Dynamic: DynamicServing{Life: servingcert.DefaultLife}},
		HealthAddress:            "0.0.0.0:9403",
		WaitsAddress:             "127.0.0.1:9412",
		Workers:                  5,
		Backoff:                  certificate.DefaultBackoff(),
		CopiedAnnotationPrefixes: certificate.DefaultAnnotationFilter(),
		HeadStart:                time.Second,
		Shims:                    shims.DefaultOptions(),
		AutoApprove:              true,
		KeepKinds:                true,
		ApproveSigners:           request.SignerPatterns{"*"},
		CSRApprovers:             map[request.Form]request.Approver{},
		Ambient:                  AmbientConfig{ClusterIssuers: true},
		ACME:                     DefaultACMEConfig(),
		Injection:                InjectionConfig{Certificates: true, Injectables: defaultInjectables()},
	}
}

// DefaultApprover says who approves requests of a form by default.
func DefaultApprover(form request.Form) request.Approver {
	if form == request.FormCertificateRequest || form == request.FormCSR {
		return request.ApproveAuto
	}
	return request.ApproveExternal
}

// setClock sets Now to that of the Clock, or of the machine.
func (c *Config) setClock() {
	if c.Clock != nil {
		c.Now = c.Clock.Now
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

func (c *Config) settings() controller.Settings {
	approvers := map[request.Form]request.Approver{}
	for form := request.FormCertificateRequest; form <= request.FormCSRClusterIssuer; form++ {
		approvers[form] = request.ApproveExternal
		if c.AutoApprove && c.runs(ControllerApprover) {
			approvers[form] = DefaultApprover(form)
		}
	}
	maps.Copy(approvers, c.CSRApprovers)
	return controller.Settings{
		ClusterResourceNamespace:  c.ClusterResourceNamespace,
		Workers:                   c.Workers,
		Backoff:                   c.Backoff,
		CopiedAnnotations:         c.CopiedAnnotationPrefixes,
		Approvers:                 approvers,
		MachineGroups:             c.CSRMachineGroups,
		ApproveSigners:            c.ApproveSigners,
		Unsigned:                  c.unsigned(),
		StepEvents:                c.StepEvents,
		EnableCertificateOwnerRef: c.EnableCertificateOwnerRef,
	}
}

// findResponder names the responder of a controller that nobody has told of one (ACMEConfig.HTTP01Responder).
func (c *Config) findResponder() {
	own := c.ClusterResourceNamespace + "/" + install.ResponderName
	if len(c.Namespaces) > 0 {
		own = c.Namespaces[0] + "/" + install.ResponderName
	}
	switch responder := c.ACME.HTTP01Responder; {
	case c.ACME.HTTP01Pods.Mode == service.ModePod && (responder == "" || responder == ResponderNone):
		c.ACME.HTTP01Responder = own // there are routes, and none leads there
	case responder != "":
	case c.ACME.HTTP01Address != "":
		c.ACME.HTTP01Responder = ResponderNone
	default:
		c.ACME.HTTP01Responder = own
	}
}

// scope is the user's and the caller's limits together.
func (c *Config) scope() controller.Scope {
	s := c.Scope
	if len(c.Namespaces) > 0 {
		s.Namespaces, s.NamespacedOnly = c.Namespaces, true
	}
	return s
}

// EgressConfig is what a user can set of egress.Policy.
type EgressConfig struct{ Allow, Deny []netip.Prefix }

// AllowLoopback allows this machine's own addresses beside those that are allowed by default. It is for a process on
// the user's own machine, and for tests.
func (c *EgressConfig) AllowLoopback() {
	for _, text := range []string{"0.0.0.0/0", "::/0", "127.0.0.0/8", "::1/128"} {
		c.Allow = append(c.Allow, netip.MustParsePrefix(text))
	}
}

func (c *EgressConfig) policy() *egress.Policy { return egress.New(c.Allow, c.Deny) }
