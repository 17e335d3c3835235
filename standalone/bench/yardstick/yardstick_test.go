package yardstick_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"chancery.dev/standalone/bench/yardstick"
)

func TestSlowdown(t *testing.T) {
	t.Parallel()
	quiet, slow := slices.Repeat([]time.Duration{100}, 200), slices.Repeat([]time.Duration{150, 250}, 50)
	for name, c := range map[string]struct {
		took  []time.Duration
		since yardstick.Mark
		want  float64
	}{
		"nothing":              {nil, 0, 1},
		"nothing since":        {quiet, 200, 1},
		"quiet":                {quiet, 10, 1},
		"slow at the end":      {slices.Concat(quiet, slow), 200, 2},
		"one that is too fast": {slices.Concat([]time.Duration{1}, quiet, slow), 201, 2},
		"no clock":             {make([]time.Duration, 50), 0, 1},
	} {
		if got := yardstick.SlowdownOf(c.took, c.since); got != c.want {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}

// A real one goes on measuring.
func TestMeasures(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("CPU times of threads are read on Linux only")
	}
	y := yardstick.Start(t.Context())
	since := y.Mark()
	for y.Mark() < since+5 {
		runtime.Gosched()
	}
	if got := y.Slowdown(since); got <= 0 {
		t.Errorf("%v times as long as on a quiet core", got)
	}
}
