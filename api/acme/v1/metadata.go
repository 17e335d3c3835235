package v1

// Finalizers of a Challenge (spec appendix A).
const (
	// ChallengeFinalizer keeps a Challenge until what its solver presented has been cleaned up.
	ChallengeFinalizer = "acme.cert-manager.io/finalizer"
	// ChallengeFinalizerLegacy is an older name that stored Challenges may still carry.
	ChallengeFinalizerLegacy = "finalizer.acme.cert-manager.io"
)

// Annotations on Certificates, CertificateRequests and Orders that change the HTTP-01 solver of their
// Challenges (spec §5.5).
const (
	OverrideIngressNameAnnotation      = "acme.cert-manager.io/http01-override-ingress-name"
	OverrideIngressClassAnnotation     = "acme.cert-manager.io/http01-override-ingress-class"
	OverrideIngressClassNameAnnotation = "acme.cert-manager.io/http01-override-ingress-ingressclassname"
	ParentRefNameAnnotation            = "acme.cert-manager.io/http01-parentrefname"
	ParentRefKindAnnotation            = "acme.cert-manager.io/http01-parentrefkind"
	ParentRefNamespaceAnnotation       = "acme.cert-manager.io/http01-parentrefnamespace"
)

// ProfileAnnotation is our own: on a Certificate, CertificateRequest or
// CertificateSigningRequest it takes the place of the issuer's profile for this one
// certificate. Empty leaves the profile to the CA. It travels from a Certificate to its
// next request with the other annotations that are copied; to change it issues nothing.
const ProfileAnnotation = "chancery.dev/acme-profile"

// RotateAccountKeyAnnotation is our own: on an Issuer or ClusterIssuer, a value that differs
// from the last one asks for the ACME account's key to be replaced, once.
const RotateAccountKeyAnnotation = "chancery.dev/rotate-account-key"

// OrdersPerNamespaceAnnotation is our own: on an Issuer or ClusterIssuer, how many new orders each namespace may make
// with its account in a window of time, such as 50/3h.
const OrdersPerNamespaceAnnotation = "chancery.dev/orders-per-namespace"

// AccountKeyRotationAnnotation is our own: on the Secret with an account's key, the value
// that the key was last replaced for, or is being replaced for.
const AccountKeyRotationAnnotation = "chancery.dev/account-key-rotation"

// Annotations on Ingresses and Gateways that the shim reads (spec §6.4).
const (
	HTTP01EditInPlaceAnnotation       = "acme.cert-manager.io/http01-edit-in-place"
	HTTP01IngressClassAnnotation      = "acme.cert-manager.io/http01-ingress-class"
	HTTP01IngressClassNameAnnotation  = "acme.cert-manager.io/http01-ingress-ingressclassname"
	HTTP01ParentRefFallbackAnnotation = "acme.cert-manager.io/http01-parentreffallback"
)

// Labels on what an HTTP-01 solver makes (spec §5.8). The first two hold decimal Adler-32 sums.
const (
	DomainLabel       = "acme.cert-manager.io/http-domain"
	TokenLabel        = "acme.cert-manager.io/http-token"
	HTTP01SolverLabel = "acme.cert-manager.io/http01-solver"
)

// Annotations and a name prefix on what an HTTP-01 solver makes (spec §5.8).
const (
	IstioInjectAnnotation            = "sidecar.istio.io/inject"
	SafeToEvictAnnotation            = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	IstioMTLSAnnotation              = "auth.istio.io/8089"
	WhitelistSourceRangeAnnotation   = "nginx.ingress.kubernetes.io/whitelist-source-range"
	IngressClassAnnotation           = "kubernetes.io/ingress.class"
	SolverGenerateName               = "cm-acme-http-solver-"
	HTTP01SolverLabelValue           = "true"
	WhitelistSourceRangeAnyAddresses = "0.0.0.0/0,::/0"
)

// Reasons of the events of Orders and Challenges (spec appendix B).
const (
	OrderReasonCreated  = "Created"
	OrderReasonComplete = "Complete"
	OrderReasonSolver   = "Solver"

	ChallengeReasonStarted        = "Started"
	ChallengeReasonPresented      = "Presented"
	ChallengeReasonPresentError   = "PresentError"
	ChallengeReasonCleanUpError   = "CleanUpError"
	ChallengeReasonDomainVerified = "DomainVerified"
	ChallengeReasonFailed         = "Failed"
	ChallengeReasonRecordExpires  = "RecordExpires"

	ChallengeReasonSelfCheckDeadline = "SelfCheckDeadline"
	ChallengeReasonCleanUpAbandoned  = "CleanUpAbandoned"
)
