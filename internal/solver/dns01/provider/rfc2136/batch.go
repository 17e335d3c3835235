package rfc2136

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/limit"
)

const (
	// maxUDP bounds a message over UDP: nothing larger is sure to be read (RFC 1035 §2.3.4).
	maxUDP = dns.MinMsgSize
	// maxTCP and maxChanges bound one over TCP.
	maxTCP     = 16 << 10
	maxChanges = 100
)

// Queues collect changes into updates. While an update is under way, the changes of the same zone, by the same key at
// the same server, wait and become the next update. A single change is sent at once. NewQueues makes Queues.
type Queues struct {
	mu sync.Mutex
	// waiting has an entry, maybe an empty one, for each queue with an update under way.
	waiting map[string][]*change
}

// NewQueues makes Queues.
func NewQueues() *Queues { return &Queues{waiting: map[string][]*change{}} }

// change is a record to add or to remove.
type change struct {
	by     *Provider
	record dns01.Record
	remove bool
	// ctx ends when the caller does not wait any more.
	ctx context.Context //nolint:containedctx // the life of one of the callers that a message is for
	// done is closed once answer is there.
	done   chan struct{}
	answer error
}

// change makes a change with the next update of its queue.
func (p *Provider) change(ctx context.Context, r dns01.Record, remove bool) error {
	c := &change{by: p, record: r, remove: remove, ctx: ctx, done: make(chan struct{})}
	key, err := limit.KeyOf(p.identity(), r.Zone)
	if err != nil {
		return err
	}
	p.o.Queues.join(key, c)
	select {
	case <-c.done:
		return c.answer
	case <-ctx.Done():
		return p.unanswered(r, ctx.Err())
	}
}

func (q *Queues) join(key string, c *change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, busy := q.waiting[key]
	q.waiting[key] = append(waiting, c)
	if !busy {
		go q.work(key)
	}
}

// work sends updates until no change waits.
func (q *Queues) work(key string) {
	for batch := q.take(key); len(batch) > 0; batch = q.take(key) {
		flush(batch)
	}
}

// take returns the changes of the next update, or ends the queue.
func (q *Queues) take(key string) []*change {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := wanted(q.waiting[key])
	if len(waiting) == 0 {
		delete(q.waiting, key)
		return nil
	}
	n := 1
	for n < len(waiting) && n < maxChanges && fits(waiting[:n+1]) {
		n++
	}
	q.waiting[key] = slices.Clone(waiting[n:])
	return waiting[:n]
}

// wanted returns the changes whose callers still wait.
func wanted(all []*change) []*change {
	return slices.DeleteFunc(slices.Clone(all), func(c *change) bool { return c.ctx.Err() != nil })
}

// fits reports whether changes make a message that the transport may carry.
func fits(batch []*change) bool {
	p, limit := batch[0].by, maxTCP
	if p.network == "udp" {
		limit = maxUDP
	}
	size := message(batch).Len()
	if p.key != nil {
		size += p.key.size()
	}
	return size <= limit
}

// message is the update that makes changes: each for itself, without prerequisites, in the
// order in which they were asked for (RFC 2136 §2.5).
func message(batch []*change) *dns.Msg {
	m := new(dns.Msg).SetUpdate(batch[0].record.Zone)
	m.Compress = len(batch) > 1
	for _, c := range batch {
		if c.remove {
			m.Remove([]dns.RR{record(c.record)})
		} else {
			m.Insert([]dns.RR{record(c.record)})
		}
	}
	return m
}

// flush makes changes, and tells each caller the result. If a server refuses a message, it makes none of the message's
// changes (RFC 2136 §3): then flush tries halves until the refused change is alone.
func flush(batch []*change) {
	if batch = wanted(batch); len(batch) == 0 {
		return
	}
	ctx, cancel := lifeOf(batch)
	defer cancel()
	p := batch[0].by
	var reply *dns.Msg
	var cause error
	split, asked := false, false
	err := p.o.Limits.Do(ctx, p.call(batch[0].record), func() error {
		reply, cause = p.send(ctx, message(batch))
		asked = true // else the error of Do, such as a panic, is for all callers
		if split = len(batch) > 1 && dependsOnNames(reply); split {
			return fault.After(0, dns01.ReasonRefused, "rfc2136: %s refuses some of %d changes", p.server, len(batch))
		}
		return p.verdict(batch[0].record, reply, cause)
	})
	if split {
		flush(batch[:len(batch)/2])
		flush(batch[len(batch)/2:])
		return
	}
	for _, c := range batch {
		if asked {
			err = c.by.verdict(c.record, reply, cause)
		}
		c.answer = err
		close(c.done)
	}
}

// lifeOf returns a context that ends when all callers of the changes have given up.
func lifeOf(batch []*change) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].ctx)) // of the same term
	var left atomic.Int32
	left.Store(int32(len(batch))) //nolint:gosec // at most maxChanges
	stops := make([]func() bool, 0, len(batch))
	for _, c := range batch {
		stops = append(stops, context.AfterFunc(c.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// dependsOnNames reports whether a refusal may concern some names only, not the key, the zone or the server.
func dependsOnNames(reply *dns.Msg) bool {
	if reply == nil || reply.Rcode == dns.RcodeSuccess || reply.Rcode == dns.RcodeNotAuth || reply.Rcode == dns.RcodeNotImplemented {
		return false
	}
	t := reply.IsTsig()
	return t == nil || t.Error == dns.RcodeSuccess
}

// verdict returns the result of one change.
func (p *Provider) verdict(r dns01.Record, reply *dns.Msg, cause error) error {
	if reply == nil {
		return p.unanswered(r, cause)
	}
	return p.judge(reply, cause, r)
}

func (p *Provider) unanswered(r dns01.Record, cause error) error {
	return fault.ClassUnavailable.After(0, dns01.ReasonUnreachable, "rfc2136: updating %s at %s over %s: %s", r.FQDN, p.server, p.network, egress.Cause(cause))
}

// identity tells servers and keys apart. Updates without a key share nothing with those of other namespaces.
func (p *Provider) identity() []any {
	if p.key == nil {
		return []any{"rfc2136", p.server, p.network, p.o.Namespace}
	}
	return []any{"rfc2136", p.server, p.network, p.key.Name, p.key.Algorithm, p.key.secret}
}

// call identifies an update of a zone for the limits: its turn does not depend on the changes in it.
func (p *Provider) call(r dns01.Record) limit.Call {
	key, err := limit.KeyOf(p.identity()...)
	if err != nil {
		key = p.server // it is all strings and octets, which cannot fail
	}
	return limit.Call{Key: key, Provider: "rfc2136 at " + p.server, ID: r.Zone}
}
