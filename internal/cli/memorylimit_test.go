package cli

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for name, c := range map[string]struct {
		environment map[string]string
		want, holds int64
	}{
		"a limit":               {map[string]string{MemoryLimitVariable: "536870912"}, 483183821, 483183821},
		"none":                  {nil, 0, math.MaxInt64},
		"no number":             {map[string]string{MemoryLimitVariable: "512Mi"}, 0, math.MaxInt64},
		"zero":                  {map[string]string{MemoryLimitVariable: "0"}, 0, math.MaxInt64},
		"one that the user set": {map[string]string{MemoryLimitVariable: "536870912", "GOMEMLIMIT": "100MiB"}, 0, math.MaxInt64},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		got := LimitMemory(func(name string) string { return c.environment[name] })
		if holds := debug.SetMemoryLimit(-1); got != c.want || holds != c.holds {
			t.Errorf("%s: %d, %d holds", name, got, holds)
		}
	}
}
