package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	etcdStartTimeout = 30 * time.Second
	etcdSlowRequest  = time.Second // what takes longer is worth a line in the log
	// etcdQuota is the size at which etcd refuses writes, the largest that etcd recommends. Reaching it would stop
	// the control plane, and disk is cheap.
	etcdQuota = 8 << 30
	// etcdDefragThreshold in MiB: at a start, a file with this much free space in it is rewritten.
	etcdDefragThreshold = 100
	// maxSocketPath is the longest path of a Unix socket that Linux (108 bytes) and macOS (104) both take.
	maxSocketPath = 100
)

// etcdServer is etcd, listening on a Unix socket in a directory that only this user can enter: no other user of the
// machine can read it, and no TLS is spent on it.
type etcdServer struct {
	endpoint string // URL for clients
	server   *embed.Etcd
	socket   string
	tempDir  string // directory of the socket, if it is not in the data directory
	level    zap.AtomicLevel
}

type etcdOptions struct {
	dir           *dataDir
	log           *logFile
	unsafeNoFsync bool
}

// startEtcd starts etcd and waits until it can serve.
func startEtcd(ctx context.Context, o etcdOptions) (*etcdServer, error) {
	e := &etcdServer{socket: o.dir.path("run", "etcd.sock"), level: zap.NewAtomicLevelAt(zap.WarnLevel)}
	if len(e.socket) > maxSocketPath {
		temp, err := os.MkdirTemp("", "chancery-") // mode 0700
		if err != nil {
			return nil, fmt.Errorf("make a directory for etcd's socket (the path of the data directory is too long for one): %w", err)
		}
		e.tempDir, e.socket = temp, filepath.Join(temp, "etcd.sock")
	}
	e.endpoint = "unix://" + e.socket
	server, err := embed.StartEtcd(e.config(o))
	if err != nil {
		e.removeSocket()
		return nil, fmt.Errorf("start etcd on %s: %w", o.dir.path("etcd"), err)
	}
	e.server = server
	timer := time.NewTimer(etcdStartTimeout)
	defer timer.Stop()
	select {
	case <-server.Server.ReadyNotify():
		return e, nil
	case err = <-server.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("not ready after %s", etcdStartTimeout)
	}
	e.close(etcdStopTimeout)
	return nil, fmt.Errorf("start etcd on %s: %w", o.dir.path("etcd"), err)
}

func (e *etcdServer) config(o etcdOptions) *embed.Config {
	c := embed.NewConfig()
	c.Dir = o.dir.path("etcd")
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(o.log.zap(e.level))
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: e.socket}}
	// A member of a cluster of one has no peers. The advertised URLs stay at etcd's defaults: they are recorded, must not
	// change between runs, and nothing ever dials them.
	c.ListenPeerUrls = nil
	c.EnableGRPCGateway = false
	c.UnsafeNoFsync = o.unsafeNoFsync
	c.QuotaBackendBytes = etcdQuota
	c.BackendFreelistType = "map"
	c.BootstrapDefragThresholdMegabytes = etcdDefragThreshold
	// The embedded configuration leaves this one at zero, which would warn of every request.
	c.WarningUnaryRequestDuration = etcdSlowRequest
	c.WarningApplyDuration = etcdSlowRequest
	return c
}

// failed delivers an error when etcd ends by itself.
func (e *etcdServer) failed() <-chan error { return e.server.Err() }

// close stops etcd, and abandons it after limit.
func (e *etcdServer) close(limit time.Duration) {
	e.level.SetLevel(zap.FatalLevel) // it reports each listener that it closes as an error
	within(limit, e.server.Close)
	e.removeSocket()
}

func (e *etcdServer) removeSocket() {
	err := os.Remove(e.socket)
	if e.tempDir != "" {
		err = errors.Join(err, os.Remove(e.tempDir))
	}
	_ = err // a stale socket is replaced at the next start
}
