package provider

import (
	"encoding/json"
	"net/url"
	"slices"
	"testing"
)

// FuzzHostsIn: the host that a program will connect to, once it reads a variable as an address, is among those that are
// held to what a tenant may connect to.
func FuzzHostsIn(f *testing.F) {
	f.Add("X_ENDPOINT", "https://api.example:8443/v1")
	f.Add("X_ENDPOINT", "https://a,b@10.0.0.1/")
	f.Add("X_CONFIG", `{"url":"http:\/\/10.0.0.1"}`)
	f.Add("X_HOST", "[2001:db8::1]:53")
	f.Fuzz(func(t *testing.T, variable, value string) {
		got := hostsIn(variable, value)
		u, err := url.Parse(value)
		if err == nil && u.Scheme != "" && u.Hostname() != "" && !slices.Contains(got, u.Hostname()) {
			t.Errorf("%q leads to %q, and %q are looked at", value, u.Hostname(), got)
		}
		// The same within JSON, as a variable with several settings has it.
		inJSON, err2 := json.Marshal(map[string]string{"url": value})
		if err2 == nil && err == nil && json.Valid(inJSON) && u.Scheme != "" && u.Hostname() != "" {
			var back map[string]string
			if json.Unmarshal(inJSON, &back) == nil && back["url"] == value && !slices.Contains(hostsIn(variable, string(inJSON)), u.Hostname()) {
				t.Errorf("%s leads to %q, and %q are looked at", inJSON, u.Hostname(), hostsIn(variable, string(inJSON)))
			}
		}
	})
}
