package egress_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"chancery.dev/internal/egress"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestDeniedByDefault(t *testing.T) {
	p := egress.New(nil, nil)
	for _, text := range []string{
		"0.0.0.0", "0.255.255.255", "127.0.0.1", "127.255.255.254", "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16",
		"::", "::1", "fe80::1", "fe80::1%eth0", "febf::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
		// The same addresses in other forms.
		"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0.0.0.0", "::ffff:100.100.100.200", "::127.0.0.1",
		"64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::0.0.0.0", "64:ff9b::100.100.100.200",
		"64:ff9b:1::169.254.169.254", "64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:ffa9:fe:a9fe::", "64:ff9b:1:ffff:a9:fea9:fe00::",
		"2002:a9fe:a9fe::1", "2002:7f00:1::",
	} {
		if p.Permits(netip.MustParseAddr(text)) {
			t.Errorf("%s is permitted", text)
		}
	}
	for _, text := range []string{
		"1.1.1.1", "10.0.0.1", "192.168.1.1", "100.100.100.201", "126.255.255.255", "128.0.0.1", "169.253.255.255", "169.255.0.0",
		"2606:4700::1111", "fec0::1", "fd00:ec1::1", "fd12:3456::1", "64:ff9b::1.1.1.1", "64:ff9b:1::10.0.0.1", "2002:101:101::1", "::ffff:8.8.8.8",
	} {
		if !p.Permits(netip.MustParseAddr(text)) {
			t.Errorf("%s is not permitted", text)
		}
	}
	var none *egress.Policy
	if !none.Permits(netip.MustParseAddr("127.0.0.1")) {
		t.Error("no policy denies something")
	}
}

func TestAllowAndDeny(t *testing.T) {
	for _, c := range []struct {
		name        string
		allow, deny []netip.Prefix
		yes, no     string
	}{
		{"only these", prefixes("203.0.113.0/24", "2001:db8::/32"), nil, "203.0.113.7 2001:db8::1 64:ff9b::203.0.113.7", "1.1.1.1 2001:db9::1 127.0.0.1 64:ff9b::1.1.1.1"},
		{"not these", nil, prefixes("10.0.0.0/8", "2001:db8::/32"), "1.1.1.1 11.0.0.1", "10.1.2.3 64:ff9b::10.1.2.3 ::ffff:10.1.2.3 2001:db8::1 127.0.0.1"},
		{"deny wins", prefixes("10.0.0.0/8"), prefixes("10.1.0.0/16"), "10.2.0.1", "10.1.0.1"},
		{"deny in mapped form", nil, prefixes("::ffff:10.0.0.0/104"), "11.0.0.1", "10.1.2.3"},
		{"all is not what is denied by default", prefixes("0.0.0.0/0", "::/0"), nil, "10.0.0.1 2001:db8::1", "127.0.0.1 ::1 169.254.169.254 fe80::1"},
		{"loopback beside all", prefixes("0.0.0.0/0", "::/0", "127.0.0.0/8", "::1/128"), nil, "127.0.0.1 ::1 1.1.1.1 64:ff9b::127.0.0.1", "169.254.169.254 0.0.0.0 ::"},
		{"a part of loopback", prefixes("127.0.0.53/32"), nil, "127.0.0.53", "127.0.0.1 1.1.1.1"},
		{"denied by default, allowed, denied", prefixes("127.0.0.0/8"), prefixes("127.0.0.1/32"), "127.0.0.2", "127.0.0.1"},
	} {
		p := egress.New(c.allow, c.deny)
		for text := range strings.FieldsSeq(c.yes) {
			if !p.Permits(netip.MustParseAddr(text)) {
				t.Errorf("%s: %s is not permitted", c.name, text)
			}
		}
		for text := range strings.FieldsSeq(c.no) {
			if p.Permits(netip.MustParseAddr(text)) {
				t.Errorf("%s: %s is permitted", c.name, text)
			}
		}
	}
}

// A name that leads to a denied address is no way around: the address is judged when the connection is made.
func TestDialer(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	loopback := egress.New(prefixes("127.0.0.0/8", "::1/128"), nil)
	for _, network := range []string{"tcp", "udp"} {
		for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1", "0.0.0.0"} {
			conn, err := egress.New(nil, nil).Dialer(net.Dialer{}).DialContext(t.Context(), network, net.JoinHostPort(host, port))
			var denied *egress.Denied
			if conn != nil || !errors.As(err, &denied) || !strings.Contains(err.Error(), "off limits") {
				t.Errorf("%s to %s: %v", network, host, err)
			}
		}
		conn, err := loopback.Dialer(net.Dialer{}).DialContext(t.Context(), network, net.JoinHostPort("localhost", port))
		if err != nil {
			t.Errorf("allowed: %v", err)
			continue
		}
		_ = conn.Close()
	}
}

func TestTarget(t *testing.T) {
	found := map[string][]netip.Addr{
		"good.test": {netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("2001:db8::1")},
		"evil.test": {netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("169.254.169.254")},
	}
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		if addrs := found[host]; addrs != nil {
			return addrs, nil
		}
		return nil, &net.DNSError{Name: host, IsNotFound: true}
	}
	strict := egress.New(nil, prefixes("10.0.0.0/8"))
	for host, want := range map[string][2]string{ // by default, and with limits
		"good.test":    {"", ""},
		"evil.test":    {"evil.test has the address 169.254.169.254, which is off limits", "off limits"},
		"unknown.test": {"", "unknown.test"},
	} {
		for i, p := range []*egress.Policy{egress.New(nil, nil), strict} {
			err := p.Target(t.Context(), host, lookup)
			if (err == nil) != (want[i] == "") || err != nil && !strings.Contains(err.Error(), want[i]) {
				t.Errorf("%s: %v, want %q", host, err, want[i])
			}
		}
	}
	if err := (*egress.Policy)(nil).Target(t.Context(), "evil.test", lookup); err != nil {
		t.Error(err)
	}
	if err := egress.New(nil, nil).Target(t.Context(), "169.254.169.254", egress.SystemLookup); err == nil {
		t.Error("an address is not judged")
	}
}

// TestRanges: another process makes the same Policy of the text.
func TestRanges(t *testing.T) {
	p := egress.New(prefixes("::ffff:10.0.0.0/104", "127.0.0.0/8"), prefixes("10.1.0.0/16"))
	same, err := egress.Parse(p.Ranges())
	if err != nil || !reflect.DeepEqual(same, p) {
		t.Errorf("%+v, %v; want %+v", same, err, p)
	}
	if _, err := egress.Parse([]string{"10.0.0.1"}, nil); err == nil {
		t.Error("an address was read as a range")
	}
}
