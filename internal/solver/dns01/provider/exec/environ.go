package exec

import (
	"slices"
	"strings"
)

// environ returns the environment of a program. It needs a path to search, and what
// the operator said about proxies and CAs; the controller's other variables may
// hold credentials, and are passed on only where ambient ones are allowed.
func environ(own []string, ambient bool) []string {
	if ambient {
		return slices.Clone(own)
	}
	kept := []string{
		"PATH", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	}
	out := []string{}
	for _, e := range own {
		if name, _, ok := strings.Cut(e, "="); ok && slices.Contains(kept, name) {
			out = append(out, e)
		}
	}
	return out
}
