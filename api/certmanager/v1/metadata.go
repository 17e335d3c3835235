package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Labels of Secrets (spec appendix A).
const (
	// ManagedSecretLabel marks Secrets that the controller keeps in full in its cache.
	ManagedSecretLabel = "controller.cert-manager.io/fao"
	// NextPrivateKeyLabel marks a Secret that holds the key of an issuance under way.
	NextPrivateKeyLabel = "cert-manager.io/next-private-key"
	// LabelTrue is the value of both.
	LabelTrue = "true"
)

// Annotations that tie requests, Secrets and Certificates together (spec appendix A). Those that name an
// issuer or a name are on the Secret of a Certificate, and are read from an Ingress or Gateway too.
const (
	CertificateNameAnnotation       = "cert-manager.io/certificate-name"
	CertificateRevisionAnnotation   = "cert-manager.io/certificate-revision"
	PrivateKeySecretNameAnnotation  = "cert-manager.io/private-key-secret-name"
	IssueTemporaryAnnotation        = "cert-manager.io/issue-temporary-certificate"
	AllowDirectInjectionAnnotation  = "cert-manager.io/allow-direct-injection"
	IssuerNameAnnotation            = "cert-manager.io/issuer-name"
	IssuerKindAnnotation            = "cert-manager.io/issuer-kind"
	IssuerGroupAnnotation           = "cert-manager.io/issuer-group"
	CommonNameAnnotation            = "cert-manager.io/common-name"
	AltNamesAnnotation              = "cert-manager.io/alt-names"
	IPSANsAnnotation                = "cert-manager.io/ip-sans"
	URISANsAnnotation               = "cert-manager.io/uri-sans"
	EmailSANsAnnotation             = "cert-manager.io/email-sans"
	OrganizationsAnnotation         = "cert-manager.io/subject-organizations"
	OrganizationalUnitsAnnotation   = "cert-manager.io/subject-organizationalunits"
	CountriesAnnotation             = "cert-manager.io/subject-countries"
	ProvincesAnnotation             = "cert-manager.io/subject-provinces"
	LocalitiesAnnotation            = "cert-manager.io/subject-localities"
	PostalCodesAnnotation           = "cert-manager.io/subject-postalcodes"
	StreetAddressesAnnotation       = "cert-manager.io/subject-streetaddresses"
	SubjectSerialNumberAnnotation   = "cert-manager.io/subject-serialnumber"
	VenafiCustomFieldsAnnotation    = "venafi.cert-manager.io/custom-fields"
	VenafiPickupIDAnnotation        = "venafi.cert-manager.io/pickup-id"
	CSRDurationAnnotation           = "experimental.cert-manager.io/request-duration"
	CSRIsCAAnnotation               = "experimental.cert-manager.io/request-is-ca"
	CSRPrivateKeyAnnotation         = "experimental.cert-manager.io/private-key-secret-name"
	CSRVenafiCustomFieldsAnnotation = "venafi.experimental.cert-manager.io/custom-fields"
	CSRVenafiPickupIDAnnotation     = "venafi.experimental.cert-manager.io/pickup-id"
)

// Annotations of a webhook configuration, an APIService or a CustomResourceDefinition that ask for a CA bundle
// (spec §7).
const (
	InjectCAFromSecretAnnotation    = "cert-manager.io/inject-ca-from-secret"
	InjectCAFromAnnotation          = "cert-manager.io/inject-ca-from"
	InjectAPIServerCAAnnotation     = "cert-manager.io/inject-apiserver-ca"
	InjectAPIServerCAAnnotationTrue = "true"
)

// ClampValidityAnnotation is our own: "true" on a CA Issuer or ClusterIssuer has no certificate end after the CA's.
const ClampValidityAnnotation = "chancery.dev/clamp-validity"

// DeliverRootsAnnotation is our own: "true" on a CA Issuer or ClusterIssuer makes Chancery deliver older roots in
// ca.crt, after the root, and in tls.crt the link certificates (RFC 4210 §4.4) by which clients with an older root
// accept what the new root has signed. Both are in ca.crt of the issuer's Secret. If that Secret is a Certificate's,
// Chancery puts them there when the Certificate gets a new key.
const DeliverRootsAnnotation = "chancery.dev/deliver-roots"

// DeliversRoots reports whether an issuer has DeliverRootsAnnotation, or TrustBundleAnnotation: Pods read their roots
// and their certificates at different times.
func DeliversRoots(issuer metav1.Object) bool {
	return issuer.GetAnnotations()[DeliverRootsAnnotation] == LabelTrue || WantsTrustBundle(issuer)
}

// TrustBundleAnnotation is our own: "true" on a CA Issuer or ClusterIssuer makes Chancery write the roots of the CA
// into a ClusterTrustBundle (certificates.k8s.io) for each signer name of the issuer. It means DeliverRootsAnnotation,
// too.
const TrustBundleAnnotation = "chancery.dev/trust-bundle"

// TrustBundleLabel marks the ClusterTrustBundles that Chancery writes, with LabelTrue.
const TrustBundleLabel = TrustBundleAnnotation

// WantsTrustBundle reports whether an issuer has TrustBundleAnnotation.
func WantsTrustBundle(issuer metav1.Object) bool {
	return issuer.GetAnnotations()[TrustBundleAnnotation] == LabelTrue
}

// ReissueNowAnnotation is our own: "true" on a CA Issuer or ClusterIssuer makes Chancery renew all certificates of an
// earlier CA at once, as long as the annotation is there. Older roots and links are not delivered meanwhile, and leave
// the Secret of a CA that a Certificate owns: their keys may be stolen.
const ReissueNowAnnotation = "chancery.dev/reissue-now"

// ReissuesNow reports whether an issuer has ReissueNowAnnotation.
func ReissuesNow(issuer metav1.Object) bool {
	return issuer.GetAnnotations()[ReissueNowAnnotation] == LabelTrue
}

// Annotations of a CA or Vault issuer that signs PodCertificateRequests. They are our own.
const (
	// PodCertificatesAnnotation makes the issuer sign for Pods. Its value is the trust domain of the SPIFFE IDs, such as
	// prod.example.com: two clusters that have one CA need different ones. The issuer signs nothing else then, because
	// anybody who may ask it for a certificate could name a Pod of somebody else.
	PodCertificatesAnnotation = "chancery.dev/pod-certificates"
	// PodCertificatesSharedAnnotation, if it is "true", lets the issuer sign for others than Pods, too.
	PodCertificatesSharedAnnotation = "chancery.dev/pod-certificates-shared"
	// PodCertificatesForAnnotation, if it is "all", lets every ServiceAccount have certificates. Without it, a
	// ServiceAccount needs the verb request on the signer.
	PodCertificatesForAnnotation = "chancery.dev/pod-certificates-for"
	// PodCertificatesDurationAnnotation is the longest lifetime, from 1h to 2184h (91 days), as a duration; 24h without
	// it. A certificate is valid for more than 24h only if a volume of the Pod asks for it.
	PodCertificatesDurationAnnotation = "chancery.dev/pod-certificates-duration"
	// PodCertificatesClusterDomainAnnotation is the DNS domain of the cluster; cluster.local without it.
	PodCertificatesClusterDomainAnnotation = "chancery.dev/pod-certificates-cluster-domain"
)

// PodServicesAnnotation is our own, of a podCertificate volume (userAnnotations): names of Services of the namespace,
// with commas between them. The certificate has their DNS names if they select the Pod.
const PodServicesAnnotation = "chancery.dev/services"

// ForPodsOnly reports whether an issuer signs for Pods, and for nobody else.
func ForPodsOnly(issuer metav1.Object) bool {
	annotations := issuer.GetAnnotations()
	_, pods := annotations[PodCertificatesAnnotation]
	return pods && annotations[PodCertificatesSharedAnnotation] != LabelTrue
}

// DropOldCAsAfterAnnotation is our own: on an object that a CA bundle is injected into, it says how long a CA stays in
// the bundle that has left its source, as a duration such as 24h. Without it, a CA stays until it has expired.
const DropOldCAsAfterAnnotation = "chancery.dev/drop-old-cas-after"

// OldCAsAnnotation is our own: the injector writes down there which CAs of a bundle have left the source, and when it
// found that. It is there only beside DropOldCAsAfterAnnotation.
const OldCAsAnnotation = "chancery.dev/old-cas"

// Annotations of an Ingress or Gateway that ask for a Certificate (spec §6).
const (
	IngressIssuerAnnotation               = "cert-manager.io/issuer"
	IngressClusterIssuerAnnotation        = "cert-manager.io/cluster-issuer"
	IngressTLSACMEAnnotation              = "kubernetes.io/tls-acme"
	IngressDurationAnnotation             = "cert-manager.io/duration"
	IngressRenewBeforeAnnotation          = "cert-manager.io/renew-before"
	IngressRenewBeforePercentAnnotation   = "cert-manager.io/renew-before-percentage"
	IngressUsagesAnnotation               = "cert-manager.io/usages"
	IngressRevisionHistoryLimitAnnotation = "cert-manager.io/revision-history-limit"
	IngressKeyAlgorithmAnnotation         = "cert-manager.io/private-key-algorithm"
	IngressKeyEncodingAnnotation          = "cert-manager.io/private-key-encoding"
	IngressKeySizeAnnotation              = "cert-manager.io/private-key-size"
	IngressKeyRotationPolicyAnnotation    = "cert-manager.io/private-key-rotation-policy"
	IngressSecretTemplateAnnotation       = "cert-manager.io/secret-template"
	GatewayIgnoreListenersAnnotation      = "cert-manager.io/ignore-tls-listeners"
)

// Keys of a certificate's Secret beside those of kubernetes.io/tls (spec §2.4).
const (
	PKCS12KeystoreKey   = "keystore.p12"
	PKCS12TruststoreKey = "truststore.p12"
	JKSKeystoreKey      = "keystore.jks"
	JKSTruststoreKey    = "truststore.jks"
	DERKeyKey           = "key.der"
	CombinedPEMKey      = "tls-combined.pem"
)
