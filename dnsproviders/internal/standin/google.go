package standin

import (
	"net/http"
	"slices"
	"strings"
)

// googleToken gives access tokens for assertions of the service account (RFC 7523).
func (w *World) googleToken(rw http.ResponseWriter, r *http.Request) {
	fail := func() {
		say(rw, http.StatusUnauthorized, map[string]string{"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
	}
	if r.URL.Path != "/token" || r.ParseForm() != nil || r.Form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		fail()
		return
	}
	claims := verify(r.Form.Get("assertion"), w.Google)
	if claims == nil || claims["iss"] != GoogleAccount || claims["scope"] != "https://www.googleapis.com/auth/ndev.clouddns.readwrite" {
		fail()
		return
	}
	say(rw, http.StatusOK, map[string]any{"access_token": "google-" + w.Token, "token_type": "Bearer", "expires_in": 3600})
}

type googleSet struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	TTL     int      `json:"ttl"`
	Rrdatas []string `json:"rrdatas"`
}

// cloudDNS: version 1. A change is one transaction: what it deletes has to be what is there.
func (w *World) cloudDNS(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fail := func(status int, message string) {
		say(rw, status, map[string]any{"error": map[string]any{"code": status, "message": message}})
	}
	if r.Header.Get("Authorization") != "Bearer google-"+w.Token {
		fail(http.StatusUnauthorized, "Invalid Credentials")
		return
	}
	const prefix = "/dns/v1/projects/" + GoogleProject + "/managedZones"
	switch path := strings.TrimPrefix(r.URL.Path, prefix); path {
	case "":
		zones := []any{}
		if r.URL.Query().Get("dnsName") == Zone+"." {
			zones = append(zones, map[string]string{"name": "private-zone", "visibility": "private"}, map[string]string{"name": "public-zone", "visibility": "public"})
		}
		say(rw, http.StatusOK, map[string]any{"managedZones": zones})
	case "/public-zone/rrsets":
		sets := []googleSet{}
		if set, ok := w.googleSet(r.URL.Query().Get("name")); ok {
			sets = append(sets, set)
		}
		say(rw, http.StatusOK, map[string]any{"rrsets": sets})
	case "/public-zone/changes":
		var in struct{ Additions, Deletions []googleSet }
		if !hear(r, &in) {
			fail(http.StatusBadRequest, "bad request")
			return
		}
		if status, message := w.googleChange(in.Deletions, in.Additions); status != http.StatusOK {
			fail(status, message)
			return
		}
		status := "pending" // once: it is worth waiting for, but not each time
		if w.waited {
			status = "done"
		}
		w.waited = true
		say(rw, http.StatusOK, map[string]string{"id": "1", "status": status})
	case "/public-zone/changes/1":
		say(rw, http.StatusOK, map[string]string{"id": "1", "status": "done"})
	default:
		fail(http.StatusNotFound, "not found: "+path)
	}
}

// googleSet is a record set as the API shows it. The caller holds the mutex.
func (w *World) googleSet(name string) (googleSet, bool) {
	values, ok := w.sets[name]
	set := googleSet{Name: name, Type: "TXT", TTL: 60}
	for _, v := range values {
		set.Rrdatas = append(set.Rrdatas, `"`+v+`"`)
	}
	return set, ok
}

// googleChange makes a change. The caller holds the mutex.
func (w *World) googleChange(deletions, additions []googleSet) (status int, message string) {
	for _, d := range deletions {
		if set, ok := w.googleSet(d.Name); !ok || !slices.Equal(set.Rrdatas, d.Rrdatas) {
			return http.StatusPreconditionFailed, "Precondition not met"
		}
		w.set(d.Name, nil)
	}
	for _, a := range additions {
		if _, ok := w.sets[a.Name]; ok || a.TTL != 60 || a.Type != "TXT" {
			return http.StatusConflict, "already exists"
		}
		values := []string{}
		for _, v := range a.Rrdatas {
			values = append(values, unquote(v))
		}
		w.set(a.Name, values)
	}
	return http.StatusOK, ""
}
