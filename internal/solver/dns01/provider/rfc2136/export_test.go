package rfc2136

// Waiting is how many changes wait for the update that is under way.
func (q *Queues) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, waiting := range q.waiting {
		n += len(waiting)
	}
	return n
}

// Busy is how many queues have an update under way.
func (q *Queues) Busy() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}
