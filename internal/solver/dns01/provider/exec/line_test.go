package exec

import (
	"strings"
	"sync"
	"testing"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/solver/dns01/wire"
)

// TestALongLineEndsTheProgram: a line of a program has a bound, above which nothing more is read of it.
func TestALongLineEndsTheProgram(t *testing.T) {
	bounds.Holds(t, "line of a program", func(n int) limits.Outcome {
		s := &session{lines: make(chan line), stopped: make(chan struct{}), ended: make(chan struct{})}
		text := strings.NewReader(strings.Repeat("x", n-1) + "\n" + strings.Repeat("y", 10*wire.MaxLine))
		var reading sync.WaitGroup
		reading.Go(func() { s.read(text) })
		got := <-s.lines
		close(s.stopped)
		reading.Wait()
		if text.Len() < 8*wire.MaxLine {
			t.Errorf("%d octets are left", text.Len())
		}
		return bounds.Refusal(t, got.err, "a line of more than 1048576 octets")
	})
}
