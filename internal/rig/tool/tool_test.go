package tool_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"chancery.dev/internal/rig/tool"
)

// ends records how a test would have ended.
type ends struct {
	testing.TB
	how string
}

func (e *ends) Skip(args ...any)                  { e.end("skipped: " + fmt.Sprint(args...)) }
func (e *ends) Fatalf(format string, args ...any) { e.end("failed: " + fmt.Sprintf(format, args...)) }

func (e *ends) end(how string) {
	e.how = how
	runtime.Goexit()
}

func TestMissingProgram(t *testing.T) {
	for name, tc := range map[string]struct{ ci, program, want string }{
		"there":             {"", "sh", ""},
		"there in CI":       {"true", "sh", ""},
		"missing":           {"", "no-such-program", "skipped: SKIPPED: the program no-such-program is not installed"},
		"missing in CI":     {"true", "no-such-program", "failed: the program no-such-program is not installed: .ci/run has to install it"},
		"no program at all": {"", "tool_test.go", "skipped: SKIPPED: the program tool_test.go is not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CI", tc.ci)
			e := &ends{TB: t}
			done, path := make(chan struct{}), ""
			go func() {
				defer close(done)
				path = tool.Path(e, tc.program)
			}()
			<-done
			if e.how != tc.want {
				t.Errorf("got %q, want %q", e.how, tc.want)
			}
			if (tc.want == "") != filepath.IsAbs(path) {
				t.Errorf("the path is %q", path)
			}
		})
	}
}
