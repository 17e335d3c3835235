package catalog

// native are the providers of the API's typed fields that are written here, in place of
// lego's: those keep other values of a name, need no memory of what they presented,
// and succeed when there is nothing to clean up (spec §5.9). akamai is lego's edgedns,
// which does.
func native() []Entry {
	return []Entry{
		{
			Name: "route53", Title: "Amazon Route 53", URL: "https://aws.amazon.com/route53/",
			Credentials: map[string]string{
				"AWS_ACCESS_KEY_ID": "Access key id", "AWS_SECRET_ACCESS_KEY": "Secret access key", "AWS_SESSION_TOKEN": "Session token of temporary keys",
				"AWS_WEB_IDENTITY_TOKEN": "Token to exchange for credentials of AWS_ROLE_ARN",
			},
			Settings: map[string]string{
				"AWS_REGION": "Region that signs requests (default: us-east-1)", "AWS_HOSTED_ZONE_ID": "Hosted zone, in place of looking for it",
				"AWS_ROLE_ARN": "Role to assume", "AWS_EXTERNAL_ID": "External id for assuming the role",
			},
		},
		{
			Name: "cloudflare", Title: "Cloudflare", URL: "https://www.cloudflare.com/",
			Credentials: map[string]string{
				"CLOUDFLARE_DNS_API_TOKEN": "API token with Zone:Read and DNS:Edit", "CLOUDFLARE_EMAIL": "Address of the account, with an API key",
				"CLOUDFLARE_API_KEY": "Global API key",
			},
		},
		{
			Name: "digitalocean", Title: "DigitalOcean", URL: "https://www.digitalocean.com/docs/networking/dns/",
			Credentials: map[string]string{"DO_AUTH_TOKEN": "API token"},
		},
		{
			Name: "gcloud", Title: "Google Cloud DNS", URL: "https://cloud.google.com/dns",
			Credentials: map[string]string{"GCE_SERVICE_ACCOUNT": "JSON key of the service account; without it, ambient credentials"},
			Settings: map[string]string{
				"GCE_PROJECT": "Project of the zone", "GCE_ZONE_ID": "Name of the managed zone, in place of looking for it",
			},
		},
		{
			Name: "azuredns", Aliases: []string{"azure"}, Title: "Azure DNS", URL: "https://azure.microsoft.com/services/dns/",
			Credentials: map[string]string{
				"AZURE_CLIENT_ID": "Client id of the service principal, or of a managed identity", "AZURE_CLIENT_SECRET": "Secret of the service principal",
				"AZURE_TENANT_ID": "Tenant",
			},
			Settings: map[string]string{
				"AZURE_SUBSCRIPTION_ID": "Subscription of the zone", "AZURE_RESOURCE_GROUP": "Resource group of the zone",
				"AZURE_ZONE_NAME": "Zone, in place of the one that DNS tells", "AZURE_ENVIRONMENT": "public, china or usgovernment (default: public)",
				"AZURE_PRIVATE_ZONE": "true for a private zone", "AZURE_RESOURCE_ID": "Resource id of a managed identity",
			},
		},
	}
}
