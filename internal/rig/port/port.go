// Package port finds free ports on the loopback interface, for a server that listens later: a process that takes its
// port as an argument, or a server that a test stops and starts again. The package does not reserve the port: another
// process may take the port before the server listens.
package port

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
)

// Ports below 1024 need rights. Those from 32768 on are what Linux takes for the near
// end of outgoing connections (ip_local_port_range; elsewhere it is those from 49152,
// RFC 6335 §6), so that one of them may be gone by the time somebody listens.
const (
	lowest = 10_000
	behind = 32_768
)

// pool hands out ports in order, from a random one on.
type pool struct {
	mu   sync.Mutex
	next uint16
}

// shared is the pool of this process.
var shared = sync.OnceValue(func() *pool { return &pool{next: lowest + rand.N[uint16](behind-lowest)} })

// Free returns an address of 127.0.0.1 where nobody listens, by TCP or UDP. It returns
// each one once, and processes that look at the same time are unlikely to meet. The
// error says that all ports are taken, or that ctx has ended.
func Free(ctx context.Context) (netip.AddrPort, error) { return shared().free(ctx) }

func (p *pool) free(ctx context.Context) (netip.AddrPort, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for range behind - lowest {
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p.next)
		if p.next++; p.next == behind {
			p.next = lowest
		}
		if err = probe(ctx, address.String()); err == nil {
			return address, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return netip.AddrPort{}, fmt.Errorf("find a free port: %w", err)
}

func probe(ctx context.Context, address string) error {
	var config net.ListenConfig
	stream, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // only its number is wanted
	packets, err := config.ListenPacket(ctx, "udp", address)
	if err != nil {
		return err
	}
	return packets.Close()
}
