package network_test

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"
	"k8s.io/client-go/rest"

	"chancery.dev/internal/rig/dnsserver"
)

// ipv6Alone: API server, ACME server, name servers, responder and self checks, all by IPv6.
func ipv6Alone(t *testing.T, rc *rest.Config) {
	t.Helper()
	w := newWorld(t, rc, dnsserver.Zone{Name: "example.com.", Wildcard: netip.MustParseAddr(web6)}, dns6)
	w.run(t, netip.AddrPortFrom(netip.MustParseAddr(web6), httpPort).String())
	w.Create(t, w.issuer(w.ca.DirectoryURL), w.certificate("wild", "wild.example.com", "*.wild.example.com"), w.certificate("web", "a.http.example.com"))
	w.issued(t, "wild", "x.wild.example.com")
	w.issued(t, "web", "a.http.example.com")
}

// bothFamilies: one name server and one address of each family. All of them are asked.
func bothFamilies(t *testing.T, rc *rest.Config) {
	t.Helper()
	w := newWorld(t, rc, dnsserver.Zone{Name: "example.com.", Records: []string{
		"both.http.example.com. A " + web4, "both.http.example.com. AAAA " + web6, "wild.example.com. A " + web4,
	}}, dns4, dns6)
	w.run(t, netip.AddrPortFrom(netip.IPv6Unspecified(), httpPort).String())
	w.Create(t, w.issuer(w.ca.DirectoryURL), w.certificate("wild", "wild.example.com", "*.wild.example.com"), w.certificate("web", "both.http.example.com"))
	w.issued(t, "wild", "x.wild.example.com")
	w.issued(t, "web", "both.http.example.com")
	if w.dns.Queries(0, dns.TypeTXT) == 0 || w.dns.Queries(1, dns.TypeTXT) == 0 {
		t.Error("the self check has not asked the name servers of both families")
	}
}
