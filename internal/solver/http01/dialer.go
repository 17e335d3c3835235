package http01

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// Targets is a list of what may be connected to. The zero value allows all.
type Targets struct {
	// Allow, if not empty, are the only addresses.
	Allow []netip.Prefix
	// Deny are addresses that are never connected to; it wins over Allow.
	Deny []netip.Prefix
}

// permits reports whether an address may be connected to. IPv4 in IPv6 counts as IPv4.
func (t Targets) permits(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	for _, p := range t.Deny {
		if p.Contains(ip) {
			return false
		}
	}
	for _, p := range t.Allow {
		if p.Contains(ip) {
			return true
		}
	}
	return len(t.Allow) == 0
}

// Dialer connects to where names lead as a CA would, and to no address that is off limits.
type Dialer struct {
	resolver *net.Resolver
	targets  Targets
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewDialer makes a Dialer that asks the given name servers (host:port each, in turn; none means
// the system's). dial connects to an address (ip:port); nil means a net.Dialer.
func NewDialer(nameservers []string, targets Targets, dial func(ctx context.Context, network, address string) (net.Conn, error)) *Dialer {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return &Dialer{resolverOf(nameservers), targets, dial}
}

// resolverOf returns a resolver that asks the given servers in turn.
func resolverOf(servers []string) *net.Resolver {
	if len(servers) == 0 {
		return net.DefaultResolver
	}
	const dialTimeout = 3 * time.Second
	var turn atomic.Uint64
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		n := turn.Add(1) - 1
		return dialer.DialContext(ctx, network, servers[n%uint64(len(servers))])
	}}
}

// DialContext resolves a host, drops the addresses that may not be connected to, and
// connects to the first that can be.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := d.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	var lastErr error
	for _, ip := range addrs {
		if !d.targets.permits(ip) {
			if lastErr == nil {
				lastErr = offLimits(host, ip)
			}
			continue
		}
		conn, err := d.dial(ctx, network, net.JoinHostPort(ip.String(), port))
		if err == nil {
			return conn, nil
		}
		lastErr = fmt.Errorf("connecting to %s: %w", net.JoinHostPort(ip.String(), port), err)
	}
	return nil, lastErr
}

func offLimits(host string, ip netip.Addr) error {
	return fmt.Errorf("%s has the address %s, which self checks may not connect to", host, ip)
}

func (d *Dialer) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	addrs, err := d.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Name: host, IsNotFound: true}
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, nil
}
