package native

import (
	"errors"
	"testing"
	"time"
)

// What was found is used for five minutes; what was not is asked for again.
func TestZoneIDs(t *testing.T) {
	var z zoneIDs
	now := time.Unix(1_700_000_000, 0)
	asked := 0
	var answer string
	var failure error
	of := func(name string) string {
		t.Helper()
		id, err := z.of(name, now, func(string) (string, error) { asked++; return answer, failure })
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
		return id
	}
	for _, step := range []struct {
		name, answer string
		err          error
		after        time.Duration
		want         string
		asked        int
	}{
		{"a.test", "", nil, 0, "", 1},
		{"a.test", "one", nil, 0, "one", 2},
		{"a.test", "two", nil, 4 * time.Minute, "one", 2},
		{"b.test", "other", nil, 0, "other", 3},
		{"a.test", "two", nil, time.Minute, "two", 4},
		{"a.test", "", errors.New("no"), 5 * time.Minute, "", 5},
		{"a.test", "three", nil, 0, "three", 6},
	} {
		now = now.Add(step.after)
		answer, failure = step.answer, step.err
		if got := of(step.name); got != step.want || asked != step.asked {
			t.Errorf("%+v: got %q, asked %d times", step, got, asked)
		}
	}
}
