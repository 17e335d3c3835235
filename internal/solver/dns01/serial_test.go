package dns01_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/dns01"
)

// behind is what is said of a server whose copy of the zone is old.
const behind = " (it has not taken over the newest version of the zone yet: its SOA serial is older)"

// says is what a self check that fails says.
func (w *world) says(t *testing.T, task solver.Task) string {
	t.Helper()
	err := w.solver.Check(t.Context(), task)
	if err == nil {
		t.Fatal("Check passes")
	}
	return err.Error()
}

// soaQueries counts the questions for an SOA record at both servers.
func (w *world) soaQueries() int {
	return w.dns.Queries(0, dns.TypeSOA) + w.dns.Queries(1, dns.TypeSOA)
}

// A server that has not taken over the zone yet is called so, in the same words whatever else moves
// the serials; and nobody is asked for an SOA record but where servers disagree.
func TestCheckSaysWhoIsBehind(t *testing.T) {
	w := newWorld(t, nil)
	w.dns.SetDelay(1, time.Minute)
	for _, name := range []string{"www.example.test", "www.wrap.test"} { // the serial of one wraps around
		task := w.task(name, "value")
		w.notYet(t, task, "2 of 2", "NXDOMAIN")
		asked := w.soaQueries()
		if said := w.says(t, task); strings.Contains(said, "SOA serial") {
			t.Errorf("of servers that agree it says %q", said)
		}
		if n := w.soaQueries() - asked; n != 0 {
			t.Errorf("asked for %d SOA records where all servers agree that there is no record", n)
		}
		w.mustPresent(t, task)
		w.notYet(t, task, "1 of 2", "ns2."+name[4:]+". (127.0.0.2:", "NXDOMAIN, the name does not exist"+behind)
		asked = w.soaQueries()
		said := w.says(t, task)
		if n := w.soaQueries() - asked; n != 1 {
			t.Errorf("asked for %d SOA records, want that of the server with the record", n)
		}
		w.mustPresent(t, w.task("other."+name[4:], "another"))
		if again := w.says(t, task); again != said {
			t.Errorf("first it said %q, after an update of something else %q", said, again)
		}
		w.step(time.Minute)
		asked = w.soaQueries()
		w.passes(t, task)
		if n := w.soaQueries() - asked; n != 0 {
			t.Errorf("asked for %d SOA records where all servers have the record", n)
		}
	}
}

// A server may have a value under the name already, and not the newest.
func TestCheckSaysWhoHasOldValuesOnly(t *testing.T) {
	w := newWorld(t, nil)
	first := w.task("www.example.test", "first")
	w.mustPresent(t, first)
	w.passes(t, first)
	w.dns.SetDelay(1, time.Minute)
	task := w.task("www.example.test", "second")
	w.mustPresent(t, task)
	w.notYet(t, task, "1 of 2", "1 other TXT values"+behind)
}

// With enough servers for the quorum it does not matter who is behind.
func TestQuorumAsksForNoSerials(t *testing.T) {
	w := newWorld(t, func(o *dns01.Options) { o.Quorum = 1 })
	w.dns.SetDelay(1, time.Minute)
	task := w.task("www.example.test", "value")
	w.mustPresent(t, task)
	w.passes(t, task)
	asked := w.soaQueries()
	w.passes(t, task)
	if n := w.soaQueries() - asked; n != 0 {
		t.Errorf("asked for %d SOA records with the quorum reached", n)
	}
}

// A server that says nothing of its zone, or what does not fit, is told of as before: at worst the
// words about it are wrong.
func TestSerialsThatDoNotFit(t *testing.T) {
	onSOA := func(change func(*dns.SOA)) func(*dns.Msg) {
		return func(m *dns.Msg) {
			for _, rr := range m.Ns {
				if soa, ok := rr.(*dns.SOA); ok {
					change(soa)
				}
			}
		}
	}
	ofPrimary := func(change func(*dns.Msg)) func(*dns.Msg) {
		return func(m *dns.Msg) {
			if m.Question[0].Qtype == dns.TypeSOA && !m.RecursionDesired {
				change(m)
			}
		}
	}
	for name, c := range map[string]struct {
		of     string // the server that lies
		change func(*dns.Msg)
		want   string
	}{
		"as it is":            {"127.0.0.2:", func(*dns.Msg) {}, behind},
		"no SOA":              {"127.0.0.2:", func(m *dns.Msg) { m.Ns = nil }, ""},
		"of the parent":       {"127.0.0.2:", onSOA(func(s *dns.SOA) { s.Hdr.Name = "test." }), ""},
		"of another primary":  {"127.0.0.2:", onSOA(func(s *dns.SOA) { s.Ns = "ns2.example.test." }), ""},
		"ahead":               {"127.0.0.2:", onSOA(func(s *dns.SOA) { s.Serial += 1000 }), ""},
		"without order":       {"127.0.0.2:", onSOA(func(s *dns.SOA) { s.Serial = 2 + 1<<31 }), ""},
		"primary: failure":    {"127.0.0.1:", ofPrimary(func(m *dns.Msg) { m.Rcode, m.Answer = dns.RcodeServerFailure, nil }), ""},
		"primary: nothing":    {"127.0.0.1:", ofPrimary(func(m *dns.Msg) { m.Answer = nil }), ""},
		"primary: cached":     {"127.0.0.1:", ofPrimary(func(m *dns.Msg) { m.Authoritative = false }), ""},
		"primary: other zone": {"127.0.0.1:", ofPrimary(func(m *dns.Msg) { m.Answer[0].Header().Name = "test." }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := make(chan string, 1)
			liar := front(t, func() string { a := <-upstream; upstream <- a; return a }, c.change)
			w := newWorld(t, func(o *dns01.Options) {
				o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					if strings.HasPrefix(address, c.of) && network == "udp" {
						address = liar
					}
					return new(net.Dialer).DialContext(ctx, network, address)
				}
			})
			if c.of == "127.0.0.2:" {
				upstream <- w.dns.AddrOf(1)
			} else {
				upstream <- w.dns.Addr()
			}
			w.dns.SetDelay(1, time.Minute)
			task := w.task("www.example.test", "value")
			w.mustPresent(t, task)
			w.notYet(t, task, "1 of 2", "NXDOMAIN, the name does not exist"+c.want)
			if said := w.says(t, task); strings.Contains(said, "SOA serial") != (c.want != "") {
				t.Errorf("it says %q", said)
			}
		})
	}
}
