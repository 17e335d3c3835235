package request

import "testing"

func TestSignerPatterns(t *testing.T) {
	for _, c := range []struct {
		patterns       SignerPatterns
		resource, name string
		want           bool
	}{
		{nil, "issuers.cert-manager.io", "ns.ca", false},
		{SignerPatterns{"*"}, "foos.example.com", "x", true},
		{SignerPatterns{"issuers.cert-manager.io/*"}, "issuers.cert-manager.io", "ns.ca", true},
		{SignerPatterns{"issuers.cert-manager.io/*"}, "clusterissuers.cert-manager.io", "ca", false},
		{SignerPatterns{"issuers.cert-manager.io/ns.ca"}, "issuers.cert-manager.io", "ns.ca", true},
		{SignerPatterns{"issuers.cert-manager.io/ns.ca"}, "issuers.cert-manager.io", "other.ca", false},
		{SignerPatterns{"a.b/x", "clusterissuers.cert-manager.io/ca"}, "clusterissuers.cert-manager.io", "ca", true},
	} {
		if got := c.patterns.Cover(c.resource, c.name); got != c.want {
			t.Errorf("%q cover %s/%s: %t", c.patterns, c.resource, c.name, got)
		}
	}
	for pattern, good := range map[string]bool{
		"*": true, "issuers.cert-manager.io/*": true, "foos.example.com/a.b": true,
		"": false, "issuers": false, "issuers/*": false, "issuers.cert-manager.io/": false, "issuers.cert-manager.io": false,
	} {
		if wrong, bad := (SignerPatterns{"*", pattern}).Malformed(); bad == good || bad && wrong != pattern {
			t.Errorf("%q: malformed %q, %t", pattern, wrong, bad)
		}
	}
}

func TestSignerResource(t *testing.T) {
	for _, c := range []struct {
		group, kind, resource string
		namespaced            bool
	}{
		{"cert-manager.io", "Issuer", "issuers.cert-manager.io", true},
		{"cert-manager.io", "ClusterIssuer", "clusterissuers.cert-manager.io", false},
		{"example.com", "Issuer", "issuers.example.com", false},
	} {
		if resource, namespaced := SignerResource(c.group, c.kind); resource != c.resource || namespaced != c.namespaced {
			t.Errorf("%s %s: %s %t", c.group, c.kind, resource, namespaced)
		}
	}
}
