// Package leader holds the lease that makes one of several processes the leader. Each renewal of the lease extends the
// term of the engine. The package is a lock for the leader election of client-go: client-go runs the election.
package leader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/leader/term"
)

// Lease is a lock for client-go's leader election, kept in an object of the kind Lease. A process that waits to lead
// watches the lease, so it leads as soon as the leader has released the lease. If another process takes the lease, the
// leader learns of it when it next reads the lease, and does not release the other process's lease.
//
// The term of a leader ends RenewDeadline after the last renewal: before any other process may lead. If the leader
// renews the lease after that, the term goes on: the renewal shows that no other process has led. So an outage of the
// API server ends no process, and the election itself MUST have a RenewDeadline that never comes. The term ends for
// good when the leader releases the lease.
//
// If the store of the API server was restored from a backup, the API server answers with older versions than before.
// The watches of a process then show nothing until the versions are as new as those that they know, and miss all
// changes until then. So a process that sees an older lease than before ends, and its successor reads everything anew.
//
// The election calls the methods of the lock from one goroutine at a time; Guard, Term and Lost are for all others.
type Lease struct {
	resourcelock.Interface

	o      Options
	leases coordinationv1client.LeaseInterface
	term   *engine.Term
	// read is the record as it was last read, changed is when it was first read like that, unread says that it could not
	// be read since, fit whether this process may lead, and led whether it has led.
	read             resourcelock.LeaderElectionRecord
	changed          time.Time
	unread, fit, led bool
	// newest is the newest version of the lease that was seen.
	newest string
	lost   chan struct{}
	loss   error // why lost is closed
}

// ErrLost says that another process has taken the lease, ErrOlder that the API server knows less than before. Both end
// the sentence "lost the lease".
var (
	ErrLost  = errors.New("to another process")
	ErrOlder = errors.New("of an API server that knows less than before, as after etcd was restored from a backup")
)

// Options is what a Lease needs.
type Options struct {
	Namespace, Name string
	// Duration is how long the others wait for a leader that does not renew the lease, and RenewDeadline how long the
	// leader acts without a renewal. Retry is how often a process reads the lease if it may not watch it.
	Duration, RenewDeadline, Retry time.Duration
	Now                            func() time.Time
	// Fit is asked before this process leads, and returns an error if it must not; nil if it always may.
	Fit func(context.Context) error
}

// New returns the lock, which this process does not hold yet. The name of this process in the lease is the name of
// the host and a random part.
func New(rc *rest.Config, o Options) (*Lease, error) {
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
	by, ok := lock.(*resourcelock.LeaseLock)
	if !ok {
		return nil, fmt.Errorf("a lock in a Lease is a %T: please report this as a bug", lock)
	}
	return newLease(by, client.Leases(o.Namespace), o), nil
}

func newLease(lock *resourcelock.LeaseLock, leases coordinationv1client.LeaseInterface, o Options) *Lease {
	l := &Lease{Interface: lock, o: o, leases: leases, lost: make(chan struct{}), term: engine.NewTerm(o.Now)}
	lock.Client = seen{lock.Client, l}
	return l
}

// seen shows a Lease what the API server answers.
type seen struct {
	coordinationv1client.LeasesGetter

	by *Lease
}

// Leases implements coordinationv1client.LeasesGetter.
func (s seen) Leases(namespace string) coordinationv1client.LeaseInterface {
	return seenLeases{s.LeasesGetter.Leases(namespace), s.by}
}

type seenLeases struct {
	coordinationv1client.LeaseInterface

	by *Lease
}

// Get implements coordinationv1client.LeaseInterface.
func (s seenLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return s.by.see(s.LeaseInterface.Get(ctx, name, o))
}

// Create implements coordinationv1client.LeaseInterface.
func (s seenLeases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return s.by.see(s.LeaseInterface.Create(ctx, lease, o))
}

// Update implements coordinationv1client.LeaseInterface.
func (s seenLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return s.by.see(s.LeaseInterface.Update(ctx, lease, o))
}

// see compares the version of a lease with those that were seen before. It returns an error once this process has to
// end.
func (l *Lease) see(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return lease, err
	}
	if l.older(lease) {
		l.lose(ErrOlder)
	}
	return lease, l.loss
}

// older reports whether a lease is older than one that was seen before, and notes its version if it is not.
func (l *Lease) older(lease *coordinationv1.Lease) bool {
	order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, l.newest)
	if err == nil && order < 0 {
		return true
	}
	l.newest = lease.ResourceVersion
	return false
}

// Get implements resourcelock.Interface. Until this process leads, Get waits until the lease may be taken or ctx ends.
// A lease that has run out is returned without a holder.
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
		if apierrors.IsNotFound(err) && !ended(ctx) && !l.led && l.read.HolderIdentity != "" {
			if left := l.left(&l.read); left > 0 { // who held the lease that was deleted still acts
				l.wait(ctx, left)
				continue
			}
		}
		if err != nil {
			l.unread = l.unread || !apierrors.IsNotFound(err)
			return nil, nil, err
		}
		left := l.left(record)
		switch {
		case ended(ctx) || record.HolderIdentity == l.Identity():
			return record, raw, nil
		case l.led:
			l.lose(ErrLost)
			return record, raw, nil
		case record.HolderIdentity == "":
			return record, raw, nil
		case left <= 0:
			record.HolderIdentity = ""
			return record, raw, nil
		}
		l.wait(ctx, left)
	}
}

// left is how long the holder may still lead, by a record that was read just now. Where the API server did not answer
// before, it may not have answered the holder either, who then gets the time to renew the lease.
func (l *Lease) left(record *resourcelock.LeaderElectionRecord) time.Duration {
	now, lasts := l.o.Now(), time.Duration(record.LeaseDurationSeconds)*time.Second
	if !same(record, &l.read) {
		l.read, l.changed = *record, now
	} else if latest := now.Add(l.o.RenewDeadline - lasts); l.unread && l.changed.Before(latest) {
		l.changed = latest
	}
	l.unread = false
	return lasts - now.Sub(l.changed)
}

func same(a, b *resourcelock.LeaderElectionRecord) bool {
	return a.HolderIdentity == b.HolderIdentity && a.RenewTime.Equal(&b.RenewTime)
}

// wait returns when the lease may be free: it was released or deleted, or its time is over. left is the time that the
// holder still has; a renewal sets it anew.
func (l *Lease) wait(ctx context.Context, left time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runsOut := time.AfterFunc(left, cancel)
	defer runsOut.Stop()
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
			// A watch may begin with what a cache of the API server has, which may be late: only Get judges.
			if !open || !is || l.older(lease) {
				l.pause(ctx)
				return
			}
			record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
			if event.Type == watch.Deleted || record.HolderIdentity == "" {
				return
			}
			runsOut.Reset(l.left(record))
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

// lose ends the term for good, and tells who waits by Lost.
func (l *Lease) lose(why error) {
	l.term.End()
	select {
	case <-l.lost:
	default:
		l.loss = why
		close(l.lost)
	}
}

// Lost returns a channel that is closed when this process has to end. Then Loss says why.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Loss is ErrLost or ErrOlder once Lost is closed.
func (l *Lease) Loss() error { return l.loss }

// Term is the time for which this process may act: without end until it leads.
func (l *Lease) Term() *engine.Term { return l.term }

// Create implements resourcelock.Interface. If this process has led and its term is over, Create writes nothing:
// another process may have led in between, by a lease that somebody has deleted.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.led && l.term.Over() {
		l.lose(ErrLost)
		return term.ErrOver
	}
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface. If another process has taken the lease, Update writes nothing.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.led && l.read.HolderIdentity != l.Identity() {
		return fmt.Errorf("the lease is held by %q now", l.read.HolderIdentity)
	}
	return l.write(ctx, record, l.Interface.Update)
}

func (l *Lease) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord, by func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	if l.loss != nil {
		return l.loss
	}
	now := l.o.Now()
	if !l.led { // the times in it are those of before Get, which may have waited
		record.AcquireTime, record.RenewTime = metav1.NewTime(now), metav1.NewTime(now)
	}
	holds := record.HolderIdentity == l.Identity()
	if holds { // that of the election never ends
		record.LeaseDurationSeconds = int(l.o.Duration / time.Second)
	} else { // another process may lead as soon as this is stored, even if no answer says so
		l.term.End()
	}
	if err := by(ctx, record); err != nil {
		return err
	}
	if holds {
		l.led = true
		l.term.Extend(now, l.o.RenewDeadline)
	}
	l.read, l.changed = record, now
	return nil
}

// Guard returns a RoundTripper that sends no write by next after the term, and cancels the writes that are under way
// when the term ends: this process may have stood still, on a suspended machine for example, and another may lead.
func (l *Lease) Guard(next http.RoundTripper) http.RoundTripper { return guard{next, l.term} }

type guard struct {
	next http.RoundTripper
	term *engine.Term
}

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return g.next.RoundTrip(r)
	}
	ctx, end := g.term.Within(r.Context())
	if err := term.Check(ctx); err != nil {
		end()
		if r.Body != nil {
			_ = r.Body.Close() // nothing was read from it
		}
		return nil, err
	}
	answer, err := g.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		defer end()
		if cause := context.Cause(ctx); errors.Is(cause, term.ErrOver) {
			err = cause
		}
		return nil, err
	}
	answer.Body = guarded{answer.Body, end}
	return answer, nil
}

// WrappedRoundTripper lets client-go find the transport that it closes.
func (g guard) WrappedRoundTripper() http.RoundTripper { return g.next }

// guarded is the body of an answer, which is read within the term.
type guarded struct {
	io.ReadCloser

	end func()
}

// Close implements io.Closer.
func (g guarded) Close() error {
	defer g.end()
	return g.ReadCloser.Close()
}
