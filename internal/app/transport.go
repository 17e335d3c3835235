package app

import (
	"net"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// A peer that has gone without a word is given up after about peerSilence, whether it is
// listened to or written to.
const (
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveCount    = 3
	peerSilence       = keepAliveIdle + keepAliveCount*keepAliveInterval
	connectWithin     = 30 * time.Second
)

// direct has a client speak HTTP/1.1: a connection for each watch, and some that all else
// shares. One connection for everything, which HTTP/2 would have, costs a tenth more CPU at
// both ends; docs/decisions/0005 has the numbers. What HTTP/2 pings for, TCP does here.
func direct(rc *rest.Config) {
	rc.NextProtos = []string{"http/1.1"}
	if rc.Dial != nil {
		return
	}
	dialer := &net.Dialer{
		Timeout:         connectWithin,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount},
		Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			if failed := c.Control(func(fd uintptr) { err = limitSilence(int(fd), peerSilence) }); failed != nil {
				return failed
			}
			return err
		},
	}
	rc.Dial = dialer.DialContext
}

// protobuf is rc for a client of Kubernetes' own kinds only, which have a shorter form than JSON.
func protobuf(rc *rest.Config) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.ContentType = runtime.ContentTypeProtobuf
	rc.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return rc
}
