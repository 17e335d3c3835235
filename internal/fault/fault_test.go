package fault_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"chancery.dev/internal/fault"
)

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		err      error
		kind     fault.Kind
		name     string
		delay    time.Duration
		terminal bool
	}{
		{fault.Terminal("R", "no: %w", io.EOF), fault.KindTerminal, "terminal", 0, true},
		{fault.Pending("R", "no: %w", io.EOF), fault.KindPending, "pending", 0, false},
		{fault.After(time.Minute, "R", "no: %w", io.EOF), fault.KindAfter, "after", time.Minute, false},
	} {
		for _, err := range []error{c.err, fmt.Errorf("sign: %w", c.err), errors.Join(io.ErrClosedPipe, c.err)} {
			f := fault.Of(err)
			if f == nil || f.Kind != c.kind || string(f.Kind) != c.name || f.Delay != c.delay || f.Reason != "R" || f.Error() != "no: EOF" {
				t.Errorf("%v carries %+v", err, f)
			}
			if !errors.Is(err, io.EOF) || fault.IsTerminal(err) != c.terminal {
				t.Errorf("%v: wraps EOF %t, terminal %t", err, errors.Is(err, io.EOF), fault.IsTerminal(err))
			}
		}
	}
	if fault.Of(nil) != nil || fault.Of(io.EOF) != nil || fault.IsTerminal(nil) || fault.IsTerminal(io.EOF) {
		t.Error("an error without a fault carries one")
	}
}

// The outermost fault counts: whoever wraps one knows better.
func TestOutermostCounts(t *testing.T) {
	inner := fault.Terminal("Inner", "no")
	if f := fault.Of(fault.Pending("Outer", "wait: %w", inner)); f.Reason != "Outer" || f.Kind != fault.KindPending {
		t.Errorf("got %+v", f)
	}
}
