package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmmeta "chancery.dev/api/meta/v1"
)

// ACMEIssuer configures an account with an ACME server, and how names are proved to it.
// +kubebuilder:validation:XValidation:rule=`!has(self.caBundle) || !has(self.skipTLSVerify) || !self.skipTLSVerify`,message="caBundle and skipTLSVerify exclude each other: remove skipTLSVerify",fieldPath=".caBundle"
type ACMEIssuer struct {
	// Address of the ACME server's directory.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="acme.server: must not be empty: set the address of the server's directory"
	Server string `json:"server"`

	// Address that the server may write to about the account.
	// +optional
	Email string `json:"email,omitempty"`

	// Secret that holds the account's private key; made if it does not exist. The key defaults to
	// tls.key.
	// +kubebuilder:validation:XValidation:rule=`self.name != ""`,message="privateKeySecretRef.name: must not be empty: name the Secret that is to hold the account's key"
	PrivateKey cmmeta.SecretKeySelector `json:"privateKeySecretRef"`

	// Certificates, PEM encoded, that the server's own certificate is verified with. Excludes
	// skipTLSVerify.
	// +optional
	// +kubebuilder:validation:MaxLength=440000
	// +kubebuilder:validation:XValidation:rule=`string(self).contains('-----BEGIN CERTIFICATE-----')`,message="acme.caBundle: must hold certificates in PEM form"
	CABundle []byte `json:"caBundle,omitempty"`

	// Accept any certificate from the server. For tests only.
	// +optional
	SkipTLSVerify bool `json:"skipTLSVerify,omitempty"`

	// Common name of the issuer of the last certificate of the chain to prefer, where the server offers
	// several. A chain in a form that is not known, or that is still to come, is left out.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PreferredChain string `json:"preferredChain,omitempty"`

	// Certificate profile to ask for, one of those that the server's directory lists.
	// +optional
	Profile string `json:"profile,omitempty"`

	// Ask the server for the duration of the Certificate. Many servers refuse to be asked.
	// +optional
	EnableDurationFeature bool `json:"enableDurationFeature,omitempty"`

	// Do not make an account key: wait until the Secret exists.
	// +optional
	DisableAccountKeyGeneration bool `json:"disableAccountKeyGeneration,omitempty"`

	// Account outside ACME that the new account is bound to (RFC 8555 §7.3.4).
	// +optional
	ExternalAccountBinding *ACMEExternalAccountBinding `json:"externalAccountBinding,omitempty"`

	// Where the time of renewal comes from: ARI asks the server (RFC 9773), None does not.
	// +optional
	// +kubebuilder:default=ARI
	RenewalInformationSource RenewalInformationSource `json:"renewalInformationSource,omitempty"`

	// Ways of proving names. For each name the most specific match is taken. A CA that asks for no proof, since it knows
	// the owner of the names by the account, needs none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Solvers []ACMEChallengeSolver `json:"solvers,omitempty"`
}

// RenewalInformationSource says where the time of renewal comes from.
// +kubebuilder:validation:Enum=ARI;None
type RenewalInformationSource string

// The sources of renewal information.
const (
	RenewalInformationARI  RenewalInformationSource = "ARI"
	RenewalInformationNone RenewalInformationSource = "None"
)

// ACMEExternalAccountBinding binds an ACME account to one outside ACME (RFC 8555 §7.3.4).
type ACMEExternalAccountBinding struct {
	// Identifier of the key, as the server's operator gave it.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="externalAccountBinding.keyID: must not be empty: set the identifier that the server's operator gave you"
	KeyID string `json:"keyID"`

	// Secret that holds the key, in unpadded base64url.
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="externalAccountBinding.keySecretRef: set name and key of the Secret entry"
	KeySecretRef cmmeta.SecretKeySelector `json:"keySecretRef"`

	// Algorithm that the key is for; HS256 unless set. cert-manager takes HS256 whatever this says.
	// +optional
	KeyAlgorithm HMACKeyAlgorithm `json:"keyAlgorithm,omitempty"`
}

// HMACKeyAlgorithm names a MAC algorithm (RFC 7518 §3.1).
// +kubebuilder:validation:Enum=HS256;HS384;HS512
type HMACKeyAlgorithm string

// The MAC algorithms of an external account binding.
const (
	HS256 HMACKeyAlgorithm = "HS256"
	HS384 HMACKeyAlgorithm = "HS384"
	HS512 HMACKeyAlgorithm = "HS512"
)

// ACMEIssuerStatus says how the issuer is known to the ACME server.
type ACMEIssuerStatus struct {
	// URL of the account.
	// +optional
	URI string `json:"uri,omitempty"`

	// Address that the account was last registered with.
	// +optional
	LastRegisteredEmail string `json:"lastRegisteredEmail,omitempty"`

	// SHA-256 of the account key, in base64, when it was last registered.
	// +optional
	LastPrivateKeyHash string `json:"lastPrivateKeyHash,omitempty"`

	// Value of the annotation chancery.dev/rotate-account-key that the account key was last replaced
	// for; empty by default. An addition.
	// +optional
	LastKeyRotation string `json:"lastKeyRotation,omitempty"`

	// Last test of a solver, which the annotation chancery.dev/test-solver has asked for. An addition.
	// +optional
	SolverTest *ACMESolverTest `json:"solverTest,omitempty"`
}

// ACMESolverTest is a test of the solver that the issuer would prove a name with: a TXT record is written, looked for
// and removed, and no certificate is ordered. While the test runs, changes of the annotation wait.
type ACMESolverTest struct {
	// First word of the annotation: the same id is not tested again.
	ID string `json:"id"`

	// Name that the solver was chosen for; empty where the annotation has no usable name. There is no
	// Order, so solvers whose selector has matchLabels are not chosen.
	// +optional
	DNSName string `json:"dnsName,omitempty"`

	// Type of the challenges that the solver solves; empty where no solver was found.
	// +optional
	ChallengeType ACMEChallengeType `json:"challengeType,omitempty"`

	// Field of the dns01 solver that names the DNS provider, as in rfc2136, and for exec the program, too;
	// empty for other solvers.
	// +optional
	Provider string `json:"provider,omitempty"`

	// Running until the test is finished. Then Passed; Failed; NotApplicable where the solver writes no
	// record; or NoSolver where no solver of the issuer is for the name.
	Outcome ACMESolverTestOutcome `json:"outcome"`

	// Step that has failed; empty while the test runs, and where nothing has failed.
	// +optional
	Step ACMESolverTestStep `json:"step,omitempty"`

	// Outcome in words.
	// +optional
	Message string `json:"message,omitempty"`

	// Time when the test began.
	StartTime metav1.Time `json:"startTime"`

	// Time when the test ended; empty while the test runs.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// ACMESolverTestOutcome says how the test of a solver stands.
// +kubebuilder:validation:Enum=Running;Passed;Failed;NotApplicable;NoSolver
type ACMESolverTestOutcome string

// The outcomes of the test of a solver.
const (
	SolverTestRunning       ACMESolverTestOutcome = "Running"
	SolverTestPassed        ACMESolverTestOutcome = "Passed"
	SolverTestFailed        ACMESolverTestOutcome = "Failed"
	SolverTestNotApplicable ACMESolverTestOutcome = "NotApplicable"
	SolverTestNoSolver      ACMESolverTestOutcome = "NoSolver"
)

// ACMESolverTestStep is a step of the test of a solver.
// +kubebuilder:validation:Enum=Select;Zone;Present;Propagate;CleanUp
type ACMESolverTestStep string

// The steps of the test of a solver, in their order: the solver is chosen, the zone of the record is found, the record
// is written, the zone's servers show it, the record is removed.
const (
	SolverTestSelect    ACMESolverTestStep = "Select"
	SolverTestZone      ACMESolverTestStep = "Zone"
	SolverTestPresent   ACMESolverTestStep = "Present"
	SolverTestPropagate ACMESolverTestStep = "Propagate"
	SolverTestCleanUp   ACMESolverTestStep = "CleanUp"
)
