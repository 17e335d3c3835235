package native

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"chancery.dev/internal/solver/dns01/wire"
)

// cloudDNSScope is what the credential may do.
const cloudDNSScope = "https://www.googleapis.com/auth/ndev.clouddns.readwrite"

// cloudDNS speaks the API of Google Cloud DNS, version 1.
type cloudDNS struct {
	api   *api
	zone  string
	zones *zoneIDs
}

func newCloudDNS(ctx context.Context, s Settings) (Writer, error) {
	tokens, project, err := googleTokens(ctx, s)
	if err != nil {
		return nil, err
	}
	if p := s.Variables["GCE_PROJECT"]; p != "" {
		project = p
	}
	if project == "" {
		return nil, wire.Failed(wire.ClassConfig, "gcloud: GCE_PROJECT is missing")
	}
	c := cloudDNS{zones: &zoneIDs{}, zone: s.Variables["GCE_ZONE_ID"], api: newAPI(
		"https://dns.googleapis.com/dns/v1/projects/"+url.PathEscape(project), http.Header{}, func(body []byte) string {
			var m struct{ Error struct{ Message string } }
			if json.Unmarshal(body, &m) != nil {
				return ""
			}
			return m.Error.Message
		})}
	c.api.client = oauth2.NewClient(ctx, tokens)
	c.api.client.Timeout = 20 * time.Second
	return c, nil
}

// googleTokens takes keys of service accounts only: the other kinds of credentials in
// JSON name files to read, programs to run and addresses to call.
func googleTokens(ctx context.Context, s Settings) (oauth2.TokenSource, string, error) {
	key := s.Variables["GCE_SERVICE_ACCOUNT"]
	if key == "" {
		if !s.Ambient {
			return nil, "", wire.Failed(wire.ClassConfig,
				"gcloud: the service account's key is missing, and this issuer may not use credentials of the machine: set serviceAccountSecretRef")
		}
		found, err := google.FindDefaultCredentials(ctx, cloudDNSScope)
		if err != nil {
			return nil, "", wire.Failed(wire.ClassCredential, "gcloud: the machine has no credentials: %w", err)
		}
		return found.TokenSource, found.ProjectID, nil
	}
	var fields struct {
		Type      string `json:"type"`
		ProjectID string `json:"project_id"`
		TokenURI  string `json:"token_uri"`
	}
	if json.Unmarshal([]byte(key), &fields) != nil || fields.Type != "service_account" {
		return nil, "", wire.Failed(wire.ClassConfig, "gcloud: the Secret does not hold the JSON key of a service account")
	}
	if u, err := url.Parse(fields.TokenURI); fields.TokenURI != "" && (err != nil || u.Scheme != "https" || !strings.HasSuffix(u.Hostname(), ".googleapis.com")) {
		return nil, "", wire.Failed(wire.ClassConfig, "gcloud: the key's token_uri is not an https address of googleapis.com: it would be sent there")
	}
	config, err := google.JWTConfigFromJSON([]byte(key), cloudDNSScope)
	if err != nil {
		// Not the parser's words: they may quote the key.
		return nil, "", wire.Failed(wire.ClassConfig, "gcloud: the service account's key cannot be read")
	}
	return config.TokenSource(ctx), fields.ProjectID, nil
}

// managedZone finds the zone by its DNS name: the first public one, else the first.
func (c cloudDNS) managedZone(ctx context.Context, r wire.Record) (string, error) {
	if c.zone != "" {
		return c.zone, nil
	}
	name, err := c.zones.of(r.Zone, time.Now(), func(zone string) (string, error) { return c.lookUp(ctx, zone) })
	if err == nil && name == "" {
		err = fmt.Errorf("gcloud: the project has no managed zone %s", r.Zone)
	}
	return name, err
}

// lookUp asks for the name of a managed zone, which is empty if the project has none.
func (c cloudDNS) lookUp(ctx context.Context, zone string) (string, error) {
	var found struct {
		ManagedZones []struct{ Name, Visibility string }
	}
	if err := c.api.call(ctx, http.MethodGet, "/managedZones", url.Values{"dnsName": {zone}}, nil, &found); err != nil {
		return "", fmt.Errorf("gcloud: looking for zone %s: %w", zone, err)
	}
	for _, z := range found.ManagedZones {
		if z.Visibility == "public" {
			return z.Name, nil
		}
	}
	if len(found.ManagedZones) == 0 {
		return "", nil
	}
	return found.ManagedZones[0].Name, nil
}

type cloudDNSSet struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	TTL     int      `json:"ttl"`
	Rrdatas []string `json:"rrdatas"`
}

type cloudDNSChange struct {
	ID        string        `json:"id,omitempty"`
	Status    string        `json:"status,omitempty"`
	Additions []cloudDNSSet `json:"additions,omitempty"`
	Deletions []cloudDNSSet `json:"deletions,omitempty"`
}

// edit replaces the record set by one that edit has changed, in one transaction: the API
// refuses it where the set is no longer what was read, and then it is read anew.
func (c cloudDNS) edit(ctx context.Context, r wire.Record, edit func([]string) []string) error {
	zone, err := c.managedZone(ctx, r)
	if err != nil {
		return err
	}
	path := "/managedZones/" + url.PathEscape(zone)
	const tries = 5
	for try := 1; ; try++ {
		var found struct{ Rrsets []cloudDNSSet }
		query := url.Values{"name": {r.FQDN}, "type": {"TXT"}}
		if err := c.api.call(ctx, http.MethodGet, path+"/rrsets", query, nil, &found); err != nil {
			return fmt.Errorf("gcloud: reading TXT %s: %w", r.FQDN, err)
		}
		set := cloudDNSSet{Name: r.FQDN, Type: "TXT", TTL: r.TTL}
		var change cloudDNSChange
		if len(found.Rrsets) > 0 {
			set.Rrdatas = found.Rrsets[0].Rrdatas
			change.Deletions = found.Rrsets[:1]
		}
		edited := edit(slices.Clone(set.Rrdatas))
		if slices.Equal(edited, set.Rrdatas) {
			return nil
		}
		if set.Rrdatas = edited; len(edited) > 0 {
			change.Additions = []cloudDNSSet{set}
		}
		err := c.api.call(ctx, http.MethodPost, path+"/changes", nil, change, &change)
		if err == nil {
			return c.await(ctx, path, change)
		}
		if try == tries || !isStatus(err, http.StatusPreconditionFailed) && !isStatus(err, http.StatusConflict) {
			return fmt.Errorf("gcloud: changing TXT %s: %w", r.FQDN, err)
		}
	}
}

// await waits until a change is done.
func (c cloudDNS) await(ctx context.Context, path string, change cloudDNSChange) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for change.Status == "pending" {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := c.api.call(ctx, http.MethodGet, path+"/changes/"+url.PathEscape(change.ID), nil, nil, &change); err != nil {
			return fmt.Errorf("gcloud: asking after a change: %w", err)
		}
	}
	return nil
}

func unquoted(s string) string {
	if text, err := strconv.Unquote(s); err == nil {
		return text
	}
	return s
}

func (c cloudDNS) Present(ctx context.Context, r wire.Record) error {
	return c.edit(ctx, r, func(values []string) []string {
		if slices.ContainsFunc(values, func(v string) bool { return unquoted(v) == r.Value }) {
			return values
		}
		return append(values, strconv.Quote(r.Value))
	})
}

func (c cloudDNS) CleanUp(ctx context.Context, r wire.Record) error {
	return c.edit(ctx, r, func(values []string) []string {
		return slices.DeleteFunc(values, func(v string) bool { return unquoted(v) == r.Value })
	})
}
