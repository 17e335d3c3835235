package dns01_test

import (
	"testing"
	"time"

	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/solver/dns01"
)

// TestOnlyOwnedCNAMEsDelegate: a CNAME that a wildcard makes for whatever is asked delegates nothing (RFC 4592 §2.1.1):
// the record goes to the name, which ends the wildcard there.
func TestOnlyOwnedCNAMEsDelegate(t *testing.T) {
	records := []string{
		"*.apps.example.test. 60 IN CNAME lb.foreign.test.", "apps.example.test. 60 IN A 127.0.0.1",
		"_acme-challenge.own.apps.example.test. 60 IN CNAME own.delegated.test.",
		"_acme-challenge.shown.apps.example.test. 60 IN TXT shown",
		"_acme-challenge.plain.example.test. 60 IN CNAME plain.delegated.test.",
		"_acme-challenge.far.example.test. 60 IN CNAME far.wild.example.test.", "*.wild.example.test. 60 IN CNAME lb.foreign.test.",
		"*.round.example.test. 60 IN CNAME x.round.example.test.",
	}
	server, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "example.test", Records: records}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := dns01.NewResolver(dns01.Options{Nameservers: []string{server.Addr()}, AuthoritativePort: server.Port(), Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, name, want string }{
		{"a wildcard beside the name", "_acme-challenge.apps.example.test.", "_acme-challenge.apps.example.test."},
		{"a wildcard further up", "_acme-challenge.a.b.apps.example.test.", "_acme-challenge.a.b.apps.example.test."},
		{"the record is there", "_acme-challenge.shown.apps.example.test.", "_acme-challenge.shown.apps.example.test."},
		{"a CNAME of its own below a wildcard", "_acme-challenge.own.apps.example.test.", "own.delegated.test."},
		{"a CNAME of its own", "_acme-challenge.plain.example.test.", "plain.delegated.test."},
		{"a CNAME of its own that leads below a wildcard", "_acme-challenge.far.example.test.", "far.wild.example.test."},
		{"a wildcard that leads to itself", "_acme-challenge.round.example.test.", "_acme-challenge.round.example.test."},
		{"no CNAME", "_acme-challenge.example.test.", "_acme-challenge.example.test."},
	} {
		if got, err := r.Follow(t.Context(), c.name, nil); err != nil || got != c.want {
			t.Errorf("%s: %s leads to %q, error %v, want %s", c.what, c.name, got, err, c.want)
		}
	}
}
