//go:build !linux

package yardstick

import "time"

// threadCPU is not known.
func threadCPU() time.Duration { return 0 }
