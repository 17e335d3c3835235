package rfc2136_test

import (
	"context"
	"strings"
	"testing"

	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/solver/conformance"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

func numbered(n int) dns01.Record {
	return record("www.example.test", strings.Repeat(string(rune('a'+n)), 43))
}

func TestConformance(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		server := serve(t, mustKey(t, "update.key", "HMACSHA512", bindSecret))
		with := func(secret string) *rfc2136.Provider {
			return newProvider(t, rfc2136.Config{Nameserver: server.Addr(), TCP: tcp, Key: mustKey(t, "update.key", "HMACSHA512", secret)})
		}
		p, wrong := with(bindSecret), with("AAAAAAAAAAAAAAAA")
		conformance.RunProvider(t, conformance.ProviderHarness{
			Secret:  bindSecret,
			Present: func(ctx context.Context, n int) error { return p.Present(ctx, numbered(n)) },
			CleanUp: func(ctx context.Context, n int) error { return p.CleanUp(ctx, numbered(n)) },
			Denied:  func(ctx context.Context) error { return wrong.Present(ctx, numbered(0)) },
			Count: func(n int) (times int) {
				for _, l := range server.TXT() {
					if l == numbered(n).FQDN+" "+numbered(n).Value {
						times++
					}
				}
				return times
			},
			Slow: func(on bool) {
				server.SetMode(0, map[bool]dnsserver.Mode{true: dnsserver.Silent, false: dnsserver.Normal}[on])
			},
		})
	}
}

func TestConformanceBIND(t *testing.T) {
	server := startBIND(t)
	key := mustKey(t, "hmacsha256.key", "HMACSHA256", bindSecret)
	p := newProvider(t, rfc2136.Config{Nameserver: server, Key: key})
	wrong := newProvider(t, rfc2136.Config{Nameserver: server, Key: mustKey(t, "hmacsha256.key", "HMACSHA256", "AAAAAAAAAAAAAAAA")})
	slow, err := dnsserver.Start(t.Context(), dnsserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	slow.SetMode(0, dnsserver.Silent)
	current := p
	conformance.RunProvider(t, conformance.ProviderHarness{
		Secret:  bindSecret,
		Present: func(ctx context.Context, n int) error { return current.Present(ctx, numbered(n)) },
		CleanUp: func(ctx context.Context, n int) error { return current.CleanUp(ctx, numbered(n)) },
		Denied:  func(ctx context.Context) error { return wrong.Present(ctx, numbered(0)) },
		Count: func(n int) (times int) {
			for _, v := range texts(t, server, numbered(n).FQDN) {
				if v == numbered(n).Value {
					times++
				}
			}
			return times
		},
		Slow: func(on bool) {
			if current = p; on { // BIND itself cannot be made silent
				current = newProvider(t, rfc2136.Config{Nameserver: slow.Addr(), Key: key})
			}
		},
	})
}
