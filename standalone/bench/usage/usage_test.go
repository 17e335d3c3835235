package usage

import (
	"testing"
	"time"
)

func TestProcessFiles(t *testing.T) {
	t.Parallel()
	const stat = "4242 (a) b (c) S 1 4242 4242 0 -1 4194560 3000 0 0 0 123 45 0 0 20 0 9 0 1000 1300000000 9000 18446744073709551615 0 0"
	if got, err := parseStat(stat); err != nil || got != 1680*time.Millisecond {
		t.Errorf("CPU time %s, %v; want 1.68s", got, err)
	}
	if _, err := parseStat("4242 (a) S 1"); err == nil {
		t.Error("a short stat is taken")
	}
	for field, want := range map[string]int64{"VmRSS:": 512 << 10, "VmHWM:": 900 << 10} {
		if got, err := parseStatus("Name:\ta\nVmHWM:\t  900 kB\nVmRSS:\t  512 kB\n", field); err != nil || got != want {
			t.Errorf("%s %d, %v; want %d", field, got, err, want)
		}
	}
	if _, err := parseStatus("Name:\ta\n", "VmRSS:"); err == nil {
		t.Error("a status without VmRSS is taken")
	}
}
