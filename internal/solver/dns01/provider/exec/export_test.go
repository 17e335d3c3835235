package exec

// Waiting returns how many wait for a place.
func (p *Pool) Waiting() int { return int(p.waiting.Load()) }
