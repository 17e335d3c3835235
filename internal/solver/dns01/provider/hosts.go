package provider

import (
	"encoding/json"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// address matches an address within other text.
var address = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"'<>,]+`)

// hostsIn returns the hosts that a variable of a provider program names: those of all addresses in its value, which
// may be JSON, or the value itself if it is an IP address or the variable is called a host.
func hostsIn(variable, value string) []string {
	var hosts []string
	texts := stringsIn(value)
	// An address that is all of a text may have characters that end one within other text: https://a,b@host/.
	for _, text := range append(texts, address.FindAllString(strings.Join(texts, " "), -1)...) {
		if u, err := url.Parse(strings.TrimSpace(text)); err == nil && u.Scheme != "" && u.Hostname() != "" {
			hosts = append(hosts, u.Hostname())
		}
	}
	if len(hosts) > 0 {
		return hosts
	}
	value = strings.TrimSpace(value)
	host, _, err := net.SplitHostPort(value)
	if err != nil {
		host, _, _ = strings.Cut(strings.Trim(value, "[]"), "/")
	}
	if _, err := netip.ParseAddr(host); err == nil || host != "" && isHost(variable) {
		return []string{host}
	}
	return nil
}

// isHost tells by its name whether a variable holds a host.
func isHost(variable string) bool {
	for word := range strings.SplitSeq(strings.ToUpper(variable), "_") {
		switch word {
		case "HOST", "HOSTNAME", "SERVER", "NAMESERVER", "ENDPOINT", "URL", "ADDRESS":
			return true
		}
	}
	return false
}

// stringsIn returns a value, and if it is JSON, the strings in it without their escapes.
func stringsIn(value string) []string {
	out := []string{value}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	var parsed any
	if json.Unmarshal([]byte(value), &parsed) == nil {
		walk(parsed)
	}
	return out
}
