// Package usage reads how much CPU time and memory a process uses, and how many file descriptors it has open. The
// package reads /proc of Linux, and the pages (metrics and profiles) that the process serves.
package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on every architecture that Go runs on.
const ticksPerSecond = 100

// CPU is the CPU time that a process has used, to a hundredth of a second (proc(5)).
func CPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("CPU time is read from Linux's /proc: %w", err)
	}
	return parseStat(string(text))
}

// parseStat adds utime and stime. The command's name, in brackets, may hold anything.
func parseStat(stat string) (time.Duration, error) {
	const utime, stime = 14 - 3, 15 - 3 // counted from the third field, which follows the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0, fmt.Errorf("/proc/PID/stat is too short: %q", stat)
	}
	var ticks int64
	for _, field := range []string{fields[utime], fields[stime]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// Resident is how much memory a process holds, in bytes.
func Resident(pid int) (int64, error) { return memory(pid, "VmRSS:") }

// Peak is the most that it has held.
func Peak(pid int) (int64, error) { return memory(pid, "VmHWM:") }

// Descriptors is how many files and connections a process has open.
func Descriptors(pid int) (int, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return 0, fmt.Errorf("descriptors are counted in Linux's /proc: %w", err)
	}
	return len(entries), nil
}

func memory(pid int, field string) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, fmt.Errorf("memory is read from Linux's /proc: %w", err)
	}
	return parseStatus(string(text), field)
}

func parseStatus(status, field string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/PID/status: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/PID/status has no %s %q", field, status)
}
