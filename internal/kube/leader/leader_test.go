package leader

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"chancery.dev/internal/kube/leader/term"
)

// The defaults of package app.
const (
	leaseTime   = 15 * time.Second
	leaseRetry  = 3 * time.Second
	leaseRenews = 10 * time.Second
)

// candidate is a process that wants to lead.
type candidate struct {
	*Lease
	cut   atomic.Bool // the API server is out of reach
	leads chan struct{}
	done  chan struct{}
	stop  context.CancelFunc
}

const year = 365 * 24 * time.Hour

// cable is the way to a lock.
type cable struct {
	resourcelock.Interface

	cut *atomic.Bool
}

func (c cable) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if c.cut.Load() {
		return nil, nil, errUnreachable
	}
	return c.Interface.Get(ctx)
}

func (c cable) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if c.cut.Load() {
		return errUnreachable
	}
	return c.Interface.Update(ctx, r)
}

var errUnreachable = errors.New("no route to host")

// stays fails if a candidate has ended, or is told that it has lost the lease.
func (c *candidate) stays(t *testing.T) {
	t.Helper()
	select {
	case <-c.done:
		t.Error("a candidate has ended")
	case <-c.Lost():
		t.Error("a candidate has lost the lease")
	default:
	}
}

// acts reports whether the candidate may write.
func (c *candidate) acts() bool {
	select {
	case <-c.leads:
		return !c.Term().Over()
	default:
		return false
	}
}

// newServer returns an API server that refuses updates of what has changed, as real ones do.
func newServer() *fake.Clientset {
	client := fake.NewClientset()
	versions := 0
	client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		update, is := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		now, err := client.Tracker().Get(a.GetResource(), a.GetNamespace(), "lease")
		if stored, found := now.(*coordinationv1.Lease); is && found && err == nil && stored.ResourceVersion != update.ResourceVersion {
			return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "lease", errors.New("changed"))
		}
		versions++
		update.ResourceVersion = strconv.Itoa(versions)
		return false, nil, nil
	})
	return client
}

// compete starts a candidate.
func compete(t *testing.T, client *fake.Clientset, identity string) *candidate {
	t.Helper()
	leases := client.CoordinationV1()
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "lease"}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	c := &candidate{leads: make(chan struct{}), done: make(chan struct{})}
	c.Lease = newLease(lock, leases.Leases("kube-system"), Options{
		Name: "lease", Duration: leaseTime, RenewDeadline: leaseRenews, Retry: leaseRetry, Now: time.Now,
	})
	c.Interface = cable{c.Interface, &c.cut}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(t.Context())
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: c.Lease, LeaseDuration: 100 * year, RenewDeadline: 50 * year, RetryPeriod: leaseRetry, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(c.leads) }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		elector.Run(ctx)
	}()
	return c
}

// TestLeaseHandover: who waits to lead does so at once when the leader releases the lease, and otherwise when the lease
// runs out; where the lease may not be watched, when it is next looked at.
func TestLeaseHandover(t *testing.T) {
	for name, c := range map[string]struct {
		releases, unwatched bool
		atLeast, within     time.Duration
	}{
		"released":            {releases: true, within: time.Second},
		"released, unwatched": {releases: true, unwatched: true, within: leaseRetry},
		"killed":              {atLeast: leaseTime - leaseRetry, within: leaseTime},
		"killed, unwatched":   {unwatched: true, atLeast: leaseTime - leaseRetry, within: leaseTime + leaseRetry},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newServer()
				if c.unwatched {
					client.PrependWatchReactor("leases", func(clienttesting.Action) (bool, watch.Interface, error) {
						return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "lease", errors.New("no role"))
					})
				}
				first := compete(t, client, "first")
				<-first.leads
				second := compete(t, client, "second")
				synctest.Wait()
				time.Sleep(100 * time.Second) //nolint:forbidigo // the bubble's time
				select {
				case <-second.leads:
					t.Fatal("two lead")
				default:
				}
				first.cut.Store(!c.releases)
				first.stop()
				<-first.done
				if c.releases && first.acts() {
					t.Error("the first acts after it has released the lease")
				}
				began := time.Now()
				<-second.leads
				if took := time.Since(began); took > c.within || took < c.atLeast {
					t.Errorf("the second leads after %s, want %s to %s", took, c.atLeast, c.within)
				}
				second.stop()
				<-second.done
			})
		})
	}
}

// TestLostLease: a leader whose lease another process has taken learns that, and takes nothing back.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newServer()
		first := compete(t, client, "first")
		<-first.leads
		synctest.Wait() // for its first renewal
		leases := client.CoordinationV1().Leases("kube-system")
		lease, err := leases.Get(t.Context(), "lease", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec.HolderIdentity = new("second")
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		<-first.Lost()
		first.stop()
		<-first.done
		if lease, err = leases.Get(t.Context(), "lease", metav1.GetOptions{}); err != nil || *lease.Spec.HolderIdentity != "second" {
			t.Errorf("held by %v, error %v", lease.Spec.HolderIdentity, err)
		}
	})
}

// TestOutage: an API server that is away for a minute ends no process. The leader acts until its deadline, and again
// when it has renewed the lease; the other one gives it the time for that, and two never act.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newServer()
		first := compete(t, client, "first")
		<-first.leads
		second := compete(t, client, "second")
		synctest.Wait()
		cut := func(is bool) {
			first.cut.Store(is)
			second.cut.Store(is)
		}
		for range 3 {
			cut(true)
			time.Sleep(leaseRenews + time.Second) //nolint:forbidigo // the bubble's time
			if first.acts() {
				t.Fatal("the leader acts after its deadline")
			}
			time.Sleep(49 * time.Second) //nolint:forbidigo // the bubble's time
			cut(false)
			time.Sleep(leaseRetry + time.Second) //nolint:forbidigo // the bubble's time
			if !first.acts() || second.acts() {
				t.Fatalf("after the outage, the first acts: %t, the second acts: %t", first.acts(), second.acts())
			}
			time.Sleep(leaseTime + leaseRetry) //nolint:forbidigo // the bubble's time
			first.stays(t)
			second.stays(t)
		}
		cut(true)
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		began := time.Now()
		second.cut.Store(false)
		<-second.leads
		if took := time.Since(began); took > 20*time.Second || first.acts() {
			t.Errorf("the second leads after %s, the first acts: %t", took, first.acts())
		}
		first.cut.Store(false)
		<-first.Lost()
		for _, c := range []*candidate{first, second} {
			c.stop()
			<-c.done
		}
	})
}

// TestLeaseOfAnotherInBetween: a leader that has slept past its lease does not go on if another one has led in between,
// and has released the lease, or somebody has deleted it: what the process remembers is not true any more.
func TestLeaseOfAnotherInBetween(t *testing.T) {
	for name, after := range map[string]func(t *testing.T, client *fake.Clientset){
		"released": func(t *testing.T, client *fake.Clientset) {
			t.Helper()
			second := compete(t, client, "second")
			<-second.leads
			second.stop()
			<-second.done
		},
		"deleted": func(t *testing.T, client *fake.Clientset) {
			t.Helper()
			if err := client.CoordinationV1().Leases("kube-system").Delete(t.Context(), "lease", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newServer()
				first := compete(t, client, "first")
				<-first.leads
				first.cut.Store(true)
				time.Sleep(leaseTime + leaseRetry) //nolint:forbidigo // the bubble's time
				after(t, client)
				first.cut.Store(false)
				<-first.Lost()
				if first.acts() {
					t.Error("it acts again")
				}
				first.stop()
				<-first.done
			})
		})
	}
}

// TestOlderLease: an API server whose store was restored from a backup has an older lease than before. The leader and
// who waits end, since their watches would miss what changes until the versions are as new again.
func TestOlderLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newServer()
		first := compete(t, client, "first")
		<-first.leads
		time.Sleep(leaseTime + time.Second) //nolint:forbidigo // the bubble's time: between two renewals
		leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
		backup, err := client.Tracker().Get(leases, "kube-system", "lease")
		if err != nil {
			t.Fatal(err)
		}
		backup = backup.DeepCopyObject()
		second := compete(t, client, "second")
		time.Sleep(2 * leaseTime) //nolint:forbidigo // the bubble's time
		first.stays(t)
		second.stays(t)
		if err := client.Tracker().Update(leases, backup, "kube-system"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaseTime) //nolint:forbidigo // the bubble's time
		for _, c := range []*candidate{first, second} {
			c.stop()
			<-c.done
			if c.Loss() != ErrOlder || c.acts() { //nolint:errorlint // it is not wrapped
				t.Errorf("%s: %v, acts: %t", c.Identity(), c.Loss(), c.acts())
			}
		}
	})
}

// TestLateWatch: a watch that begins with an older lease than was read, as one from a cache of an API server that is
// late, ends no process. The lease is read again, at the usual pace.
func TestLateWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newServer()
		first := compete(t, client, "first")
		<-first.leads
		time.Sleep(leaseTime + time.Second) //nolint:forbidigo // the bubble's time: between two renewals
		late, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "lease", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaseTime) //nolint:forbidigo // the bubble's time
		client.PrependWatchReactor("leases", func(clienttesting.Action) (bool, watch.Interface, error) {
			events := watch.NewFakeWithChanSize(1, false)
			events.Add(late)
			return true, events, nil
		})
		client.ClearActions()
		second := compete(t, client, "second")
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		second.stays(t)
		if second.acts() {
			t.Error("two lead")
		}
		reads := slices.DeleteFunc(client.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() != "get" })
		if len(reads) > 21 {
			t.Errorf("the lease is read %d times in a minute", len(reads))
		}
		second.stop()
		<-second.done
		first.stop()
		<-first.done
	})
}

// TestDeletedLease: who waits makes no lease in place of one that was deleted until the term of its holder is over,
// which makes it anew if it can.
func TestDeletedLease(t *testing.T) {
	for name, killed := range map[string]bool{"the leader lives": false, "the leader is killed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newServer()
				first := compete(t, client, "first")
				<-first.leads
				second := compete(t, client, "second")
				time.Sleep(time.Minute + time.Second) //nolint:forbidigo // the bubble's time: between two renewals
				first.cut.Store(killed)
				if err := client.CoordinationV1().Leases("kube-system").Delete(t.Context(), "lease", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				for range 60 {
					time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
					if first.acts() && second.acts() {
						t.Fatal("two act")
					}
				}
				if first.acts() == killed || second.acts() != killed {
					t.Errorf("the first acts: %t, the second acts: %t", first.acts(), second.acts())
				}
				for _, c := range []*candidate{first, second} {
					c.stop()
					<-c.done
				}
			})
		})
	}
}

// TestLeaseAtRest: what the lease costs in a minute: the leader renews it, and whoever waits holds a watch.
func TestLeaseAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newServer()
		first := compete(t, client, "first")
		<-first.leads
		second := compete(t, client, "second")
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time: between two renewals
		client.ClearActions()
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		var verbs []string
		for _, a := range client.Actions() {
			verbs = append(verbs, a.GetVerb())
		}
		if want := slices.Repeat([]string{"update"}, 20); !slices.Equal(verbs, want) {
			t.Errorf("%v", verbs)
		}
		second.stop()
		first.stop()
		<-first.done
		<-second.done
	})
}

// TestLapsedLeaseWritesNothing: writes stop at the deadline for renewals, those that are under way too; reads go on.
func TestLapsedLeaseWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		lease := newLease(&resourcelock.LeaseLock{}, nil, Options{Duration: leaseTime, RenewDeadline: leaseRenews, Now: time.Now})
		lease.Interface = fakeLock{}
		guarded := lease.Guard(roundTrips(func(r *http.Request) (*http.Response, error) {
			sent = append(sent, r.Method)
			if r.Method == http.MethodPut {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return &http.Response{Body: io.NopCloser(strings.NewReader(""))}, nil
		}))
		send := func(method string) error {
			r, err := http.NewRequestWithContext(t.Context(), method, "https://kubernetes", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := guarded.RoundTrip(r)
			if err == nil {
				_ = answer.Body.Close()
			}
			return err
		}
		if err := errors.Join(send(http.MethodPost), lease.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaseRenews - time.Second) //nolint:forbidigo // the bubble's time
		if err := send(http.MethodPatch); err != nil {
			t.Error(err)
		}
		began := time.Now()
		if err := send(http.MethodPut); !errors.Is(err, term.ErrOver) || time.Since(began) != time.Second {
			t.Errorf("a write that is under way ends after %s with %v", time.Since(began), err)
		}
		if err := send(http.MethodPatch); err == nil || !strings.Contains(err.Error(), "lease of this process has run out") {
			t.Errorf("error %v", err)
		}
		if err := send(http.MethodGet); err != nil {
			t.Error(err)
		}
		if got := strings.Join(sent, " "); got != "POST PATCH PUT GET" {
			t.Errorf("sent %s", got)
		}
	})
}

type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type fakeLock struct{ resourcelock.Interface }

func (fakeLock) Identity() string                                                { return "me" }
func (fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return nil }
