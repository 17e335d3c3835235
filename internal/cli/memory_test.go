package cli

import "testing"

func TestPercentForHeap(t *testing.T) {
	for kept, want := range map[uint64]int{0: 300, 1 << 20: 300, 12 << 20: 200, 24 << 20: 100, 1 << 30: 100} {
		if got := percentFor(kept); got != want {
			t.Errorf("GOGC for %d bytes is %d, want %d", kept, got, want)
		}
	}
}
