//go:build !linux

package child

import (
	"os/exec"
	"syscall"
)

// tieToParent does nothing for the process where the kernel has no such service: a process that is killed leaves its
// children behind.
func tieToParent(cmd *exec.Cmd) (release func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() {}
}
