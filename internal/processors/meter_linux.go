package processors

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func meter() func() time.Duration { return cpuWanted }

// cpuWanted is the CPU time that the process has used (getrusage(2)) or that its threads have
// waited for: on a busy machine one thread gets a share of a CPU only, and more get
// more. It costs some 7 µs for each thread.
func cpuWanted() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // fails for bad arguments only
	total := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	threads, _ := os.ReadDir(tasks) // where there is no such thing, nothing is known to wait
	for _, thread := range threads {
		total += waited(tasks + thread.Name() + "/schedstat")
	}
	return total
}

const tasks = "/proc/self/task/"

// waited is how long a thread could have run and did not: the second number, in ns (Linux,
// Documentation/scheduler/sched-stats.rst). It is none of a thread that has just ended.
func waited(schedstat string) time.Duration {
	text, _ := os.ReadFile(schedstat)
	if numbers := strings.Fields(string(text)); len(numbers) > 1 {
		ns, _ := strconv.ParseInt(numbers[1], 10, 64) // the kernel writes numbers
		return time.Duration(ns)
	}
	return 0
}
