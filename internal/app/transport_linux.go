package app

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h (RFC 5482).
const tcpUserTimeout = 18

// limitSilence bounds how long what was sent may stay unacknowledged: probes are not sent
// while data is under way.
func limitSilence(fd int, most time.Duration) error {
	return syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, tcpUserTimeout, int(most.Milliseconds()))
}
