package when

import (
	"testing"
	"time"
)

func TestEarliest(t *testing.T) {
	t.Parallel()
	var never time.Time
	now := time.Now()
	later := now.Add(time.Second)
	for _, c := range []struct{ a, b, want time.Time }{
		{never, never, never}, {now, never, now}, {never, now, now}, {now, later, now}, {later, now, now},
	} {
		if got := Earliest(c.a, c.b); !got.Equal(c.want) {
			t.Errorf("of %s and %s: %s", c.a, c.b, got)
		}
		if got := Latest(c.a, c.b); got.Before(c.a) || got.Before(c.b) {
			t.Errorf("the later of %s and %s: %s", c.a, c.b, got)
		}
	}
}
