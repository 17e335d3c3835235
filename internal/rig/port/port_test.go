package port_test

import (
	"net"
	"net/netip"
	"testing"

	"chancery.dev/internal/rig/port"
)

// TestFree: a port from which connections go out may be taken by one of them before
// anybody listens there. The process that was told to then ends at once.
func TestFree(t *testing.T) {
	seen := map[uint16]bool{}
	for range 2000 {
		address, err := port.Free(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen[address.Port()] {
			t.Fatalf("%s was given twice", address)
		}
		seen[address.Port()] = true
		if address.Port() >= 32768 || address.Port() < 1024 || !address.Addr().IsLoopback() {
			t.Fatalf("%s may be taken by others", address)
		}
	}
	address, err := port.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// TestFreePassesOver what somebody listens on, by TCP or by UDP.
func TestFreePassesOver(t *testing.T) {
	first, err := port.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after := func(n uint16) string { return netip.AddrPortFrom(first.Addr(), first.Port()+n).String() }
	var config net.ListenConfig
	if l, err := config.Listen(t.Context(), "tcp", after(1)); err == nil { // or somebody has it: as good
		defer func() { _ = l.Close() }()
	}
	if l, err := config.ListenPacket(t.Context(), "udp", after(2)); err == nil {
		defer func() { _ = l.Close() }()
	}
	if got, err := port.Free(t.Context()); err != nil || got.String() == after(1) || got.String() == after(2) {
		t.Errorf("%s is taken, %v", got, err)
	}
}
