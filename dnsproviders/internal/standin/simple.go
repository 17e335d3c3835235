package standin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// say writes JSON.
func say(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(v) // into memory
}

func hear(r *http.Request, v any) bool { return json.NewDecoder(r.Body).Decode(v) == nil }

// id gives a record a number that stays. The caller holds the mutex.
func (w *World) id(name, value string) string {
	for id, record := range w.ids {
		if record == name+" "+value {
			return id
		}
	}
	id := strconv.Itoa(1000 + len(w.ids))
	w.ids[id] = name + " " + value
	return id
}

// dropID removes the record with a number; false if there is none. The caller holds the mutex.
func (w *World) dropID(id string) bool {
	name, value, ok := strings.Cut(w.ids[id], " ")
	i := slices.Index(w.sets[name], value)
	if !ok || i < 0 {
		return false
	}
	w.set(name, slices.Delete(slices.Clone(w.sets[name]), i, i+1))
	return true
}

// digitalOcean: https://docs.digitalocean.com/reference/api/
func (w *World) digitalOcean(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+w.Token {
		say(rw, http.StatusUnauthorized, map[string]string{"id": "unauthorized", "message": "Unable to authenticate you"})
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/v2/domains/"+Zone+"/records")
	if !ok {
		say(rw, http.StatusNotFound, map[string]string{"id": "not_found", "message": "The resource you were accessing could not be found."})
		return
	}
	type record struct {
		ID   int    `json:"id"`
		Type string `json:"type"`
		Name string `json:"name"`
		Data string `json:"data"`
		TTL  int    `json:"ttl"`
	}
	switch r.Method {
	case http.MethodGet:
		found := []record{}
		name := r.URL.Query().Get("name") + "."
		for _, v := range w.sets[name] {
			id, _ := strconv.Atoi(w.id(name, v))
			found = append(found, record{ID: id, Type: "TXT", Data: v})
		}
		say(rw, http.StatusOK, map[string]any{"domain_records": found})
	case http.MethodPost:
		var in record
		if !hear(r, &in) || in.Type != "TXT" || in.TTL < 30 || strings.HasSuffix(in.Name, ".") {
			say(rw, http.StatusUnprocessableEntity, map[string]string{"message": "the record is not valid"})
			return
		}
		name := in.Name + "." + Zone + "."
		w.set(name, append(w.sets[name], in.Data)) // twice, if asked twice: as the real one does
		say(rw, http.StatusCreated, map[string]any{"domain_record": in})
	case http.MethodDelete:
		if !w.dropID(strings.TrimPrefix(rest, "/")) {
			say(rw, http.StatusNotFound, map[string]string{"message": "not found"})
			return
		}
		rw.WriteHeader(http.StatusNoContent)
	}
}

// cloudflare: https://developers.cloudflare.com/api/
func (w *World) cloudflare(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fail := func(status, code int, message string) {
		say(rw, status, map[string]any{"success": false, "errors": []any{map[string]any{"code": code, "message": message}}})
	}
	byToken := r.Header.Get("Authorization") == "Bearer "+w.Token
	byKey := r.Header.Get("X-Auth-Email") == "me@example.com" && r.Header.Get("X-Auth-Key") == w.Token && r.Header.Get("Authorization") == ""
	if !byToken && !byKey {
		fail(http.StatusForbidden, 9109, "Invalid access token")
		return
	}
	ok := func(result any) { say(rw, http.StatusOK, map[string]any{"success": true, "result": result}) }
	path := strings.TrimPrefix(r.URL.Path, "/client/v4")
	if path == "/zones" {
		zones := []any{}
		if r.URL.Query().Get("name") == Zone {
			zones = append(zones, map[string]string{"id": "zone-id", "name": Zone})
		}
		ok(zones)
		return
	}
	rest, found := strings.CutPrefix(path, "/zones/zone-id/dns_records")
	if !found {
		fail(http.StatusNotFound, 7003, "Could not route")
		return
	}
	switch r.Method {
	case http.MethodGet:
		records := []any{}
		name := r.URL.Query().Get("name") + "."
		for _, v := range w.sets[name] {
			records = append(records, map[string]string{"id": w.id(name, v), "type": "TXT", "name": strings.TrimSuffix(name, "."), "content": `"` + v + `"`})
		}
		ok(records)
	case http.MethodPost:
		var in struct {
			Type, Name, Content string
			TTL                 int
		}
		if !hear(r, &in) || in.Type != "TXT" || in.TTL != 60 {
			fail(http.StatusBadRequest, 9005, "Content for TXT record is invalid")
			return
		}
		name := in.Name + "."
		if slices.Contains(w.sets[name], unquote(in.Content)) {
			fail(http.StatusBadRequest, 81058, "An identical record already exists.")
			return
		}
		w.set(name, append(w.sets[name], unquote(in.Content)))
		ok(map[string]string{"id": w.id(name, unquote(in.Content))})
	case http.MethodDelete:
		if !w.dropID(strings.TrimPrefix(rest, "/")) {
			fail(http.StatusNotFound, 81044, "Record does not exist.")
			return
		}
		ok(map[string]string{})
	}
}

// azureTenant, and who may use it.
const (
	AzureTenant       = "11111111-2222-3333-4444-555555555555"
	AzureClient       = "66666666-7777-8888-9999-000000000000"
	AzureSubscription = "sub"
	AzureGroup        = "group"
)

// azureLogin: OAuth 2.0 client credentials at Microsoft's identity platform.
func (w *World) azureLogin(rw http.ResponseWriter, r *http.Request) {
	const host = "https://login.microsoftonline.com/"
	switch {
	case strings.Contains(r.URL.Path, "/discovery/instance"):
		say(rw, http.StatusOK, map[string]any{
			"tenant_discovery_endpoint": host + AzureTenant + "/v2.0/.well-known/openid-configuration",
			"metadata": []any{map[string]any{
				"preferred_network": "login.microsoftonline.com", "preferred_cache": "login.microsoftonline.com", "aliases": []string{"login.microsoftonline.com"},
			}},
		})
	case strings.HasSuffix(r.URL.Path, "/openid-configuration"):
		say(rw, http.StatusOK, map[string]any{
			"issuer": host + AzureTenant + "/v2.0", "authorization_endpoint": host + AzureTenant + "/oauth2/v2.0/authorize",
			"token_endpoint": host + AzureTenant + "/oauth2/v2.0/token",
		})
	case r.URL.Path == "/"+AzureTenant+"/oauth2/v2.0/token":
		if r.ParseForm() != nil || r.Form.Get("client_id") != AzureClient ||
			r.Form.Get("client_secret") != w.Token && r.Form.Get("client_assertion") != "federated-"+w.Token ||
			r.Form.Get("grant_type") != "client_credentials" || !strings.Contains(r.Form.Get("scope"), "management.") {
			say(rw, http.StatusUnauthorized, map[string]string{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided. Trace ID: 0b1c2d3e-0000-0000-0000-" + fmt.Sprintf("%012d", len(w.Seen()))})
			return
		}
		say(rw, http.StatusOK, map[string]any{"token_type": "Bearer", "expires_in": 3600, "access_token": "azure-" + w.Token})
	default:
		http.NotFound(rw, r)
	}
}

// azure: Microsoft.Network/dnsZones, with entity tags.
func (w *World) azure(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fail := func(status int, code string) {
		say(rw, status, map[string]any{"error": map[string]string{"code": code, "message": code}})
	}
	prefix := "/subscriptions/" + AzureSubscription + "/resourceGroups/" + AzureGroup + "/providers/Microsoft.Network/dnsZones/" + Zone + "/TXT/"
	name, ok := strings.CutPrefix(r.URL.Path, prefix)
	switch {
	case r.Header.Get("Authorization") != "Bearer azure-"+w.Token:
		fail(http.StatusUnauthorized, "AuthenticationFailed")
		return
	case !ok:
		fail(http.StatusNotFound, "ParentResourceNotFound")
		return
	}
	name += "." + Zone + "."
	values, exists := w.sets[name]
	etag := strconv.Itoa(w.version)
	if match := r.Header.Get("If-Match"); r.Method != http.MethodGet && (match != "" && match != etag || r.Header.Get("If-None-Match") == "*" && exists) {
		fail(http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	type txt struct {
		Value []string `json:"value"`
	}
	switch r.Method {
	case http.MethodGet:
		if !exists {
			fail(http.StatusNotFound, "NotFound")
			return
		}
		records := []txt{}
		for _, v := range values {
			records = append(records, txt{[]string{v}})
		}
		say(rw, http.StatusOK, map[string]any{"etag": etag, "properties": map[string]any{"TTL": 60, "TXTRecords": records}})
	case http.MethodPut:
		var in struct {
			Properties struct {
				TTL        int   `json:"TTL"`
				TXTRecords []txt `json:"TXTRecords"`
			} `json:"properties"`
		}
		if !hear(r, &in) || in.Properties.TTL != 60 || r.Header.Get("If-Match")+r.Header.Get("If-None-Match") == "" {
			fail(http.StatusBadRequest, "BadRequest")
			return
		}
		next := []string{}
		for _, t := range in.Properties.TXTRecords {
			next = append(next, strings.Join(t.Value, ""))
		}
		w.set(name, next)
		say(rw, http.StatusOK, in)
	case http.MethodDelete:
		w.set(name, nil)
		rw.WriteHeader(http.StatusOK)
	}
}
