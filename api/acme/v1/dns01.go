package v1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	cmmeta "chancery.dev/api/meta/v1"
)

// CNAMEStrategy says what to do where the challenge's record is a CNAME.
// +kubebuilder:validation:Enum=None;Follow
type CNAMEStrategy string

// The CNAME strategies. Empty means None.
const (
	CNAMEStrategyNone   CNAMEStrategy = "None"
	CNAMEStrategyFollow CNAMEStrategy = "Follow"
)

// DNS01Solver writes the TXT record of a DNS-01 challenge (RFC 8555 §8.4) through exactly one provider.
// +kubebuilder:validation:XValidation:rule=`[has(self.akamai), has(self.cloudDNS), has(self.cloudflare), has(self.route53), has(self.azureDNS), has(self.digitalocean), has(self.acmeDNS), has(self.rfc2136), has(self.webhook), has(self.exec)].filter(x, x).size() == 1`,message="dns01: exactly one provider must be set: one of akamai, cloudDNS, cloudflare, route53, azureDNS, digitalocean, acmeDNS, rfc2136, webhook and exec"
type DNS01Solver struct {
	// What to do where the challenge's record is a CNAME: Follow writes the record at its target.
	// +optional
	CNAMEStrategy CNAMEStrategy `json:"cnameStrategy,omitempty"`

	// Servers that are asked whether the record can be seen, in place of the zone's authoritative ones:
	// host:port, or the https address of a DNS over HTTPS server.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=192
	// +kubebuilder:validation:XValidation:rule=`self.all(n, n.matches(r'^(https://.+|(\[[0-9A-Fa-f:.]+\]|[^\]\[:/\s]+):[0-9]{1,5})$'))`,message="nameservers: every entry must be host:port, as in 1.1.1.1:53, or the https address of a DNS over HTTPS server"
	Nameservers []string `json:"nameservers,omitempty"`

	// Prove names by DNS-ACCOUNT-01 (draft-ietf-acme-dns-account-label) in place of DNS-01: the record's
	// name begins with a label of the issuer's ACME account, so that several accounts, and clusters, prove
	// one name at the same time, and each can have a CNAME of its own. Where the ACME server does not offer
	// it, this solver is passed over. False if unset.
	// +optional
	AccountLabel bool `json:"accountLabel,omitempty"`

	// Akamai Edge DNS.
	// +optional
	Akamai *AkamaiProvider `json:"akamai,omitempty"`

	// Google Cloud DNS.
	// +optional
	CloudDNS *CloudDNSProvider `json:"cloudDNS,omitempty"`

	// Cloudflare.
	// +optional
	Cloudflare *CloudflareProvider `json:"cloudflare,omitempty"`

	// Amazon Route 53.
	// +optional
	Route53 *Route53Provider `json:"route53,omitempty"`

	// Azure DNS.
	// +optional
	AzureDNS *AzureDNSProvider `json:"azureDNS,omitempty"`

	// DigitalOcean DNS.
	// +optional
	DigitalOcean *DigitalOceanProvider `json:"digitalocean,omitempty"`

	// acme-dns.
	// +optional
	AcmeDNS *AcmeDNSProvider `json:"acmeDNS,omitempty"`

	// Dynamic update (RFC 2136) of any nameserver that supports it.
	// +optional
	RFC2136 *RFC2136Provider `json:"rfc2136,omitempty"`

	// Webhook solver: an aggregated API in the cluster, or an HTTPS server.
	// +optional
	Webhook *WebhookProvider `json:"webhook,omitempty"`

	// Any other provider, by a program that the operator has installed. An addition of Chancery's. In
	// an Issuer it works only where the operator allows it.
	// +optional
	Exec *ExecProvider `json:"exec,omitempty"`
}

// Provider returns the field of the provider that is set, as users write it, and for exec the name of the program, too.
// It is empty if none is set.
func (s *DNS01Solver) Provider() string {
	switch {
	case s.Akamai != nil:
		return "akamai"
	case s.CloudDNS != nil:
		return "cloudDNS"
	case s.Cloudflare != nil:
		return "cloudflare"
	case s.Route53 != nil:
		return "route53"
	case s.AzureDNS != nil:
		return "azureDNS"
	case s.DigitalOcean != nil:
		return "digitalocean"
	case s.AcmeDNS != nil:
		return "acmeDNS"
	case s.RFC2136 != nil:
		return "rfc2136"
	case s.Webhook != nil:
		return "webhook"
	case s.Exec != nil:
		return "exec " + s.Exec.Name
	default:
		return ""
	}
}

// AkamaiProvider reaches Akamai Edge DNS.
type AkamaiProvider struct {
	// Host of the API for the client.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="akamai.serviceConsumerDomain: must not be empty: set the host of the API"
	ServiceConsumerDomain string `json:"serviceConsumerDomain"`

	// Secret that holds the client token.
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="akamai.clientTokenSecretRef: set name and key of the Secret entry"
	ClientTokenSecretRef cmmeta.SecretKeySelector `json:"clientTokenSecretRef"`

	// Secret that holds the client secret.
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="akamai.clientSecretSecretRef: set name and key of the Secret entry"
	ClientSecretSecretRef cmmeta.SecretKeySelector `json:"clientSecretSecretRef"`

	// Secret that holds the access token.
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="akamai.accessTokenSecretRef: set name and key of the Secret entry"
	AccessTokenSecretRef cmmeta.SecretKeySelector `json:"accessTokenSecretRef"`
}

// CloudDNSProvider reaches Google Cloud DNS.
type CloudDNSProvider struct {
	// Project of the zone.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="cloudDNS.project: must not be empty: name the project of the zone"
	Project string `json:"project"`

	// Secret that holds the service account's JSON key. Without it, ambient credentials are used.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="cloudDNS.serviceAccountSecretRef: set name and key of the Secret entry"
	ServiceAccountSecretRef *cmmeta.SecretKeySelector `json:"serviceAccountSecretRef,omitempty"`

	// Name of the managed zone. Without it, the zone is looked up.
	// +optional
	HostedZoneName string `json:"hostedZoneName,omitempty"`
}

// CloudflareProvider reaches Cloudflare with exactly one of an API token and an API key.
// +kubebuilder:validation:XValidation:rule=`has(self.apiKeySecretRef) != has(self.apiTokenSecretRef)`,message="cloudflare: exactly one of apiTokenSecretRef and apiKeySecretRef must be set"
// +kubebuilder:validation:XValidation:rule=`!has(self.apiKeySecretRef) || has(self.email) && self.email != ""`,message="cloudflare.email: must be set with apiKeySecretRef; better use an API token"
type CloudflareProvider struct {
	// Address of the account. Needed with an API key only.
	// +optional
	Email string `json:"email,omitempty"`

	// Secret that holds the global API key.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="cloudflare.apiKeySecretRef: set name and key of the Secret entry"
	APIKeySecretRef *cmmeta.SecretKeySelector `json:"apiKeySecretRef,omitempty"`

	// Secret that holds an API token. Preferred.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="cloudflare.apiTokenSecretRef: set name and key of the Secret entry"
	APITokenSecretRef *cmmeta.SecretKeySelector `json:"apiTokenSecretRef,omitempty"`
}

// Route53Provider reaches Amazon Route 53. Without keys and auth, ambient credentials are used.
// +kubebuilder:validation:XValidation:rule=`!(has(self.accessKeyID) && self.accessKeyID != "") || !has(self.accessKeyIDSecretRef)`,message="route53: accessKeyID and accessKeyIDSecretRef exclude each other: remove one"
type Route53Provider struct {
	// Region that signs requests.
	// +optional
	Region string `json:"region,omitempty"`

	// Identifier of the hosted zone. Without it, the zone is looked up.
	// +optional
	HostedZoneID string `json:"hostedZoneID,omitempty"`

	// Role to assume.
	// +optional
	Role string `json:"role,omitempty"`

	// Access key id. Excludes accessKeyIDSecretRef.
	// +optional
	AccessKeyID string `json:"accessKeyID,omitempty"`

	// Secret that holds the access key id.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="route53.accessKeyIDSecretRef: set name and key of the Secret entry"
	AccessKeyIDSecretRef *cmmeta.SecretKeySelector `json:"accessKeyIDSecretRef,omitempty"`

	// Secret that holds the secret access key.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name == "" || has(self.key) && self.key != ""`,message="route53.secretAccessKeySecretRef: set name and key of the Secret entry"
	SecretAccessKeySecretRef cmmeta.SecretKeySelector `json:"secretAccessKeySecretRef,omitzero"`

	// How to authenticate without keys.
	// +optional
	Auth *Route53Auth `json:"auth,omitempty"`
}

// Route53Auth authenticates to AWS without keys.
type Route53Auth struct {
	// Exchange a service account's token for AWS credentials (AssumeRoleWithWebIdentity).
	Kubernetes *Route53KubernetesAuth `json:"kubernetes"`
}

// Route53KubernetesAuth exchanges a service account's token for AWS credentials.
type Route53KubernetesAuth struct {
	// Service account whose token is exchanged.
	ServiceAccountRef *ServiceAccountRef `json:"serviceAccountRef"`
}

// ServiceAccountRef names a service account, and the audiences of the token asked for it.
// +kubebuilder:validation:XValidation:rule=`self.name != ""`,message="serviceAccountRef.name: must not be empty"
type ServiceAccountRef struct {
	// Name of the service account.
	Name string `json:"name"`

	// Audiences of the token. Without any, the provider's default.
	// +optional
	// +listType=atomic
	TokenAudiences []string `json:"audiences,omitempty"`
}

// AzureDNSProvider reaches Azure DNS. Without any credentials, ambient ones are used.
// +kubebuilder:validation:XValidation:rule=`(has(self.clientID) && self.clientID != "") == (has(self.tenantID) && self.tenantID != "") && (has(self.tenantID) && self.tenantID != "") == has(self.clientSecretSecretRef)`,message="azureDNS: clientID, clientSecretSecretRef and tenantID belong together: set all three, or none to use a managed or workload identity"
// +kubebuilder:validation:XValidation:rule=`!has(self.managedIdentity) || !((has(self.clientID) && self.clientID != "") || (has(self.tenantID) && self.tenantID != "") || has(self.clientSecretSecretRef))`,message="azureDNS.managedIdentity: excludes clientID, clientSecretSecretRef and tenantID"
type AzureDNSProvider struct {
	// Subscription of the zone.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="azureDNS.subscriptionID: must not be empty: set the subscription of the zone"
	SubscriptionID string `json:"subscriptionID"`

	// Resource group of the zone.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="azureDNS.resourceGroupName: must not be empty: set the resource group of the zone"
	ResourceGroupName string `json:"resourceGroupName"`

	// Name of the zone. Without it, the zone is looked up.
	// +optional
	HostedZoneName string `json:"hostedZoneName,omitempty"`

	// Azure cloud. Empty means AzurePublicCloud.
	// +optional
	Environment AzureDNSEnvironment `json:"environment,omitempty"`

	// Client id of a service principal. Needs clientSecretSecretRef and tenantID.
	// +optional
	ClientID string `json:"clientID,omitempty"`

	// Secret that holds the service principal's secret. Needs clientID and tenantID.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="azureDNS.clientSecretSecretRef: set name and key of the Secret entry"
	ClientSecretSecretRef *cmmeta.SecretKeySelector `json:"clientSecretSecretRef,omitempty"`

	// Tenant of the service principal. Needs clientID and clientSecretSecretRef.
	// +optional
	TenantID string `json:"tenantID,omitempty"`

	// Managed identity to use. Excludes the service principal.
	// +optional
	ManagedIdentity *AzureManagedIdentity `json:"managedIdentity,omitempty"`

	// Whether the zone is public or private. Empty means AzurePublicZone.
	// +optional
	ZoneType AzureZoneType `json:"zoneType,omitempty"`
}

// AzureDNSEnvironment names an Azure cloud.
// +kubebuilder:validation:Enum=AzurePublicCloud;AzureChinaCloud;AzureGermanCloud;AzureUSGovernmentCloud
type AzureDNSEnvironment string

// The Azure clouds. AzureGermanCloud is accepted, but no longer exists.
const (
	AzurePublicCloud       AzureDNSEnvironment = "AzurePublicCloud"
	AzureChinaCloud        AzureDNSEnvironment = "AzureChinaCloud"
	AzureGermanCloud       AzureDNSEnvironment = "AzureGermanCloud"
	AzureUSGovernmentCloud AzureDNSEnvironment = "AzureUSGovernmentCloud"
)

// AzureZoneType says whether an Azure DNS zone is public or private.
// +kubebuilder:validation:Enum=AzurePublicZone;AzurePrivateZone
type AzureZoneType string

// The types of Azure DNS zones.
const (
	AzurePublicZone  AzureZoneType = "AzurePublicZone"
	AzurePrivateZone AzureZoneType = "AzurePrivateZone"
)

// AzureManagedIdentity selects a managed identity: by client id, or by resource id.
// +kubebuilder:validation:XValidation:rule=`!(has(self.clientID) && self.clientID != "") || !(has(self.resourceID) && self.resourceID != "")`,message="managedIdentity: clientID and resourceID exclude each other: remove one"
// +kubebuilder:validation:XValidation:rule=`!(has(self.tenantID) && self.tenantID != "") || (has(self.clientID) && self.clientID != "")`,message="managedIdentity.tenantID: needs clientID, and cannot be used with resourceID"
type AzureManagedIdentity struct {
	// Client id of the identity. Excludes resourceID.
	// +optional
	ClientID string `json:"clientID,omitempty"`

	// Resource id of the identity. Excludes clientID and tenantID.
	// +optional
	ResourceID string `json:"resourceID,omitempty"`

	// Tenant of the identity. Needs clientID.
	// +optional
	TenantID string `json:"tenantID,omitempty"`
}

// DigitalOceanProvider reaches DigitalOcean DNS.
type DigitalOceanProvider struct {
	// Secret that holds the access token.
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="digitalocean.tokenSecretRef: set name and key of the Secret entry"
	TokenSecretRef cmmeta.SecretKeySelector `json:"tokenSecretRef"`
}

// AcmeDNSProvider reaches an acme-dns server.
type AcmeDNSProvider struct {
	// Address of the server.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="acmeDNS.host: must not be empty: set the address of the server"
	Host string `json:"host"`

	// Secret that holds the accounts: a JSON object of them by name.
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="acmeDNS.accountSecretRef: set name and key of the Secret entry"
	AccountSecretRef cmmeta.SecretKeySelector `json:"accountSecretRef"`
}

// RFC2136Provider updates a nameserver dynamically (RFC 2136), signed by TSIG (RFC 8945) where a key is
// given.
// +kubebuilder:validation:XValidation:rule=`(has(self.tsigKeyName) && self.tsigKeyName != "") == (has(self.tsigSecretSecretRef) && self.tsigSecretSecretRef.name != "")`,message="rfc2136: tsigKeyName and tsigSecretSecretRef belong together: set both or none"
type RFC2136Provider struct {
	// Address of the primary nameserver: an IP address with an optional port, 53 by default. IPv6
	// addresses with a port stand in brackets.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\[[^\]]+\]|[^\[\]:]+)(:[0-9]{1,5})?$') && isIP(self.startsWith('[') ? self.substring(1).split(']')[0] : self.split(':')[0])`,message="rfc2136.nameserver: must be an IP address with an optional port, as in 192.0.2.1:53 or [2001:db8::1]:53"
	Nameserver string `json:"nameserver"`

	// Secret that holds the TSIG key. Needs tsigKeyName.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name == "" || has(self.key) && self.key != ""`,message="rfc2136.tsigSecretSecretRef: set name and key of the Secret entry"
	TSIGSecretSecretRef cmmeta.SecretKeySelector `json:"tsigSecretSecretRef,omitzero"`

	// Name of the TSIG key. Needs tsigSecretSecretRef.
	// +optional
	TSIGKeyName string `json:"tsigKeyName,omitempty"`

	// Algorithm of the TSIG key: HMACMD5 (the default), HMACSHA1, HMACSHA256 or HMACSHA512.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.upperAscii() in ["", 'HMACMD5', 'HMACSHA1', 'HMACSHA256', 'HMACSHA512']`,message="rfc2136.tsigAlgorithm: must be one of HMACMD5, HMACSHA1, HMACSHA256 and HMACSHA512"
	TSIGAlgorithm string `json:"tsigAlgorithm,omitempty"`

	// Transport of updates. Empty means UDP.
	// +optional
	Protocol RFC2136UpdateProtocol `json:"protocol,omitempty"`
}

// RFC2136UpdateProtocol is the transport of dynamic updates.
// +kubebuilder:validation:Enum=TCP;UDP
type RFC2136UpdateProtocol string

// The transports of dynamic updates.
const (
	RFC2136TCP RFC2136UpdateProtocol = "TCP"
	RFC2136UDP RFC2136UpdateProtocol = "UDP"
)

// WebhookProvider reaches a webhook solver: an aggregated API in the cluster, by groupName and solverName,
// or any HTTPS server, by url.
// +kubebuilder:validation:XValidation:rule=`has(self.url) ? !has(self.groupName) && !has(self.solverName) : has(self.groupName) && has(self.solverName)`,message="webhook: set either groupName and solverName, for an aggregated API, or url, for an HTTPS server"
// +kubebuilder:validation:XValidation:rule=`has(self.url) || !has(self.caBundle) && !has(self.caBundleSecretRef) && !has(self.clientCertificateSecretRef)`,message="webhook: caBundle, caBundleSecretRef and clientCertificateSecretRef need url"
// +kubebuilder:validation:XValidation:rule=`!has(self.caBundle) || !has(self.caBundleSecretRef)`,message="webhook: caBundle and caBundleSecretRef exclude each other"
type WebhookProvider struct {
	// API group that the webhook serves. Needs solverName.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="webhook.groupName: must not be empty: set the API group that the webhook serves"
	GroupName string `json:"groupName,omitempty"`

	// Name of the solver in that group. Needs groupName.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="webhook.solverName: must not be empty: name the solver"
	SolverName string `json:"solverName,omitempty"`

	// HTTPS address that is sent the same ChallengePayload, by POST, without an aggregated API. Excludes
	// groupName and solverName. An addition of Chancery's. In an Issuer it works only where the operator
	// allows it.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^https://[^\s/?#@]+([/?][^\s#]*)?$')`,message="webhook.url: must be an https address without a user, as in https://dns.example.com/challenge"
	URL string `json:"url,omitempty"`

	// Certificates, PEM encoded, that the certificate of the server at url is verified with; those of the
	// controller's machine by default. Excludes caBundleSecretRef.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule=`string(self).contains('-----BEGIN CERTIFICATE-----')`,message="webhook.caBundle: must hold certificates in PEM form"
	CABundle []byte `json:"caBundle,omitempty"`

	// Secret that holds the certificates that the certificate of the server at url is verified with. The
	// key defaults to ca.crt. Excludes caBundle.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name != ""`,message="webhook.caBundleSecretRef.name: must not be empty"
	CABundleSecretRef *cmmeta.SecretKeySelector `json:"caBundleSecretRef,omitempty"`

	// Secret of type kubernetes.io/tls with the certificate and key to show to the server at url (mTLS).
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name != ""`,message="webhook.clientCertificateSecretRef.name: must not be empty"
	ClientCertificateSecretRef *cmmeta.LocalObjectReference `json:"clientCertificateSecretRef,omitempty"`

	// Configuration that is handed to the webhook as it stands. Do not put secrets in it.
	// +optional
	Config *apiextensionsv1.JSON `json:"config,omitempty"`
}

// ExecProvider reaches a DNS provider by a program that the operator has installed.
type ExecProvider struct {
	// Name of the provider, such as hetzner: "chancery-dns list" prints those that come with Chancery.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,message="exec.name: must be the name of a provider, in lower case, such as hetzner"
	Name string `json:"name"`

	// Settings that are no secrets, by name: "chancery-dns describe" prints those of a provider.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Config map[string]string `json:"config,omitempty"`

	// Secret whose entries are the credentials, by name.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name != ""`,message="exec.secretRef.name: must not be empty"
	SecretRef *cmmeta.LocalObjectReference `json:"secretRef,omitempty"`
}
