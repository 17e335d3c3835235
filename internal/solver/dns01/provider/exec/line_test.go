package exec

import (
	"strings"
	"testing"

	"chancery.dev/internal/solver/dns01/wire"
)

// TestALongLineEndsTheProgram: a line of a program has a bound, above which nothing more is read of it.
func TestALongLineEndsTheProgram(t *testing.T) {
	for size, wrong := range map[int]bool{wire.MaxLine - 2: false, wire.MaxLine + 1: true} {
		s := &session{lines: make(chan line), stopped: make(chan struct{}), ended: make(chan struct{})}
		text := strings.NewReader(strings.Repeat("x", size) + "\n" + strings.Repeat("y", 10*wire.MaxLine))
		go s.read(text)
		got := <-s.lines
		close(s.stopped)
		if wrong != (got.err != nil) || wrong && !strings.Contains(got.err.Error(), "a line of more than") {
			t.Errorf("%d octets: %d, %v", size, len(got.text), got.err)
		}
		if wrong && text.Len() < 8*wire.MaxLine {
			t.Errorf("%d octets are left", text.Len())
		}
	}
}
