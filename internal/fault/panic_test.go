package fault_test

import (
	"errors"
	"strings"
	"testing"

	"chancery.dev/internal/fault"
)

type table map[string]int

func (t table) put(key string) { t[key] = 1 }

func TestContain(t *testing.T) {
	for what, c := range map[string]struct {
		run  func()
		want []string
	}{
		"no panic":           {func() {}, []string{"it came to an end"}},
		"one of the runtime": {func() { table(nil).put("x") }, []string{"assignment to entry in nil map", "fault_test.table.put (panic_test.go:", "called by fault_test."}},
		"one of the code":    {func() { panic("no such thing") }, []string{"please report it", "no such thing, in fault_test.", "(panic_test.go:"}},
	} {
		err := fault.Contained(func() error {
			c.run()
			return errors.New("it came to an end")
		})
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q lacks %q", what, err, want)
			}
		}
		var p *fault.Panic
		if got := errors.As(err, &p); got != (what != "no panic") {
			t.Errorf("%s: a Panic: %v", what, got)
		}
	}
}
