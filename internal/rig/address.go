package rig

import (
	"net/netip"
	"testing"

	"chancery.dev/internal/rig/port"
)

// FreeAddress returns an address on loopback where nobody listens.
func FreeAddress(t testing.TB) netip.AddrPort {
	t.Helper()
	address, err := port.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}
