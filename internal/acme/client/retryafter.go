package client

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds what a server can ask for: it keeps absurd values from overflowing.
const maxRetryAfter = 366 * 24 * time.Hour

// retryAfter reads Retry-After (RFC 9110 §10.2.3): seconds or an HTTP date. A date counts from the
// response's own Date, so that a skewed clock does not matter, or from now without one.
// It is 0 for a header that is absent, not understood or in the past.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if secs, err := strconv.ParseUint(v, 10, 63); err == nil {
		if secs > uint64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(secs) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
