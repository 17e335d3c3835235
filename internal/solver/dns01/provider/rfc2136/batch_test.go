package rfc2136_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/limit"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// crowd is changes that come while the first update is held up.
type crowd struct {
	server *dnsserver.Server
	queues *rfc2136.Queues
	// open lets the first update go, and all that follow.
	open func()
	p    *rfc2136.Provider
	errs sync.Map
	all  sync.WaitGroup
}

// await polls for what other goroutines do.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(rig.Patience); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // a short poll with a deadline
	}
}

func newCrowd(t *testing.T, server *dnsserver.Server, tcp bool, o rfc2136.Options) *crowd {
	t.Helper()
	held := make(chan struct{})
	c := &crowd{server: server, queues: rfc2136.NewQueues(), open: sync.OnceFunc(func() { close(held) })}
	t.Cleanup(c.open)
	o.Timeout, o.Queues = 30*time.Second, c.queues
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	var err error
	c.p, err = rfc2136.New(rfc2136.Config{Nameserver: server.Addr(), TCP: tcp, Key: mustKey(t, "update.key", "HMACSHA256", bindSecret)}, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// firstUnderWay waits until the first update is held up.
func (c *crowd) firstUnderWay(t *testing.T) {
	t.Helper()
	await(t, "the first update", func() bool { return c.queues.Busy() == 1 && c.queues.Waiting() == 0 })
}

func signed(t *testing.T) *dnsserver.Server {
	t.Helper()
	return serve(t, mustKey(t, "update.key", "HMACSHA256", bindSecret))
}

// present presents a record in the background. When it returns, the record has to be there.
func (c *crowd) present(ctx context.Context, t *testing.T, r dns01.Record) {
	t.Helper()
	c.all.Go(func() {
		err := c.p.Present(ctx, r)
		if err == nil && !slices.Contains(c.server.TXT(), r.FQDN+" "+r.Value) {
			t.Errorf("Present of %s returned before its record was there", r.FQDN)
		}
		c.errs.Store(r.FQDN, err)
	})
}

func (c *crowd) errorOf(r dns01.Record) error {
	err, _ := c.errs.Load(r.FQDN)
	if err == nil {
		return nil
	}
	return err.(error)
}

func host(i int) dns01.Record {
	return record(fmt.Sprintf("host-%02d.example.test", i), strings.Repeat(string(rune('A'+i%26)), 43))
}

// Fifty records that are asked for at once take a few messages, over UDP by four, as no
// larger one is sure to be read. One alone takes one, and waits for nobody.
func TestBatch(t *testing.T) {
	for _, c := range []struct {
		tcp  bool
		most int
	}{{false, 14}, {true, 2}} {
		t.Run(fmt.Sprintf("tcp=%t", c.tcp), func(t *testing.T) {
			crowd := newCrowd(t, signed(t), c.tcp, rfc2136.Options{})
			crowd.present(t.Context(), t, host(0))
			crowd.firstUnderWay(t)
			for i := 1; i < 50; i++ {
				crowd.present(t.Context(), t, host(i))
			}
			await(t, "49 changes", func() bool { return crowd.queues.Waiting() == 49 })
			crowd.open()
			crowd.all.Wait()
			for i := range 50 {
				if err := crowd.errorOf(host(i)); err != nil {
					t.Error(err)
				}
			}
			if n := len(crowd.server.TXT()); n != 50 {
				t.Errorf("%d records in DNS, want 50", n)
			}
			took := crowd.server.Queries(0, dns.TypeNone)
			t.Logf("50 records took %d messages", took)
			if took > c.most {
				t.Errorf("50 records took %d messages, want %d or fewer", took, c.most)
			}
			if err := crowd.p.CleanUp(t.Context(), host(7)); err != nil || crowd.server.Queries(0, dns.TypeNone) != took+1 {
				t.Errorf("one change took %d messages: %v", crowd.server.Queries(0, dns.TypeNone)-took, err)
			}
			await(t, "the end of the queues", func() bool { return crowd.queues.Busy() == 0 })
		})
	}
}

// A record that the server refuses fails alone, with its own name in the words; adding and
// removing go together, and a caller that has gone away takes nothing along.
func TestBatchWithBadOnes(t *testing.T) {
	crowd := newCrowd(t, signed(t), true, rfc2136.Options{})
	before := newProvider(t, rfc2136.Config{Nameserver: crowd.server.Addr(), Key: mustKey(t, "update.key", "HMACSHA256", bindSecret)})
	if err := before.Present(t.Context(), host(30)); err != nil {
		t.Fatal(err)
	}
	crowd.present(t.Context(), t, host(0))
	crowd.firstUnderWay(t)
	bad := host(5)
	bad.FQDN = "_acme-challenge.elsewhere.test." // NOTZONE (RFC 2136 §3.4.1.3)
	gone, leave := context.WithCancel(t.Context())
	for i := 1; i < 20; i++ {
		switch i {
		case 5:
			crowd.present(t.Context(), t, bad)
		case 9:
			crowd.present(gone, t, host(9))
		default:
			crowd.present(t.Context(), t, host(i))
		}
	}
	crowd.all.Go(func() {
		if err := crowd.p.CleanUp(t.Context(), host(30)); err != nil {
			t.Error(err)
		}
	})
	await(t, "20 changes", func() bool { return crowd.queues.Waiting() == 20 })
	leave()
	await(t, "who has left", func() bool { return crowd.errorOf(host(9)) != nil })
	crowd.open()
	crowd.all.Wait()
	for i := range 20 {
		if err := crowd.errorOf(host(i)); err != nil && i != 5 && i != 9 {
			t.Errorf("host %d: %v", i, err)
		}
	}
	err := crowd.errorOf(bad)
	if f := fault.Of(err); f == nil || f.Reason != dns01.ReasonRefused || !strings.Contains(err.Error(), "elsewhere.test.: NOTZONE") {
		t.Errorf("the bad one: %v", err)
	}
	if left := crowd.server.TXT(); len(left) != 18 {
		t.Errorf("%d records in DNS, want 18: all but the bad one and that of who left, and not the one that was removed: %q", len(left), left)
	}
}

// What is wrong with the key is wrong for all: one message tells, and three have the key
// pause, for all its zones. Another key goes on.
func TestBatchWithAWrongKey(t *testing.T) {
	server := serve(t, mustKey(t, "update.key", "HMACSHA256", "AAAAAAAA"))
	now := time.Now()
	limits := limit.New(limit.Options{Now: func() time.Time { return now }})
	crowd := newCrowd(t, server, true, rfc2136.Options{Limits: limits})
	crowd.present(t.Context(), t, host(0))
	crowd.firstUnderWay(t)
	for i := 1; i < 20; i++ {
		crowd.present(t.Context(), t, host(i))
	}
	await(t, "19 changes", func() bool { return crowd.queues.Waiting() == 19 })
	crowd.open()
	crowd.all.Wait()
	for i := range 20 {
		if err := crowd.errorOf(host(i)); err == nil || !strings.Contains(err.Error(), "BADSIG") || !strings.Contains(err.Error(), host(i).FQDN) {
			t.Errorf("host %d: %v", i, err)
		}
	}
	if took := server.Queries(0, dns.TypeNone); took != 2 {
		t.Errorf("20 changes with a wrong key took %d messages, want 2", took)
	}
	_ = crowd.p.Present(t.Context(), host(0))
	other := host(1)
	other.Zone = "other.test."
	if f := fault.Of(crowd.p.Present(t.Context(), other)); f == nil || f.Reason != limit.ReasonPaused || f.Delay != 30*time.Second {
		t.Errorf("after three failures: %+v", f)
	}
	if took := server.Queries(0, dns.TypeNone); took != 3 {
		t.Errorf("the server was asked %d times, want 3", took)
	}
	right, err := rfc2136.New(rfc2136.Config{Nameserver: server.Addr(), TCP: true, Key: mustKey(t, "update.key", "HMACSHA256", "AAAAAAAA")},
		rfc2136.Options{Queues: crowd.queues, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	if err := right.Present(t.Context(), host(0)); err != nil {
		t.Errorf("with the right key: %v", err)
	}
}

// When nobody waits any more, an update that nobody answers ends, and its queue with it.
func TestEverybodyLeaves(t *testing.T) {
	crowd := newCrowd(t, signed(t), false, rfc2136.Options{})
	ctx, leave := context.WithCancel(t.Context())
	crowd.present(ctx, t, host(0))
	crowd.firstUnderWay(t)
	crowd.present(ctx, t, host(1))
	await(t, "another change", func() bool { return crowd.queues.Waiting() == 1 })
	leave()
	crowd.all.Wait()
	await(t, "the end of the queue", func() bool { return crowd.queues.Busy() == 0 })
	if n := crowd.server.Queries(0, dns.TypeNone); n != 0 {
		t.Errorf("%d updates were sent for nobody", n)
	}
}

// BIND takes such messages as well.
func TestBatchBIND(t *testing.T) {
	server := startBIND(t)
	for _, tcp := range []bool{false, true} {
		p := newProvider(t, rfc2136.Config{Nameserver: server, TCP: tcp, Key: mustKey(t, "hmacsha256.key", "HMACSHA256", bindSecret)})
		for _, step := range []struct {
			change func(context.Context, dns01.Record) error
			want   int
		}{{p.Present, 50}, {p.CleanUp, 0}} {
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					if err := step.change(t.Context(), host(i)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			there := 0
			for i := range 50 {
				there += len(texts(t, server, host(i).FQDN))
			}
			if there != step.want {
				t.Errorf("tcp %t: %d records, want %d", tcp, there, step.want)
			}
		}
	}
}
