package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// tieToParent makes the kernel end the process when this one dies, however it dies. The signal is bound to the thread
// that starts the process: the caller stays on it until the process has ended, and then calls release.
func tieToParent(cmd *exec.Cmd) (release func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	return runtime.UnlockOSThread
}
