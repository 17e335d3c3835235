// Package egress decides to which addresses the controller connects on behalf of tenants, makes the connections, and
// explains in plain words why a connection failed.
//
// A tenant who writes an Issuer names servers: an ACME server, Vault, a DNS provider. The owner of a DNS name decides
// which addresses the name has, so a Policy judges each address at the time of the connection. The package does not
// decide for whom a Policy applies: callers do, and a nil *Policy allows everything.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"chancery.dev/internal/kube/leader/term"
)

// deniedByDefault are the addresses of the controller's own machine, and of services of clouds that trust every client.
const deniedByDefault = "0.0.0.0/8 127.0.0.0/8 169.254.0.0/16 100.100.100.200/32 168.63.129.16/32 ::/96 fe80::/10 fd00:ec2::/32 fd20:ce::254/128"

// Policy says which addresses may be connected to. New makes one.
type Policy struct {
	allow, deny, byDefault []netip.Prefix
}

// New makes a Policy. allow, if not empty, are the only addresses; deny are never connected to. Some addresses
// are denied by default (DeniedByDefault): allow has to name them, or a part of their range.
func New(allow, deny []netip.Prefix) *Policy {
	return &Policy{allow: canonical(allow), deny: canonical(deny), byDefault: DeniedByDefault()}
}

// Parse makes a Policy of ranges in text, as Ranges returns them.
func Parse(allow, deny []string) (*Policy, error) {
	var ranges [2][]netip.Prefix
	for i, texts := range [2][]string{allow, deny} {
		for _, text := range texts {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("an address range cannot be read: %w", err)
			}
			ranges[i] = append(ranges[i], prefix)
		}
	}
	return New(ranges[0], ranges[1]), nil
}

// Ranges returns the arguments of New as text, so that another process can make the same Policy. A nil Policy has no
// ranges.
func (p *Policy) Ranges() (allow, deny []string) {
	if p == nil {
		return nil, nil
	}
	for _, prefix := range p.allow {
		allow = append(allow, prefix.String())
	}
	for _, prefix := range p.deny {
		deny = append(deny, prefix.String())
	}
	return allow, deny
}

// DeniedByDefault returns the addresses that are denied unless an entry of allow names them: this host, link-local
// addresses, and the metadata services of clouds.
func DeniedByDefault() []netip.Prefix {
	var out []netip.Prefix
	for text := range strings.FieldsSeq(deniedByDefault) {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// canonical returns prefixes with IPv4-mapped IPv6 addresses as IPv4 addresses.
func canonical(prefixes []netip.Prefix) []netip.Prefix {
	const mapped = 96
	out := slices.Clone(prefixes)
	for i, p := range out {
		if p.Addr().Is4In6() && p.Bits() >= mapped {
			out[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
		}
	}
	return out
}

// Permits reports whether a connection to an address is permitted. If an IPv6 address leads to an IPv4 address by
// translation, neither of them may be denied, and one of them has to be allowed.
func (p *Policy) Permits(ip netip.Addr) bool {
	if p == nil {
		return true
	}
	all := forms(ip)
	allowed := len(p.allow) == 0
	for _, form := range all {
		if within(p.deny, form) || p.closed(form) {
			return false
		}
		allowed = allowed || within(p.allow, form)
	}
	return allowed
}

// closed reports whether an address is denied by default, and nothing in allow opens it.
func (p *Policy) closed(ip netip.Addr) bool {
	for _, d := range p.byDefault {
		opens := func(a netip.Prefix) bool { return a.Bits() >= d.Bits() && d.Contains(a.Addr()) && a.Contains(ip) }
		if d.Contains(ip) && !slices.ContainsFunc(p.allow, opens) {
			return true
		}
	}
	return false
}

func within(prefixes []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// forms returns an address, and the IPv4 addresses that translators take it for: NAT64 (RFC 6052, RFC 8215) and
// 6to4 (RFC 3056). IPv4-mapped addresses are IPv4 addresses.
func forms(ip netip.Addr) []netip.Addr {
	ip = ip.Unmap().WithZone("")
	out := []netip.Addr{ip}
	if ip.Is4() {
		return out
	}
	b := ip.As16()
	for _, t := range []struct {
		prefix string
		at     [4]int // the bytes of the IPv4 address
	}{
		{"64:ff9b::/96", [4]int{12, 13, 14, 15}},
		{"64:ff9b:1::/48", [4]int{12, 13, 14, 15}}, // with a prefix of 96 bits
		{"64:ff9b:1::/48", [4]int{9, 10, 11, 12}},  // of 64
		{"64:ff9b:1::/48", [4]int{7, 9, 10, 11}},   // of 56
		{"64:ff9b:1::/48", [4]int{6, 7, 9, 10}},    // of 48
		{"2002::/16", [4]int{2, 3, 4, 5}},
	} {
		// An address that starts with zero is taken for padding, except behind a prefix of 96 bits.
		if first := t.at[0]; netip.MustParsePrefix(t.prefix).Contains(ip) && (first == 12 || b[first] != 0) {
			out = append(out, netip.AddrFrom4([4]byte{b[t.at[0]], b[t.at[1]], b[t.at[2]], b[t.at[3]]}))
		}
	}
	return out
}

// Denied is the error of a connection that a Policy does not allow.
type Denied struct {
	// Host is the name of the server; empty if it is not known.
	Host string
	// IP is its address.
	IP netip.Addr
}

// Error says what is denied, and who can allow it.
func (d *Denied) Error() string {
	what := d.IP.String() + " is"
	if d.Host != "" && d.Host != d.IP.String() {
		what = d.Host + " has the address " + d.IP.String() + ", which is"
	}
	return what + " off limits for what tenants name (--issuer-egress-allow, --issuer-egress-deny)"
}

// Check returns nil if a connection to the address of a host is permitted, otherwise a *Denied.
func (p *Policy) Check(host string, ip netip.Addr) error {
	if p.Permits(ip) {
		return nil
	}
	return &Denied{host, ip}
}

// Dialer returns a dialer like d that connects to permitted addresses only, and within the term only. It judges the
// address of each connection as it is made, after names are resolved.
func (p *Policy) Dialer(d net.Dialer) *net.Dialer {
	d.ControlContext = func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		if err := term.Check(ctx); err != nil || p == nil {
			return err
		}
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", address, err)
		}
		return p.Check("", to.Addr())
	}
	return &d
}

// Lookup finds the addresses of a host, or of an address itself.
type Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

// SystemLookup is a Lookup by the system's resolver.
func SystemLookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// Target returns an error unless all addresses of a host are permitted. It is for hosts that a proxy or a program
// connects to, which resolves the name again. A name that does not resolve here is therefore permitted, unless the
// operator has set limits beside the default.
func (p *Policy) Target(ctx context.Context, host string, lookup Lookup) error {
	if p == nil {
		return nil
	}
	addrs, err := lookup(ctx, host)
	if noName := new(net.DNSError); errors.As(err, &noName) && len(p.allow)+len(p.deny) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	for _, ip := range addrs {
		if err := p.Check(host, ip); err != nil {
			return err
		}
	}
	return nil
}
