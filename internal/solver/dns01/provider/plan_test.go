package provider

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
)

func ref(name string) cmmeta.SecretKeySelector {
	return cmmeta.SecretKeySelector{Name: name, Key: "key-of-" + name}
}

func refTo(name string) *cmmeta.SecretKeySelector {
	r := ref(name)
	return &r
}

type (
	settings = map[string]string
	refs     = map[string]cmmeta.SecretKeySelector
)

// Every field of every typed provider (spec §1.3.1), and what it comes to.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name string
		spec acmev1.DNS01Solver
		want plan
	}{
		{"akamai", acmev1.DNS01Solver{Akamai: &acmev1.AkamaiProvider{
			ServiceConsumerDomain: "https://akab.luna.akamaiapis.net/", ClientTokenSecretRef: ref("ct"), ClientSecretSecretRef: ref("cs"), AccessTokenSecretRef: ref("at"),
		}}, plan{
			provider: "edgedns", ttl: 300, config: settings{"AKAMAI_HOST": "akab.luna.akamaiapis.net", "AKAMAI_TTL": "300"},
			secrets: refs{"AKAMAI_CLIENT_TOKEN": ref("ct"), "AKAMAI_CLIENT_SECRET": ref("cs"), "AKAMAI_ACCESS_TOKEN": ref("at")},
		}},
		{"cloudDNS", acmev1.DNS01Solver{CloudDNS: &acmev1.CloudDNSProvider{Project: "p", HostedZoneName: "zone", ServiceAccountSecretRef: refTo("sa")}}, plan{
			provider: "gcloud", config: settings{"GCE_PROJECT": "p", "GCE_ZONE_ID": "zone"}, secrets: refs{"GCE_SERVICE_ACCOUNT": ref("sa")},
		}},
		{"cloudDNS ambient", acmev1.DNS01Solver{CloudDNS: &acmev1.CloudDNSProvider{Project: "p"}}, plan{
			provider: "gcloud", config: settings{"GCE_PROJECT": "p"}, secrets: refs{}, ambient: true,
		}},
		{"cloudflare by token", acmev1.DNS01Solver{Cloudflare: &acmev1.CloudflareProvider{Email: "me@example.com", APITokenSecretRef: refTo("token")}}, plan{
			provider: "cloudflare", config: settings{}, secrets: refs{"CLOUDFLARE_DNS_API_TOKEN": ref("token")},
		}},
		{"cloudflare by key", acmev1.DNS01Solver{Cloudflare: &acmev1.CloudflareProvider{Email: "me@example.com", APIKeySecretRef: refTo("key")}}, plan{
			provider: "cloudflare", config: settings{"CLOUDFLARE_EMAIL": "me@example.com"}, secrets: refs{"CLOUDFLARE_API_KEY": ref("key")},
		}},
		{"digitalocean", acmev1.DNS01Solver{DigitalOcean: &acmev1.DigitalOceanProvider{TokenSecretRef: ref("token")}}, plan{
			provider: "digitalocean", config: settings{}, secrets: refs{"DO_AUTH_TOKEN": ref("token")},
		}},
		{"route53 by keys", acmev1.DNS01Solver{Route53: &acmev1.Route53Provider{
			Region: "eu-west-1", HostedZoneID: "Z1", AccessKeyID: "AKIA", SecretAccessKeySecretRef: ref("secret"),
		}}, plan{
			provider: "route53", ttl: 10, secrets: refs{"AWS_SECRET_ACCESS_KEY": ref("secret")},
			config: settings{"AWS_REGION": "eu-west-1", "AWS_HOSTED_ZONE_ID": "Z1", "AWS_ACCESS_KEY_ID": "AKIA"},
		}},
		{"route53 by keys in Secrets, and a role", acmev1.DNS01Solver{Route53: &acmev1.Route53Provider{
			Role: "arn:role", AccessKeyIDSecretRef: refTo("id"), SecretAccessKeySecretRef: ref("secret"),
		}}, plan{
			provider: "route53", ttl: 10, config: settings{"AWS_ROLE_ARN": "arn:role"},
			secrets: refs{"AWS_ACCESS_KEY_ID": ref("id"), "AWS_SECRET_ACCESS_KEY": ref("secret")},
		}},
		{"route53 ambient, and a role", acmev1.DNS01Solver{Route53: &acmev1.Route53Provider{Region: "r", Role: "arn:role"}}, plan{
			provider: "route53", ttl: 10, config: settings{"AWS_REGION": "r", "AWS_ROLE_ARN": "arn:role"}, secrets: refs{}, ambient: true,
		}},
		{"route53 by web identity", acmev1.DNS01Solver{Route53: webIdentity()}, plan{
			provider: "route53", ttl: 10, config: settings{"AWS_REGION": "r", "AWS_ROLE_ARN": "arn:role"}, secrets: refs{},
			token: &tokenPlan{"dns", []string{"sts.amazonaws.com"}, "AWS_WEB_IDENTITY_TOKEN"},
		}},
		{"route53 by web identity with audiences", acmev1.DNS01Solver{Route53: webIdentity("one", "two")}, plan{
			provider: "route53", ttl: 10, config: settings{"AWS_REGION": "r", "AWS_ROLE_ARN": "arn:role"}, secrets: refs{},
			token: &tokenPlan{"dns", []string{"one", "two"}, "AWS_WEB_IDENTITY_TOKEN"},
		}},
		{"azureDNS by service principal", acmev1.DNS01Solver{AzureDNS: &acmev1.AzureDNSProvider{
			SubscriptionID: "s", ResourceGroupName: "g", HostedZoneName: "example.com", Environment: acmev1.AzureUSGovernmentCloud, ZoneType: acmev1.AzurePrivateZone,
			ClientID: "c", TenantID: "t", ClientSecretSecretRef: refTo("secret"),
		}}, plan{
			provider: "azuredns", secrets: refs{"AZURE_CLIENT_SECRET": ref("secret")},
			config: settings{
				"AZURE_SUBSCRIPTION_ID": "s", "AZURE_RESOURCE_GROUP": "g", "AZURE_ZONE_NAME": "example.com", "AZURE_ENVIRONMENT": "usgovernment",
				"AZURE_PRIVATE_ZONE": "true", "AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t",
			},
		}},
		{"azureDNS by managed identity", acmev1.DNS01Solver{AzureDNS: &acmev1.AzureDNSProvider{
			SubscriptionID: "s", ResourceGroupName: "g", ZoneType: acmev1.AzurePublicZone, Environment: acmev1.AzureChinaCloud,
			ManagedIdentity: &acmev1.AzureManagedIdentity{ClientID: "c", TenantID: "t", ResourceID: "r"},
		}}, plan{provider: "azuredns", secrets: refs{}, ambient: true, config: settings{
			"AZURE_SUBSCRIPTION_ID": "s", "AZURE_RESOURCE_GROUP": "g", "AZURE_ENVIRONMENT": "china",
			"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t", "AZURE_RESOURCE_ID": "r",
		}}},
		{"azureDNS ambient", acmev1.DNS01Solver{AzureDNS: &acmev1.AzureDNSProvider{SubscriptionID: "s", ResourceGroupName: "g"}}, plan{
			provider: "azuredns", secrets: refs{}, ambient: true,
			config: settings{"AZURE_SUBSCRIPTION_ID": "s", "AZURE_RESOURCE_GROUP": "g", "AZURE_ENVIRONMENT": "public"},
		}},
		{"exec", acmev1.DNS01Solver{Exec: &acmev1.ExecProvider{Name: "hetzner", Config: settings{"A": "b"}, SecretRef: &cmmeta.LocalObjectReference{Name: "s"}}}, plan{
			provider: "hetzner", config: settings{"A": "b"}, secrets: refs{}, allOf: "s", ambient: true,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := planOf(&c.spec, true)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got, cmp.AllowUnexported(plan{}, tokenPlan{})); diff != "" {
				t.Error(diff)
			}
			got, err = planOf(&c.spec, false)
			switch f := fault.Of(err); {
			case c.spec.Exec != nil: // what it does without credentials is for the program to say
				if err != nil || got.ambient {
					t.Errorf("without ambient credentials: %+v, %v", got, err)
				}
			case c.want.ambient && (f == nil || f.Kind != fault.KindTerminal || f.Reason != ReasonAmbient):
				t.Errorf("it has no credentials and may not use the controller's, but: %+v, %v", got, err)
			case !c.want.ambient && err != nil:
				t.Errorf("it needs no ambient credentials, but: %v", err)
			}
		})
	}
}

func webIdentity(audiences ...string) *acmev1.Route53Provider {
	return &acmev1.Route53Provider{Region: "r", Role: "arn:role", Auth: &acmev1.Route53Auth{Kubernetes: &acmev1.Route53KubernetesAuth{
		ServiceAccountRef: &acmev1.ServiceAccountRef{Name: "dns", TokenAudiences: audiences},
	}}}
}

func TestPlanOfNone(t *testing.T) {
	if p, err := planOf(&acmev1.DNS01Solver{}, true); p != nil || err != nil {
		t.Errorf("a solver without provider: %+v, %v", p, err)
	}
	german := &acmev1.DNS01Solver{AzureDNS: &acmev1.AzureDNSProvider{Environment: acmev1.AzureGermanCloud}}
	if _, err := planOf(german, true); !fault.IsTerminal(err) {
		t.Errorf("AzureGermanCloud: %v, want a terminal fault", err)
	}
}
