package exec

// Waits reports whether the tenant waits for a place.
func (p *Pool) Waits(tenant string) bool { return p.places.Waits(tenant) }

// Places returns how many places are taken.
func (p *Pool) Places() int { return p.places.Taken() }

// Queued returns how many requests wait for their turn with a credential.
func (p *Pool) Queued() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		n += w.turn.Waiting()
	}
	return n
}
