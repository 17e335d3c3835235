package cli

import (
	"runtime/debug"
	"strconv"
)

// MemoryLimitVariable is the environment variable with the limit of the container's memory, in bytes. The manifests
// fill it in from the container's limits. Where a container has none, Kubernetes fills in the memory of the node.
const MemoryLimitVariable = "CHANCERY_MEMORY_LIMIT"

// LimitMemory tells the garbage collector to keep the process below nine tenths of the container's memory limit. The
// last tenth is for memory that Go does not count. Without LimitMemory, garbage may reach the container's limit before
// the next collection, and Kubernetes kills the container. LimitMemory returns its limit in bytes. It returns 0 if it
// sets none: the variable is missing, or the user has set GOMEMLIMIT, which counts then.
func LimitMemory(getenv func(string) string) int64 {
	limit, err := strconv.ParseInt(getenv(MemoryLimitVariable), 10, 64)
	if err != nil || limit <= 0 || getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit -= limit / 10
	debug.SetMemoryLimit(limit)
	return limit
}
