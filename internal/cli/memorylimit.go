package cli

import (
	"runtime/debug"
	"strconv"
)

// MemoryLimitVariable is the environment variable with the limit of the container's memory, in bytes. The manifests
// fill it in from the container's limits. Where a container has none, Kubernetes fills in the memory of the node.
const MemoryLimitVariable = "CHANCERY_MEMORY_LIMIT"

// LimitMemory has the garbage collector keep the process within nine tenths of the limit of its container: without
// that, garbage may reach the limit before the next collection, and the container is killed. The rest is for what Go
// does not count. It returns the limit that holds from now on, in bytes; 0 if it sets none, because the variable is not
// there or because the user sets GOMEMLIMIT, which counts.
func LimitMemory(getenv func(string) string) int64 {
	limit, err := strconv.ParseInt(getenv(MemoryLimitVariable), 10, 64)
	if err != nil || limit <= 0 || getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit -= limit / 10
	debug.SetMemoryLimit(limit)
	return limit
}
