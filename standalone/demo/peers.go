package demo

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/netip"
	"strconv"

	"chancery.dev/internal/app"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/port"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// The DNS server's zones, and the key that may change them. Every name below them resolves to loopback.
const (
	zone      = "example.test"
	childZone = "apps.example.test"
	tsigName  = "chancery-demo."
)

// Peers are the servers that ACME certificates need: Pebble and a DNS server, on free ports of loopback.
type Peers struct {
	acme       *pebble.Server
	dns        *dnsserver.Server
	tsigSecret string
	// http is where Pebble looks for answers to HTTP-01, in place of port 80.
	http netip.AddrPort
}

// StartPeers starts them. They end with ctx.
func StartPeers(ctx context.Context) (*Peers, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	p := &Peers{tsigSecret: base64.StdEncoding.EncodeToString(secret)}
	key, err := rfc2136.NewKey(tsigName, "HMACSHA256", p.tsigSecret)
	if err != nil {
		return nil, err
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	p.dns, err = dnsserver.Start(ctx, dnsserver.Config{Key: key, Zones: []dnsserver.Zone{
		{Name: zone, Wildcard: loopback}, {Name: childZone, Wildcard: loopback},
	}})
	if err != nil {
		return nil, fmt.Errorf("start the DNS server: %w", err)
	}
	if p.http, err = port.Free(ctx); err != nil {
		return nil, fmt.Errorf("answer to HTTP-01: %w", err)
	}
	p.acme, err = pebble.Start(ctx, pebble.Options{DNSServer: p.dns.Addr(), HTTPPort: int(p.http.Port())})
	if err != nil {
		return nil, fmt.Errorf("start the ACME server: %w", err)
	}
	return p, nil
}

// Configure lets controllers find the peers on their ports, in place of the world's servers on the usual ports.
func (p *Peers) Configure(c *app.ACMEConfig) {
	c.RecursiveNameservers = []string{p.dns.Addr()}
	c.AuthoritativePort = p.dns.Port()
	c.HTTP01Nameservers = []string{p.dns.Addr()}
	c.HTTP01Address = p.http.String()
	c.HTTP01Port = int(p.http.Port())
}

// String says where they are.
func (p *Peers) String() string {
	return fmt.Sprintf("Pebble, an ACME server, at %s; a DNS server at %s; answers to HTTP-01 on port %s",
		p.acme.DirectoryURL, p.dns.Addr(), strconv.Itoa(int(p.http.Port())))
}

// values are what the placeholders of the manifests stand for.
func (p *Peers) values(signingRequest []byte) map[string]string {
	return map[string]string{
		"ACME_SERVER":     p.acme.DirectoryURL,
		"ACME_CA_BUNDLE":  base64.StdEncoding.EncodeToString(p.acme.TLSBundle),
		"DNS_SERVER":      p.dns.Addr(),
		"TSIG_SECRET":     p.tsigSecret,
		"SIGNING_REQUEST": base64.StdEncoding.EncodeToString(signingRequest),
	}
}
