package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"chancery.dev/dnsproviders/internal/catalog"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider"
	"chancery.dev/internal/solver/dns01/provider/exec"
	"chancery.dev/internal/solver/dns01/provider/limit"
)

// TestForbiddenAddresses: the names of the providers' APIs lead to an address that is off limits for Issuers. The
// providers that the catalog calls judged say so. For a ClusterIssuer nothing is off limits: they connect there, where
// nothing listens.
func TestForbiddenAddresses(t *testing.T) {
	t.Parallel()
	loopback := netip.MustParseAddr("127.99.0.1")
	var zones []dnsserver.Zone
	for _, name := range []string{"com.", "net.", "invalid."} {
		zones = append(zones, dnsserver.Zone{Name: name, Wildcard: loopback})
	}
	resolver, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: zones})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := tool.Script(t, fmt.Sprintf("#!/bin/sh\n%s=%s exec %q %s \"$@\"\n", resolverVariable, resolver.Addr(), self, asProgram))
	w := newWorld(t)
	w.program, w.environ = script, []string{"PATH=" + os.Getenv("PATH")}
	judged := map[string]string{ // the provider of each field
		"digitalocean": "digitalocean", "cloudflare token": "cloudflare", "cloudflare key": "cloudflare", "cloudDNS": "gcloud", "azureDNS": "azuredns",
		"akamai": "edgedns", "route53 keys": "route53", "route53 role": "route53", "route53 web identity": "route53",
	}
	for name, s := range solvers(t, w) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entry, err := catalog.Find(judged[name])
			if err != nil {
				t.Fatal(err)
			}
			for cluster, off := range map[bool]bool{false: entry.Judged(), true: false} {
				p, err := w.confined(t, s.good)(t.Context(), dns01.Use{Config: &s.config, Namespace: "ns", ClusterIssuer: cluster})
				if err != nil {
					t.Fatal(err)
				}
				err = p.Present(t.Context(), record(1))
				switch {
				case off && (err == nil || !strings.Contains(err.Error(), "off limits")):
					t.Errorf("for an Issuer: %v; want that the address is off limits", err)
				case cluster && (err == nil || strings.Contains(err.Error(), "off limits") || !strings.Contains(err.Error(), loopback.String())):
					t.Errorf("for a ClusterIssuer: %v; want that it connects to %s", err, loopback)
				}
			}
		})
	}
}

// confined is factory with what is off limits for Issuers by default.
func (w *world) confined(t *testing.T, s secrets) dns01.Factory {
	t.Helper()
	pool, err := exec.New(t.Context(), exec.Options{
		Programs: map[string]string{"*": w.program}, Environ: w.environ, Limits: limit.New(limit.Options{Now: w.now}), Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return provider.Factory(provider.Options{Secrets: s, Token: tokenOf(s["web"]), Programs: pool, Egress: egress.New(nil, nil)})
}
