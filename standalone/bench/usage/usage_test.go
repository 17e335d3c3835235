package usage

import (
	"os"
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

// TestDescriptors is not parallel: it counts those of its own process.
func TestDescriptors(t *testing.T) {
	before, err := Descriptors(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
	}
	if after, err := Descriptors(os.Getpid()); err != nil || after != before+10 {
		t.Errorf("%d descriptors, %v; want %d", after, err, before+10)
	}
	if _, err := Descriptors(-1); err == nil {
		t.Error("there is no process -1")
	}
}
