package chaos

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/faulty"
)

// fault is something that goes wrong, and is over when do returns.
type fault struct {
	name string
	do   func(ctx context.Context, w *world)
}

const (
	// beyondLease is longer than a leader may be silent before another one acts.
	beyondLease = 20 * time.Second
	// outage is longer than most retries wait at first.
	outage = 15 * time.Second
	// gap is how long what was killed stays away.
	gap = 3 * time.Second
)

func faults() []fault {
	return []fault{
		{"the leader is killed", func(ctx context.Context, w *world) { again(ctx, w, w.leader()) }},
		{"the leader is stopped beyond its lease", func(ctx context.Context, w *world) {
			c := w.leader()
			c.signal(syscall.SIGSTOP)
			sleep(ctx, beyondLease)
			c.signal(syscall.SIGCONT)
		}},
		{"both controllers are killed", func(ctx context.Context, w *world) { again(ctx, w, w.controllers...) }},
		{"the leader is told to end", func(ctx context.Context, w *world) {
			c := w.leader()
			c.end(syscall.SIGTERM)
			sleep(ctx, gap)
			w.begin(c)
		}},
		{"the API server is killed", func(ctx context.Context, w *world) {
			w.plane.kill()
			sleep(ctx, gap)
			w.startPlane()
		}},
		{"the API server is silent", func(ctx context.Context, w *world) {
			w.plane.signal(syscall.SIGSTOP)
			sleep(ctx, outage)
			w.plane.signal(syscall.SIGCONT)
		}},
		{"etcd has no space", noSpace},
		{"an older snapshot of etcd is restored", restore},
		{"the DNS server is silent", withDNS(dnsserver.Silent)},
		{"the DNS server denies every name", withDNS(dnsserver.NXDomain)},
		{"the CA is silent", withCA(faulty.Hang())},
		{"the CA is out of order", withCA(faulty.Refuse(http.StatusServiceUnavailable, "", ""))},
		{"the answers of the CA are lost", withCA(faulty.Lose())},
		{"the CA resets connections", withCA(faulty.Cut())},
	}
}

// again kills controllers, and starts them again.
func again(ctx context.Context, w *world, all ...*controller) {
	for _, c := range all {
		c.kill()
	}
	sleep(ctx, gap)
	for _, c := range all {
		w.begin(c)
	}
}

func (w *world) begin(c *controller) {
	if err := c.start(); err != nil {
		w.t.Error(err)
	}
}

func withDNS(m dnsserver.Mode) func(context.Context, *world) {
	return func(ctx context.Context, w *world) {
		w.dns.SetMode(0, m)
		sleep(ctx, outage)
		w.dns.SetMode(0, dnsserver.Normal)
	}
}

func withCA(f faulty.Fault) func(context.Context, *world) {
	return func(ctx context.Context, w *world) {
		w.broken.Store(&f)
		sleep(ctx, outage)
		w.broken.Store(nil)
	}
}

// noSpace has etcd refuse all writes for a while, as it does when its file has reached the quota.
func noSpace(ctx context.Context, w *world) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(w.data(), "run", "etcd.sock")}, DialTimeout: gap})
	if err != nil {
		w.t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	members, err := c.MemberList(ctx)
	if err != nil {
		w.t.Error(err)
		return
	}
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		if _, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
			Action: action, MemberID: members.Members[0].ID, Alarm: pb.AlarmType_NOSPACE,
		}); err != nil {
			w.t.Error(err)
		}
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	sleep(ctx, outage)
	alarm(pb.AlarmRequest_DEACTIVATE)
}

// restore takes the store of etcd back to where it was some seconds before: versions of objects go back, under
// controllers that know newer ones.
func restore(ctx context.Context, w *world) {
	store, kept := filepath.Join(w.data(), "etcd"), filepath.Join(w.dir, "snapshot")
	w.plane.kill()
	if err := os.CopyFS(kept, os.DirFS(store)); err != nil {
		w.t.Error(err)
	}
	w.startPlane()
	sleep(ctx, outage)
	w.load.running.Lock()
	defer w.load.running.Unlock()
	w.plane.kill()
	if err := errors.Join(os.RemoveAll(store), os.Rename(kept, store)); err != nil {
		w.t.Error(err)
	}
	w.startPlane()
	w.load.restored()
}
