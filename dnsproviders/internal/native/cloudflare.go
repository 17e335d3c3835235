package native

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"chancery.dev/internal/solver/dns01/wire"
)

// cloudflare speaks the API of Cloudflare, version 4.
type cloudflare struct {
	api   *api
	zones *zoneIDs
}

func newCloudflare(s Settings) (Writer, error) {
	header := http.Header{}
	for _, c := range []struct{ variable, header, prefix string }{
		{"CLOUDFLARE_DNS_API_TOKEN", "Authorization", "Bearer "},
		{"CLOUDFLARE_EMAIL", "X-Auth-Email", ""},
		{"CLOUDFLARE_API_KEY", "X-Auth-Key", ""},
	} {
		value, err := headerValue(s, c.variable)
		if err != nil {
			return nil, err
		}
		if value != "" {
			header.Set(c.header, c.prefix+value)
		}
	}
	if header.Get("Authorization") == "" && (header.Get("X-Auth-Email") == "" || header.Get("X-Auth-Key") == "") {
		return nil, wire.Failed(wire.ClassConfig, "cloudflare: CLOUDFLARE_DNS_API_TOKEN is missing, or CLOUDFLARE_EMAIL with CLOUDFLARE_API_KEY")
	}
	return cloudflare{zones: &zoneIDs{}, api: newAPI("https://api.cloudflare.com/client/v4", header, func(body []byte) string {
		var m struct {
			Errors []struct {
				Code    int
				Message string
			}
		}
		if json.Unmarshal(body, &m) != nil {
			return ""
		}
		var words []string
		for _, e := range m.Errors {
			words = append(words, fmt.Sprintf("%s (%d)", e.Message, e.Code))
		}
		return strings.Join(words, ", ")
	})}, nil
}

// zone returns the id of the zone that the record is in: the one that DNS tells, or
// else, where the account has another, the closest name above the record.
func (c cloudflare) zone(ctx context.Context, r wire.Record) (string, error) {
	names := []string{plain(r.Zone)}
	for name := plain(r.FQDN); strings.Contains(name, "."); _, name, _ = strings.Cut(name, ".") {
		names = append(names, name)
	}
	for _, name := range names {
		id, err := c.zones.of(name, time.Now(), func(name string) (string, error) { return c.lookUp(ctx, name) })
		if err != nil || id != "" {
			return id, err
		}
	}
	return "", fmt.Errorf("cloudflare: no zone of this account holds %s: has the token Zone:Read for it?", plain(r.FQDN))
}

// lookUp asks for the id of a zone, which is empty if the account has none of this name.
func (c cloudflare) lookUp(ctx context.Context, name string) (string, error) {
	var found struct {
		Result []struct{ ID, Name string }
	}
	if err := c.api.call(ctx, http.MethodGet, "/zones", url.Values{"name": {name}}, nil, &found); err != nil {
		return "", fmt.Errorf("cloudflare: looking for zone %s: %w", name, err)
	}
	for _, z := range found.Result {
		if strings.EqualFold(z.Name, name) {
			return z.ID, nil
		}
	}
	return "", nil
}

type cloudflareRecord struct {
	ID      string `json:"id,omitempty"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Content string `json:"content"`
	TTL     int    `json:"ttl,omitempty"`
}

// find returns the path of the zone's records, and the ids of those with this value.
func (c cloudflare) find(ctx context.Context, r wire.Record) (path string, ids []string, err error) {
	zone, err := c.zone(ctx, r)
	if err != nil {
		return "", nil, err
	}
	path = "/zones/" + url.PathEscape(zone) + "/dns_records"
	var found struct{ Result []cloudflareRecord }
	query := url.Values{"type": {"TXT"}, "name": {plain(r.FQDN)}, "per_page": {"5000"}}
	if err := c.api.call(ctx, http.MethodGet, path, query, nil, &found); err != nil {
		return "", nil, fmt.Errorf("cloudflare: listing TXT %s: %w", plain(r.FQDN), err)
	}
	for _, rec := range found.Result {
		if strings.Trim(rec.Content, `"`) == r.Value {
			ids = append(ids, rec.ID)
		}
	}
	slices.Sort(ids)
	return path, ids, nil
}

func (c cloudflare) Present(ctx context.Context, r wire.Record) error {
	path, ids, err := c.find(ctx, r)
	if err != nil || len(ids) > 0 {
		return err
	}
	rec := cloudflareRecord{Type: "TXT", Name: plain(r.FQDN), Content: `"` + r.Value + `"`, TTL: r.TTL}
	if err := c.api.call(ctx, http.MethodPost, path, nil, rec, nil); err != nil {
		return fmt.Errorf("cloudflare: creating TXT %s: %w", plain(r.FQDN), err)
	}
	return nil
}

func (c cloudflare) CleanUp(ctx context.Context, r wire.Record) error {
	path, ids, err := c.find(ctx, r)
	if err != nil {
		return err
	}
	for _, id := range ids {
		err := c.api.call(ctx, http.MethodDelete, path+"/"+url.PathEscape(id), nil, nil, nil)
		if err != nil && !isStatus(err, http.StatusNotFound) {
			return fmt.Errorf("cloudflare: deleting TXT %s: %w", plain(r.FQDN), err)
		}
	}
	return nil
}
