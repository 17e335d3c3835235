package limit

// Remembered is how many credentials something is known of.
func Remembered(l *Limits) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.credentials)
}
