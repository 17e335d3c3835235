package growth

import (
	"syscall"
	"time"
	"unsafe"
)

// threadTime is how much CPU time the thread has had. Rusage knows it only to a tick of the kernel.
func threadTime() time.Duration {
	const thisThread = 3 // CLOCK_THREAD_CPUTIME_ID
	var used syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, thisThread, uintptr(unsafe.Pointer(&used)), 0); err != 0 {
		panic(err)
	}
	return time.Duration(used.Nano())
}
