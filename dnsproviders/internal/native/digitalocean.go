package native

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"chancery.dev/internal/solver/dns01/wire"
)

// digitalOcean speaks the API of DigitalOcean, version 2.
type digitalOcean struct{ api *api }

func newDigitalOcean(s Settings) (Writer, error) {
	token, err := headerValue(s, "DO_AUTH_TOKEN")
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, wire.Failed(wire.ClassConfig, "digitalocean: DO_AUTH_TOKEN is missing")
	}
	return digitalOcean{newAPI("https://api.digitalocean.com/v2", http.Header{"Authorization": {"Bearer " + token}}, func(body []byte) string {
		var m struct{ Message string }
		if json.Unmarshal(body, &m) != nil {
			return ""
		}
		return m.Message
	})}, nil
}

type digitalOceanRecord struct {
	ID   int64  `json:"id,omitempty"`
	Type string `json:"type"`
	Name string `json:"name"`
	Data string `json:"data"`
	TTL  int    `json:"ttl,omitempty"`
}

// find returns the ids of the records with this value.
func (d digitalOcean) find(ctx context.Context, r wire.Record) (ids []int64, err error) {
	const perPage = 200
	for page := 1; ; page++ {
		var found struct {
			Records []digitalOceanRecord `json:"domain_records"`
		}
		query := url.Values{
			"type": {"TXT"}, "name": {plain(r.FQDN)}, "per_page": {strconv.Itoa(perPage)}, "page": {strconv.Itoa(page)},
		}
		if err := d.api.call(ctx, http.MethodGet, d.records(r), query, nil, &found); err != nil {
			return nil, fmt.Errorf("digitalocean: listing TXT records of %s: %w", plain(r.FQDN), err)
		}
		for _, rec := range found.Records {
			if rec.Type == "TXT" && rec.Data == r.Value {
				ids = append(ids, rec.ID)
			}
		}
		if len(found.Records) < perPage {
			return ids, nil
		}
	}
}

func (digitalOcean) records(r wire.Record) string {
	return "/domains/" + url.PathEscape(plain(r.Zone)) + "/records"
}

func (d digitalOcean) Present(ctx context.Context, r wire.Record) error {
	ids, err := d.find(ctx, r)
	if err != nil || len(ids) > 0 {
		return err
	}
	err = d.api.call(ctx, http.MethodPost, d.records(r), nil,
		digitalOceanRecord{Type: "TXT", Name: relative(r.FQDN, r.Zone), Data: r.Value, TTL: r.TTL}, nil)
	if err != nil {
		return fmt.Errorf("digitalocean: creating TXT %s: %w", plain(r.FQDN), err)
	}
	return nil
}

func (d digitalOcean) CleanUp(ctx context.Context, r wire.Record) error {
	ids, err := d.find(ctx, r)
	if err != nil {
		return err
	}
	for _, id := range ids {
		err := d.api.call(ctx, http.MethodDelete, d.records(r)+"/"+strconv.FormatInt(id, 10), nil, nil, nil)
		if err != nil && !isStatus(err, http.StatusNotFound) {
			return fmt.Errorf("digitalocean: deleting TXT %s: %w", plain(r.FQDN), err)
		}
	}
	return nil
}
