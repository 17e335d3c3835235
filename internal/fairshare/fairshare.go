// Package fairshare divides a number of places between namespaces. A place is the right to run one call or one process.
// If a tenant makes a call or a process hang, nobody can take back the place of this call or process.
//
// The function May has the only rule: a namespace takes one more place only if at least as many stay free as it holds
// then. A namespace without a place takes any free place. One namespace alone gets half of all places. If n namespaces
// want all places, each namespace gets 1/(n+1) of the places, and 1/(n+1) of the places stays free for the next
// namespace. internal/engine divides bytes by the same rule.
package fairshare

import (
	"context"
	"slices"
	"sync"
)

// May reports whether a holder of own places may take more of the free places. A holder of none may take any that are
// free. Any other holder must leave as many places free as the holder has then.
func May(own, free, more int) bool {
	return free >= more && (own == 0 || own+more <= free-more)
}

// Places are places to wait for. A free place goes to the namespace that holds the fewest; namespaces that hold as many
// take turns. Use New. They are safe for concurrent use.
type Places struct {
	total int

	mu    sync.Mutex
	taken int
	held  map[string]int
	// lines are who waits, a line for each namespace. The namespace that was served last is at the end.
	lines []line
}

// line is who waits in one namespace, the oldest first. Each is told by its channel that it has a place.
type line struct {
	namespace string
	waiting   []chan struct{}
}

// New returns so many places.
func New(total int) *Places { return &Places{total: total, held: map[string]int{}} }

// Take takes a place for a namespace. If it has to wait, it calls wait before, unless wait is nil. Its error is that of
// the context.
func (p *Places) Take(ctx context.Context, namespace string, wait func()) error {
	ready := make(chan struct{})
	p.mu.Lock()
	i := p.line(namespace)
	if i < 0 {
		i = len(p.lines)
		p.lines = append(p.lines, line{namespace: namespace})
	}
	p.lines[i].waiting = append(p.lines[i].waiting, ready)
	p.serve()
	p.mu.Unlock()
	if wait != nil && !isClosed(ready) {
		wait()
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if isClosed(ready) {
		return nil
	}
	i = p.line(namespace)
	p.lines[i].waiting = slices.DeleteFunc(p.lines[i].waiting, func(c chan struct{}) bool { return c == ready })
	p.lines = slices.DeleteFunc(p.lines, func(l line) bool { return len(l.waiting) == 0 })
	return ctx.Err()
}

// Try takes a place for a namespace if there is one now, and nobody waits for it.
func (p *Places) Try(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines) > 0 || !May(p.held[namespace], p.total-p.taken, 1) {
		return false
	}
	p.taken++
	p.held[namespace]++
	return true
}

// Free gives a place of a namespace back.
func (p *Places) Free(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.held[namespace]--; p.held[namespace] == 0 {
		delete(p.held, namespace)
	}
	p.serve()
}

// Wanted reports whether a waiting call would get a place if the namespace gave one back.
func (p *Places) Wanted(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.lines, func(l line) bool {
		own := p.held[l.namespace]
		if l.namespace == namespace {
			own--
		}
		return May(own, p.total-p.taken+1, 1)
	})
}

// Taken returns how many places are taken.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Waits reports whether the namespace waits for a place.
func (p *Places) Waits(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line(namespace) >= 0
}

// Waiting returns how many calls of Take wait for a place.
func (p *Places) Waiting() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		n += len(l.waiting)
	}
	return n
}

// line returns where the line of the namespace is; -1 if nobody waits. It is called with the lock held.
func (p *Places) line(namespace string) int {
	return slices.IndexFunc(p.lines, func(l line) bool { return l.namespace == namespace })
}

// serve gives places to those who may have one. It is called with the lock held.
func (p *Places) serve() {
	for {
		next := -1
		for i, l := range p.lines {
			own := p.held[l.namespace]
			if May(own, p.total-p.taken, 1) && (next < 0 || own < p.held[p.lines[next].namespace]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		l := p.lines[next]
		close(l.waiting[0])
		p.taken++
		p.held[l.namespace]++
		p.lines = slices.Delete(p.lines, next, next+1)
		if l.waiting = l.waiting[1:]; len(l.waiting) > 0 {
			p.lines = append(p.lines, l)
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
