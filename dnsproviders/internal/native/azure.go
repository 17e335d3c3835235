package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"chancery.dev/internal/solver/dns01/wire"
)

// azure speaks the APIs of Azure DNS, for public and for private zones.
type azure struct {
	credential azcore.TokenCredential
	scope      string
	base       string
	version    string
	zone       string
	// lowercase: the API of private zones writes its names so.
	lowercase bool
}

func azureCloud(name string) (cloud.Configuration, error) {
	switch name {
	case "", "public":
		return cloud.AzurePublic, nil
	case "china":
		return cloud.AzureChina, nil
	case "usgovernment":
		return cloud.AzureGovernment, nil
	}
	return cloud.Configuration{}, wire.Failed(wire.ClassConfig, "azuredns: environment %q does not exist (any more): it is public, china or usgovernment", name)
}

func newAzure(s Settings) (Writer, error) {
	v := s.Variables
	environment, err := azureCloud(v["AZURE_ENVIRONMENT"])
	if err != nil {
		return nil, err
	}
	if v["AZURE_SUBSCRIPTION_ID"] == "" || v["AZURE_RESOURCE_GROUP"] == "" {
		return nil, wire.Failed(wire.ClassConfig, "azuredns: AZURE_SUBSCRIPTION_ID or AZURE_RESOURCE_GROUP is missing")
	}
	credential, err := azureCredential(s, environment)
	if err != nil {
		return nil, err
	}
	kind, version, private := "dnsZones", "2018-05-01", v["AZURE_PRIVATE_ZONE"] == "true"
	if private {
		kind, version = "privateDnsZones", "2020-06-01"
	}
	endpoint := environment.Services[cloud.ResourceManager]
	return &azure{
		credential: credential, scope: endpoint.Audience + "/.default", version: version, zone: v["AZURE_ZONE_NAME"],
		base: endpoint.Endpoint + "/subscriptions/" + url.PathEscape(v["AZURE_SUBSCRIPTION_ID"]) + "/resourceGroups/" +
			url.PathEscape(v["AZURE_RESOURCE_GROUP"]) + "/providers/Microsoft.Network/" + kind,
		lowercase: private,
	}, nil
}

// azureCredential is the service principal's or, if it may, the machine's: a workload
// identity where there is one, else a managed identity.
func azureCredential(s Settings, environment cloud.Configuration) (azcore.TokenCredential, error) {
	v, options := s.Variables, azcore.ClientOptions{Cloud: environment, Transport: client()}
	wrap := func(c azcore.TokenCredential, err error) (azcore.TokenCredential, error) {
		if err != nil {
			return nil, wire.Failed(wire.ClassConfig, "azuredns: %w", err)
		}
		return c, nil
	}
	if secret := v["AZURE_CLIENT_SECRET"]; secret != "" {
		return wrap(azidentity.NewClientSecretCredential(v["AZURE_TENANT_ID"], v["AZURE_CLIENT_ID"], secret,
			&azidentity.ClientSecretCredentialOptions{ClientOptions: options}))
	}
	if !s.Ambient {
		return nil, wire.Failed(wire.ClassConfig, "azuredns: there are no credentials, and this issuer may not use those of the machine: "+
			"set clientID, clientSecretSecretRef and tenantID")
	}
	if token := s.Getenv("AZURE_FEDERATED_TOKEN_FILE"); token != "" {
		return wrap(azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: options, ClientID: v["AZURE_CLIENT_ID"], TenantID: v["AZURE_TENANT_ID"], TokenFilePath: token,
		}))
	}
	managed := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
	switch {
	case v["AZURE_CLIENT_ID"] != "":
		managed.ID = azidentity.ClientID(v["AZURE_CLIENT_ID"])
	case v["AZURE_RESOURCE_ID"] != "":
		managed.ID = azidentity.ResourceID(v["AZURE_RESOURCE_ID"])
	}
	return wrap(azidentity.NewManagedIdentityCredential(managed))
}

// azureSet is a record set. The public API writes its names in capitals, the private one
// does not; to read them, both are the same.
type azureSet struct {
	Etag       string `json:"etag"`
	Properties struct {
		TxtRecords []azureTXT        `json:"txtRecords"`
		Metadata   map[string]string `json:"metadata"`
	} `json:"properties"`
}

type azureTXT struct {
	Value []string `json:"value"`
}

func azureMessage(body []byte) string {
	var m struct {
		Code, Message string
		Error         struct{ Code, Message string }
	}
	if json.Unmarshal(body, &m) != nil {
		return ""
	}
	return strings.TrimSpace(m.Error.Code + " " + m.Error.Message + m.Code + " " + m.Message)
}

// api returns the API with a token that is good now.
func (a *azure) api(ctx context.Context) (*api, error) {
	token, err := a.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{a.scope}})
	if err != nil {
		var failed *azidentity.AuthenticationFailedError
		if errors.As(err, &failed) && failed.RawResponse != nil {
			return nil, wire.Failed(wire.ClassCredential, "azuredns: the identity is not accepted: %s", http.StatusText(failed.RawResponse.StatusCode))
		}
		return nil, fmt.Errorf("azuredns: asking for a token: %w", err)
	}
	return newAPI(a.base, http.Header{"Authorization": {"Bearer " + token.Token}}, azureMessage), nil
}

// edit changes the record set under an entity tag, and starts over where another writer
// came first.
func (a *azure) edit(ctx context.Context, r wire.Record, edit func([]azureTXT) []azureTXT) error {
	zone := a.zone
	if zone == "" {
		zone = plain(r.Zone)
	}
	api, err := a.api(ctx)
	if err != nil {
		return err
	}
	name := relative(r.FQDN, plain(zone)+".")
	path := "/" + url.PathEscape(plain(zone)) + "/TXT/" + url.PathEscape(name)
	query := url.Values{"api-version": {a.version}}
	const tries = 5
	for try := 1; ; try++ {
		var set azureSet
		if err := api.call(ctx, http.MethodGet, path, query, nil, &set); err != nil && !isStatus(err, http.StatusNotFound) {
			return fmt.Errorf("azuredns: reading TXT %s in zone %s: %w", name, zone, err)
		}
		edited := edit(slices.Clone(set.Properties.TxtRecords))
		if len(edited) == len(set.Properties.TxtRecords) {
			return nil
		}
		err := a.replace(ctx, api, path, query, set, edited, r.TTL)
		if err == nil {
			return nil
		}
		if try == tries || !isStatus(err, http.StatusPreconditionFailed) {
			return fmt.Errorf("azuredns: changing TXT %s in zone %s: %w", name, zone, err)
		}
	}
}

// replace writes a set, or deletes an empty one, if it is still the one that was read.
func (a *azure) replace(ctx context.Context, api *api, path string, query url.Values, old azureSet, records []azureTXT, ttl int) error {
	condition := http.Header{"If-Match": {old.Etag}}
	if old.Etag == "" {
		condition = http.Header{"If-None-Match": {"*"}}
	}
	api = api.with(condition)
	if len(records) == 0 {
		return api.call(ctx, http.MethodDelete, path, query, nil, nil)
	}
	properties := map[string]any{"TTL": ttl, "TXTRecords": records}
	if a.lowercase {
		properties = map[string]any{"ttl": ttl, "txtRecords": records}
	}
	if old.Properties.Metadata != nil {
		properties["metadata"] = old.Properties.Metadata
	}
	return api.call(ctx, http.MethodPut, path, query, map[string]any{"properties": properties}, nil)
}

func (a *azure) Present(ctx context.Context, r wire.Record) error {
	return a.edit(ctx, r, func(records []azureTXT) []azureTXT {
		if slices.ContainsFunc(records, func(t azureTXT) bool { return strings.Join(t.Value, "") == r.Value }) {
			return records
		}
		return append(records, azureTXT{[]string{r.Value}})
	})
}

func (a *azure) CleanUp(ctx context.Context, r wire.Record) error {
	return a.edit(ctx, r, func(records []azureTXT) []azureTXT {
		return slices.DeleteFunc(records, func(t azureTXT) bool { return strings.Join(t.Value, "") == r.Value })
	})
}
