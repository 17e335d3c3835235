package kubecache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease is a lock for client-go's leader election, kept in an object of the kind Lease. A process that waits to lead
// watches the lease, so it leads as soon as the leader has released the lease. A leader whose lease another process has
// taken is told so at once, and does not release what is not its own any more.
//
// The election calls the methods of the lock from one goroutine at a time; Guard and Lost are for all others.
type Lease struct {
	resourcelock.Interface

	o      LeaseOptions
	leases coordinationv1client.LeaseInterface
	// read is the record as it was last read, changed is when it was first read like that, fit says whether this process
	// may lead, and led whether it has led.
	read     resourcelock.LeaderElectionRecord
	changed  time.Time
	fit, led bool
	lost     chan struct{}
	// renewed is when this process began the last write by which it leads; nil if it has never led.
	renewed atomic.Pointer[time.Time]
}

// LeaseOptions is what a Lease needs.
type LeaseOptions struct {
	Namespace, Name string
	// Duration is how long a leader leads after it has last renewed the lease, RenewDeadline how long it tries to renew
	// it, and Retry is how often the lease is read where it may not be watched.
	Duration, RenewDeadline, Retry time.Duration
	Now                            func() time.Time
	// Fit is asked before this process leads, and returns an error if it must not; nil if it always may.
	Fit func(context.Context) error
}

// NewLease returns the lock, held by nobody yet. It has a name for this process in the lease: its host's, and a random
// one.
func NewLease(rc *rest.Config, o LeaseOptions) (*Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.Namespace, o.Name,
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}, rc, o.RenewDeadline)
	if err != nil {
		return nil, err
	}
	client, err := coordinationv1client.NewForConfig(rc)
	if err != nil {
		return nil, err
	}
	return newLease(lock, client.Leases(o.Namespace), o), nil
}

func newLease(lock resourcelock.Interface, leases coordinationv1client.LeaseInterface, o LeaseOptions) *Lease {
	return &Lease{Interface: lock, o: o, leases: leases, lost: make(chan struct{})}
}

// Get implements resourcelock.Interface. Until this process leads, Get returns only when the lease may be taken, or
// when ctx ends: a lease that has run out is returned as one without a holder.
func (l *Lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	for !l.fit && l.o.Fit != nil {
		err := l.o.Fit(ctx)
		if l.fit = err == nil; l.fit {
			break
		}
		if l.pause(ctx); ended(ctx) {
			return nil, nil, err
		}
	}
	for {
		record, raw, err := l.Interface.Get(ctx)
		if err != nil {
			return nil, nil, err
		}
		if !same(record, &l.read) {
			l.read, l.changed = *record, l.o.Now()
		}
		left := time.Duration(record.LeaseDurationSeconds)*time.Second - l.o.Now().Sub(l.changed)
		switch {
		case record.HolderIdentity == "" || record.HolderIdentity == l.Identity() || ended(ctx):
			return record, raw, nil
		case l.led:
			l.lose()
			return record, raw, nil
		case left <= 0:
			record.HolderIdentity = ""
			return record, raw, nil
		}
		l.wait(ctx, left)
	}
}

func same(a, b *resourcelock.LeaderElectionRecord) bool {
	return a.HolderIdentity == b.HolderIdentity && a.RenewTime.Equal(&b.RenewTime)
}

// wait returns when the lease is not as it was read, at the latest after a time.
func (l *Lease) wait(ctx context.Context, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	watching, err := l.leases.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, l.o.Name).String()})
	if err != nil { // a role that was made for cert-manager does not allow it
		l.pause(ctx)
		return
	}
	defer watching.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-watching.ResultChan():
			lease, is := event.Object.(*coordinationv1.Lease)
			if !open || !is {
				l.pause(ctx)
				return
			}
			if event.Type == watch.Deleted || !same(resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec), &l.read) {
				return
			}
		}
	}
}

func (l *Lease) pause(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.o.Retry)
	defer cancel()
	<-ctx.Done()
}

func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// lose tells who waits by Lost.
func (l *Lease) lose() {
	select {
	case <-l.lost:
	default:
		close(l.lost)
	}
}

// Lost is closed when another process has taken the lease from this one.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Create implements resourcelock.Interface.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface. It refuses to write over another process that has taken the lease.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.led && l.read.HolderIdentity != "" && l.read.HolderIdentity != l.Identity() {
		return fmt.Errorf("%s leads now", l.read.HolderIdentity)
	}
	return l.write(ctx, record, l.Interface.Update)
}

func (l *Lease) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord, by func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	now := l.o.Now()
	if !l.led { // the times in it are those of before Get, which may have waited
		record.AcquireTime, record.RenewTime = metav1.NewTime(now), metav1.NewTime(now)
	}
	if err := by(ctx, record); err != nil {
		return err
	}
	if record.HolderIdentity == l.Identity() {
		l.led = true
		l.renewed.Store(&now)
	}
	l.read, l.changed = record, now
	return nil
}

// errLapsed is the answer to writes of a leader whose lease has run out.
var errLapsed = errors.New("the lease of this process has run out, as when the process was stopped for a while: another one may lead, so nothing is written")

// Guard has next send no write while this process has led and its lease has run out: it may have been stopped for a
// while, as by a suspended machine, and another process may lead.
func (l *Lease) Guard(next http.RoundTripper) http.RoundTripper { return guard{next, l} }

// lapsed reports whether this process has led, and must not write any more.
func (l *Lease) lapsed() bool {
	select {
	case <-l.lost:
		return true
	default:
		renewed, now := l.renewed.Load(), l.o.Now()
		// Go's monotonic clock stands still while the machine is suspended: Round has the other clock compared.
		return renewed != nil && max(now.Sub(*renewed), now.Round(0).Sub(renewed.Round(0))) >= l.o.Duration
	}
}

type guard struct {
	next  http.RoundTripper
	lease *Lease
}

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || !g.lease.lapsed() {
		return g.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // nothing was read from it
	}
	return nil, errLapsed
}

// WrappedRoundTripper has client-go find the transport that it closes.
func (g guard) WrappedRoundTripper() http.RoundTripper { return g.next }
