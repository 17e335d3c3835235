package kubecache

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	leaseTime   = time.Hour
	leaseRetry  = 15 * time.Minute
	leaseRenews = 40 * time.Minute
)

// candidate is a process that wants to lead.
type candidate struct {
	*Lease
	leads chan struct{}
	done  chan struct{}
	stop  context.CancelFunc
}

// compete starts a candidate.
func compete(t *testing.T, client *fake.Clientset, identity string) *candidate {
	t.Helper()
	leases := client.CoordinationV1()
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "lease"}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	c := &candidate{leads: make(chan struct{}), done: make(chan struct{}), Lease: newLease(lock, leases.Leases("kube-system"), LeaseOptions{
		Name: "lease", Duration: leaseTime, RenewDeadline: leaseRenews, Retry: leaseRetry, Now: time.Now,
	})}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(t.Context())
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: c.Lease, LeaseDuration: leaseTime, RenewDeadline: leaseRenews, RetryPeriod: leaseRetry, ReleaseOnCancel: true,
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
				client := fake.NewClientset()
				var dead atomic.Bool
				client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					return dead.Load(), nil, errors.New("no route to host")
				})
				if c.unwatched {
					client.PrependWatchReactor("leases", func(clienttesting.Action) (bool, watch.Interface, error) {
						return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "lease", errors.New("no role"))
					})
				}
				first := compete(t, client, "first")
				<-first.leads
				second := compete(t, client, "second")
				synctest.Wait()
				time.Sleep(100 * time.Minute) //nolint:forbidigo // the bubble's time
				select {
				case <-second.leads:
					t.Fatal("two lead")
				default:
				}
				dead.Store(!c.releases)
				first.stop()
				<-first.done
				dead.Store(false)
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
		client := fake.NewClientset()
		first := compete(t, client, "first")
		<-first.leads
		leases := client.CoordinationV1().Leases("kube-system")
		lease, err := leases.Get(t.Context(), "lease", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec.HolderIdentity, lease.ResourceVersion = new("second"), "2"
		client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			conflict := a.(clienttesting.UpdateAction).GetObject().(metav1.Object).GetResourceVersion() != "2"
			return conflict, nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "lease", errors.New("changed"))
		})
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

// TestLapsedLeaseWritesNothing: a process that slept past its lease reads, and writes nothing.
func TestLapsedLeaseWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		lease := newLease(fakeLock{}, nil, LeaseOptions{Duration: leaseTime, Now: time.Now})
		guarded := lease.Guard(roundTrips(func(r *http.Request) (*http.Response, error) {
			sent = append(sent, r.Method)
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
		time.Sleep(leaseTime - time.Second) //nolint:forbidigo // the bubble's time
		if err := send(http.MethodPatch); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
		if err := send(http.MethodPatch); err == nil || !strings.Contains(err.Error(), "lease of this process has run out") {
			t.Errorf("error %v", err)
		}
		if err := send(http.MethodGet); err != nil {
			t.Error(err)
		}
		if got := strings.Join(sent, " "); got != "POST PATCH GET" {
			t.Errorf("sent %s", got)
		}
	})
}

type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type fakeLock struct{ resourcelock.Interface }

func (fakeLock) Identity() string                                                { return "me" }
func (fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return nil }
