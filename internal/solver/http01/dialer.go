package http01

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
)

// DialFunc connects to an address (host:port), as net.Dialer.DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer connects to the addresses of names as a CA would, unless a Policy denies the address.
type Dialer struct {
	resolver *net.Resolver
	policy   *egress.Policy
	dial     DialFunc
}

// NewDialer makes a Dialer that asks the given name servers in turn, host:port each; none means those of the system.
// dial connects to an address (ip:port); nil means a net.Dialer.
func NewDialer(nameservers []string, policy *egress.Policy, dial DialFunc) *Dialer {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return &Dialer{resolverOf(nameservers), policy, dial}
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

// maxAddresses bounds the addresses of one name that are asked: its owner may list thousands.
const maxAddresses = 8

// DialContext resolves a host and connects to the first address that is permitted and answers.
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
		conn, err := d.dialAt(ctx, network, host, ip, port)
		if err == nil {
			return conn, nil
		}
		if lastErr == nil || d.policy.Permits(ip) {
			lastErr = err
		}
	}
	return nil, lastErr
}

// dialAt connects to one address of a host.
func (d *Dialer) dialAt(ctx context.Context, network, host string, ip netip.Addr, port string) (net.Conn, error) {
	if err := d.policy.Check(host, ip); err != nil {
		return nil, err
	}
	address := net.JoinHostPort(ip.String(), port)
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	return conn, nil
}

// at returns a function that connects to a host at one of its addresses, and to other hosts like DialContext.
func (d *Dialer) at(host string, ip netip.Addr) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if name, port, err := net.SplitHostPort(address); err == nil && name == host {
			return d.dialAt(ctx, network, host, ip, port)
		}
		return d.DialContext(ctx, network, address)
	}
}

// Each calls look for each address of a host, at most eight and all at once, because a CA may choose any of them. If
// one address gives a wrong answer, that is the result. The CA may reach an address that this process does not reach
// (ReasonNotReachable): such an address counts only if no address answers. look MUST connect by dial. where names the
// address for messages; it is empty if there is only one.
func (d *Dialer) Each(ctx context.Context, host string, look func(ctx context.Context, dial DialFunc, where string) error) error {
	addrs, err := d.addresses(ctx, host)
	if err != nil {
		return look(ctx, func(context.Context, string, string) (net.Conn, error) { return nil, err }, "")
	}
	if len(addrs) == 1 {
		return look(ctx, d.at(host, addrs[0]), "")
	}
	slices.SortFunc(addrs, netip.Addr.Compare) // so that messages are the same on each try
	addrs = addrs[:min(len(addrs), maxAddresses)]
	errs := make([]error, len(addrs))
	var wg sync.WaitGroup
	for i, ip := range addrs {
		wg.Go(func() {
			defer fault.Contain(&errs[i])
			errs[i] = look(ctx, d.at(host, ip), " at "+ip.String())
		})
	}
	wg.Wait()
	return overall(errs)
}

// overall is the result of the results at all addresses of a host.
func overall(errs []error) error {
	var silent []string
	for _, err := range errs {
		f := fault.Of(err)
		switch {
		case err == nil:
		case f != nil && f.Reason == ReasonNotReachable:
			silent = append(silent, err.Error())
		default:
			return err
		}
	}
	if len(silent) < len(errs) {
		return nil
	}
	return notReachable("%s", strings.Join(silent, "; "))
}

// addresses is an egress.Lookup.
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
