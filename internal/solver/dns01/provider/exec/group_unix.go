//go:build unix

package exec

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a process group for a program and all its children, so that they end together.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends them. It fails where none is left.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
