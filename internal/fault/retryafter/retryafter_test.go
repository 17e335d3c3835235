package retryafter

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/growth"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		value, date string
		want        time.Duration
	}{
		"absent":        {"", "", 0},
		"seconds":       {" 120 ", "", 2 * time.Minute},
		"zero":          {"0", "", 0},
		"negative":      {"-5", "", 0},
		"nonsense":      {"soon", "", 0},
		"absurd":        {"9999999999999999999999", "", 0},
		"huge":          {"9223372036854775807", "", Most},
		"date":          {now.Add(time.Hour).Format(http.TimeFormat), "", time.Hour},
		"past date":     {now.Add(-time.Hour).Format(http.TimeFormat), "", 0},
		"far date":      {now.AddDate(100, 0, 0).Format(http.TimeFormat), "", Most},
		"skewed server": {now.Add(time.Hour).Format(http.TimeFormat), now.Add(50 * time.Minute).Format(http.TimeFormat), 10 * time.Minute},
	} {
		h := http.Header{}
		h.Set("Retry-After", tc.value)
		h.Set("Date", tc.date)
		if got := Read(h, now); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestReadingGrows: what a header costs grows with its length.
func TestReadingGrows(t *testing.T) {
	growth.Linear(t, limits.Headers, func(n int) func() {
		header := http.Header{"Retry-After": {strings.Repeat("9", n)}, "Date": {strings.Repeat("Mon, ", n/5)}}
		return func() { Read(header, time.Time{}) }
	})
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "")
	f.Add("Mon, 02 Jan 2040 15:04:05 GMT", "Mon, 02 Jan 2040 15:02:05 GMT")
	f.Fuzz(func(t *testing.T, value, date string) {
		h := http.Header{"Retry-After": {value}, "Date": {date}}
		if d := Read(h, time.Unix(0, 0)); d < 0 || d > Most {
			t.Errorf("%v", d)
		}
	})
}
