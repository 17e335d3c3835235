package fault

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

// Panic is the error that a panic has become: a bug of Chancery or of a library, which ends one call and nothing else.
type Panic struct {
	// Value is what the code panicked with.
	Value any
	// Where names the function that panicked and its callers, with file and line.
	Where string
}

// Error says what happened, and that it is a bug.
func (p *Panic) Error() string {
	return fmt.Sprintf("a bug in Chancery, please report it: %v, in %s", p.Value, p.Where)
}

// Contain turns a panic into a *Panic, which it stores at err. A function whose end others wait for defers it.
func Contain(err *error) {
	if value := recover(); value != nil {
		*err = &Panic{Value: value, Where: where()}
	}
}

// Contained runs something, and returns its error or the Panic that it ended in.
func Contained(run func() error) (err error) {
	defer Contain(&err)
	return run()
}

// callers is how many functions a Panic names.
const callers = 3

// where names the functions that a panic came through, the one that panicked first.
func where() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	var names []string
	for panicking, more := false, true; more && len(names) < callers; {
		var f runtime.Frame
		f, more = frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicking, names = true, nil
		case panicking && !strings.HasPrefix(f.Function, "runtime."):
			names = append(names, fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), path.Base(f.File), f.Line))
		}
	}
	return strings.Join(names, ", called by ")
}
