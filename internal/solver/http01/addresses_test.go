package http01_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/http01"
)

// hosts are HTTP servers by their address, as DNS knows them; nil refuses connections. They are on
// loopback in truth.
type hosts struct {
	dials map[string]string

	mu    sync.Mutex
	asked map[string]int
}

func newHosts(t *testing.T, handlers map[string]http.HandlerFunc) *hosts {
	t.Helper()
	h := &hosts{dials: map[string]string{}, asked: map[string]int{}}
	for ip, handler := range handlers {
		if handler == nil {
			continue
		}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.mu.Lock()
			h.asked[ip]++
			h.mu.Unlock()
			handler(w, r)
		}))
		t.Cleanup(s.Close)
		h.dials[ip] = s.Listener.Addr().String()
	}
	return h
}

func (h *hosts) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ip, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	to, ok := h.dials[ip]
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

// nameOf starts a DNS server that knows www.example.test at the given addresses.
func nameOf(t *testing.T, addresses ...string) string {
	t.Helper()
	zone := dnsserver.Zone{Name: "example.test"}
	for _, text := range addresses {
		kind := "A"
		if netip.MustParseAddr(text).Is6() {
			kind = "AAAA"
		}
		zone.Records = append(zone.Records, fmt.Sprintf("www.example.test. 60 IN %s %s", kind, text))
	}
	s, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{zone}})
	if err != nil {
		t.Fatal(err)
	}
	return s.Addr()
}

// A CA asks from several places, each at an address of its choice: one address that answers wrongly fails
// the challenge. An address that does not answer may only be out of reach from here.
func TestSelfCheckAsksEveryAddress(t *testing.T) {
	const v4, other, v6 = "203.0.113.1", "203.0.113.2", "2001:db8::1"
	right, wrong := text(200, "token-0."+thumbprint), text(404, "secret")
	elsewhere := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			wrong(w, r)
			return
		}
		http.Redirect(w, r, r.URL.Path+"?again", http.StatusFound)
	}
	many := map[string]http.HandlerFunc{}
	for n := range 20 {
		many[fmt.Sprintf("203.0.113.%d", 100+n)] = right
	}
	for _, c := range []struct {
		name   string
		hosts  map[string]http.HandlerFunc
		deny   string
		reason string // empty if the check passes
		says   []string
		asked  int
	}{
		{name: "all answer", hosts: map[string]http.HandlerFunc{v4: right, other: right, v6: right}, asked: 3},
		{name: "one answers wrongly", hosts: map[string]http.HandlerFunc{v4: right, other: wrong, v6: right}, asked: 3,
			reason: http01.ReasonWrongAnswer, says: []string{"at " + other, "wrong status code '404'"}},
		{name: "one redirects to itself, and answers wrongly", hosts: map[string]http.HandlerFunc{v4: right, v6: elsewhere}, asked: 3,
			reason: http01.ReasonWrongAnswer, says: []string{"at " + v6, "wrong status code '404'"}},
		{name: "one cannot be reached", hosts: map[string]http.HandlerFunc{v4: right, v6: nil}, asked: 1},
		{name: "one cannot be reached, one answers wrongly", hosts: map[string]http.HandlerFunc{v4: wrong, v6: nil}, asked: 1,
			reason: http01.ReasonWrongAnswer, says: []string{"at " + v4, "404"}},
		{name: "none can be reached", hosts: map[string]http.HandlerFunc{v4: nil, v6: nil},
			reason: http01.ReasonNotReachable, says: []string{"at " + v4, "at " + v6, "connection refused"}},
		{name: "one is off limits", hosts: map[string]http.HandlerFunc{v4: right, other: right}, deny: other + "/32", asked: 1},
		{name: "no more than eight", hosts: many, asked: 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHosts(t, c.hosts)
			o := http01.CheckOptions{Nameservers: []string{nameOf(t, slices.Collect(maps.Keys(c.hosts))...)}, Dial: h.dial, Timeout: 5 * time.Second}
			if c.deny != "" {
				o.Egress = egress.New(nil, []netip.Prefix{netip.MustParsePrefix(c.deny)})
			}
			err := http01.New(o, nil).Check(t.Context(), solver.Task{Challenge: challenge("ns", "www.example.test", 0)})
			asked := 0
			for _, n := range h.asked {
				asked += n
			}
			if asked != c.asked {
				t.Errorf("asked %v, want %d requests", h.asked, c.asked)
			}
			if c.reason == "" {
				if err != nil {
					t.Errorf("Check: %v", err)
				}
				return
			}
			if f := fault.Of(err); f == nil || f.Kind != fault.KindAfter || f.Reason != c.reason {
				t.Fatalf("Check = %v (%+v), want %s", err, f, c.reason)
			}
			for _, words := range c.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("Check says %q, not %q", err, words)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%q quotes the body", err)
			}
		})
	}
}

// A load balancer may lead only some connections to the responder: whoever has one can ask for several
// right answers in a row. One is enough otherwise.
func TestSelfCheckSeveralTimesInARow(t *testing.T) {
	const ip = "203.0.113.1"
	for passes, want := range map[int]int{0: 1, 5: 3} {
		n := 0
		h := newHosts(t, map[string]http.HandlerFunc{ip: func(w http.ResponseWriter, r *http.Request) {
			if n++; n == 3 {
				text(404, "")(w, r)
				return
			}
			text(200, "token-0."+thumbprint)(w, r)
		}})
		o := http01.CheckOptions{Nameservers: []string{nameOf(t, ip)}, Dial: h.dial, Passes: passes, Pause: time.Millisecond}
		err := http01.New(o, nil).Check(t.Context(), solver.Task{Challenge: challenge("ns", "www.example.test", 0)})
		if h.asked[ip] != want || (err == nil) != (passes == 0) {
			t.Errorf("%d passes: %v after %d requests, want %d", passes, err, h.asked[ip], want)
		}
	}
}
