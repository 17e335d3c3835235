package rig

import (
	"net"
	"net/netip"
	"testing"
)

// FreeAddress returns an address on loopback where nobody listens, or not any more.
func FreeAddress(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return netip.MustParseAddrPort(l.Addr().String())
}
