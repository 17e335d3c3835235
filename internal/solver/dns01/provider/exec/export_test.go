package exec

// Waiting returns how many wait for a place.
func (p *Pool) Waiting() int { return int(p.waiting.Load()) }

// Places returns how many places are taken.
func (p *Pool) Places() int { return len(p.slots) }
