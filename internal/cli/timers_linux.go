package cli

import (
	"os"
	"runtime"
	"syscall"
)

const (
	// timerSlack is how late, in nanoseconds, the kernel may let a timer go off, so that it
	// goes off together with others. Linux's own default is 50,000.
	timerSlack = 3_000_000
	// timersBundled tells a process that it has been executed for its slack.
	timersBundled = "CHANCERY_TIMERS_BUNDLED"
)

// BundleTimers has the kernel wake this process three milliseconds late rather than often. While
// a process works in bursts, as controllers do, Go's monitor thread sleeps 20 µs at a time,
// which costs a seventh of a certificate's CPU (docs/performance.md). A thread takes its slack
// from the one that makes it, and the monitor is there before main: therefore the process
// executes itself once more, which keeps the slack (prctl(2)) and the process id. Where that
// cannot be done, all stays as it is. It is to be called first of all.
func BundleTimers() {
	if os.Getenv(timersBundled) != "" {
		_ = os.Unsetenv(timersBundled) // fails for bad names only
		return
	}
	path, err := os.Executable()
	if err != nil {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_TIMERSLACK, timerSlack, 0); errno == 0 {
		_ = syscall.Exec(path, os.Args, append(os.Environ(), timersBundled+"=1")) // returns only if it fails
	}
}
