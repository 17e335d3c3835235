// Package retryafter reads the header Retry-After of an HTTP answer. Another package, internal/fault, decides how long
// to obey the header.
package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Most bounds what a server can ask for: it keeps absurd values from overflowing.
const Most = 366 * 24 * time.Hour

// Read returns how long an answer with these headers asks to wait (RFC 9110 §10.2.3), up to Most. Retry-After has
// seconds or an HTTP date. A date counts from the answer's own Date, so that a skewed clock does not matter, or from
// now without one. The wait is 0 for a header that is absent, not understood or in the past.
func Read(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if secs, err := strconv.ParseUint(v, 10, 63); err == nil {
		if secs > uint64(Most/time.Second) {
			return Most
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
	return min(max(at.Sub(now), 0), Most)
}
