package provider

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
)

// plan is a field of the API as the name and variables of a provider program: pure data, before any Secret is read. The
// names and variables are those of lego (chancery-dns describe).
type plan struct {
	provider string
	// config are settings, secrets where each credential is.
	config  map[string]string
	secrets map[string]cmmeta.SecretKeySelector
	// allOf names a Secret all of whose entries are credentials.
	allOf string
	// ttl of records; 0 means that of the record.
	ttl int
	// ambient says that credentials of the machine are to be used.
	ambient bool
	// token asks for a service account's token.
	token *tokenPlan
}

// tokenPlan says whose token to ask for, and which variable takes it.
type tokenPlan struct {
	account   string
	audiences []string
	variable  string
}

// The TTLs of records that differ from the usual, in seconds (spec §5.9).
const (
	akamaiTTL  = 300
	route53TTL = 10
)

// awsAudience is the audience of a service account's token unless the Issuer says others.
const awsAudience = "sts.amazonaws.com"

// planOf maps a solver configuration that needs a program; nil if it needs none. mayAmbient says whether credentials of
// the machine may be used.
func planOf(c *acmev1.DNS01Solver, mayAmbient bool) (*plan, error) {
	p := &plan{config: map[string]string{}, secrets: map[string]cmmeta.SecretKeySelector{}}
	switch {
	case c.Akamai != nil:
		p.akamai(c.Akamai)
	case c.CloudDNS != nil:
		p.cloudDNS(c.CloudDNS)
	case c.Cloudflare != nil:
		p.cloudflare(c.Cloudflare)
	case c.Route53 != nil:
		if err := p.route53(c.Route53); err != nil {
			return nil, err
		}
	case c.AzureDNS != nil:
		if err := p.azureDNS(c.AzureDNS); err != nil {
			return nil, err
		}
	case c.DigitalOcean != nil:
		p.provider = "digitalocean"
		p.secret("DO_AUTH_TOKEN", &c.DigitalOcean.TokenSecretRef)
	case c.Exec != nil:
		p.provider, p.config, p.ambient = c.Exec.Name, c.Exec.Config, mayAmbient
		if c.Exec.SecretRef != nil {
			p.allOf = c.Exec.SecretRef.Name
		}
	default:
		return nil, nil //nolint:nilnil // built in, or none: the caller knows
	}
	if p.ambient && !mayAmbient {
		return nil, fault.Terminal(ReasonAmbient, "%s: the solver names no credentials, and this issuer may not use those of the controller: "+
			"name them, use a ClusterIssuer, or start the controller with --issuer-ambient-credentials", c.Provider())
	}
	return p, nil
}

// set adds a setting, if it has a value.
func (p *plan) set(variable, value string) {
	if value != "" {
		p.config[variable] = value
	}
}

// secret adds a credential, if there is a reference to one.
func (p *plan) secret(variable string, ref *cmmeta.SecretKeySelector) {
	if ref != nil && ref.Name != "" {
		p.secrets[variable] = *ref
	}
}

func (p *plan) akamai(c *acmev1.AkamaiProvider) {
	p.provider, p.ttl = "edgedns", akamaiTTL
	p.set("AKAMAI_HOST", strings.TrimSuffix(strings.TrimPrefix(c.ServiceConsumerDomain, "https://"), "/"))
	p.set("AKAMAI_TTL", strconv.Itoa(akamaiTTL))
	p.secret("AKAMAI_CLIENT_TOKEN", &c.ClientTokenSecretRef)
	p.secret("AKAMAI_CLIENT_SECRET", &c.ClientSecretSecretRef)
	p.secret("AKAMAI_ACCESS_TOKEN", &c.AccessTokenSecretRef)
}

func (p *plan) cloudDNS(c *acmev1.CloudDNSProvider) {
	p.provider = "gcloud"
	p.set("GCE_PROJECT", c.Project)
	p.set("GCE_ZONE_ID", c.HostedZoneName)
	p.secret("GCE_SERVICE_ACCOUNT", c.ServiceAccountSecretRef)
	p.ambient = len(p.secrets) == 0
}

func (p *plan) cloudflare(c *acmev1.CloudflareProvider) {
	p.provider = "cloudflare"
	if c.APITokenSecretRef == nil {
		p.set("CLOUDFLARE_EMAIL", c.Email)
	}
	p.secret("CLOUDFLARE_API_KEY", c.APIKeySecretRef)
	p.secret("CLOUDFLARE_DNS_API_TOKEN", c.APITokenSecretRef)
}

// awsRegion is the form of a region's name, which becomes part of the names of hosts.
var awsRegion = regexp.MustCompile(`^[a-z0-9-]*$`)

func (p *plan) route53(c *acmev1.Route53Provider) error {
	if !awsRegion.MatchString(c.Region) {
		return fault.Terminal(ReasonUnsupported, "route53: the region %q is none: use one such as eu-west-1", c.Region)
	}
	p.provider, p.ttl = "route53", route53TTL
	p.set("AWS_REGION", c.Region)
	p.set("AWS_HOSTED_ZONE_ID", c.HostedZoneID)
	p.set("AWS_ROLE_ARN", c.Role)
	if c.Auth != nil && c.Auth.Kubernetes != nil && c.Auth.Kubernetes.ServiceAccountRef != nil {
		ref := c.Auth.Kubernetes.ServiceAccountRef
		p.token = &tokenPlan{account: ref.Name, audiences: slices.Clone(ref.TokenAudiences), variable: "AWS_WEB_IDENTITY_TOKEN"}
		if len(p.token.audiences) == 0 {
			p.token.audiences = []string{awsAudience}
		}
		return nil
	}
	p.set("AWS_ACCESS_KEY_ID", c.AccessKeyID)
	p.secret("AWS_ACCESS_KEY_ID", c.AccessKeyIDSecretRef)
	p.secret("AWS_SECRET_ACCESS_KEY", &c.SecretAccessKeySecretRef)
	p.ambient = c.AccessKeyID == "" && len(p.secrets) == 0
	return nil
}

func (p *plan) azureDNS(c *acmev1.AzureDNSProvider) error {
	environments := map[acmev1.AzureDNSEnvironment]string{
		"": "public", acmev1.AzurePublicCloud: "public", acmev1.AzureChinaCloud: "china", acmev1.AzureUSGovernmentCloud: "usgovernment",
	}
	environment, ok := environments[c.Environment]
	if !ok {
		return fault.Terminal(ReasonUnsupported, "azureDNS: the environment %s no longer exists: set another", c.Environment)
	}
	p.provider = "azuredns"
	p.set("AZURE_ENVIRONMENT", environment)
	p.set("AZURE_SUBSCRIPTION_ID", c.SubscriptionID)
	p.set("AZURE_RESOURCE_GROUP", c.ResourceGroupName)
	p.set("AZURE_ZONE_NAME", c.HostedZoneName)
	if c.ZoneType == acmev1.AzurePrivateZone {
		p.set("AZURE_PRIVATE_ZONE", "true")
	}
	p.set("AZURE_CLIENT_ID", c.ClientID)
	p.set("AZURE_TENANT_ID", c.TenantID)
	p.secret("AZURE_CLIENT_SECRET", c.ClientSecretSecretRef)
	p.ambient = len(p.secrets) == 0
	if m := c.ManagedIdentity; m != nil && p.ambient {
		p.set("AZURE_CLIENT_ID", m.ClientID)
		p.set("AZURE_TENANT_ID", m.TenantID)
		p.set("AZURE_RESOURCE_ID", m.ResourceID)
	}
	return nil
}
