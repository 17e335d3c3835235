package podrequests

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/machine/podrequest"
)

// replica is a Manager that says only whether it leads.
type replica struct {
	ctrl.Manager

	elected chan struct{}
	store   client.Client
}

func (r replica) Elected() <-chan struct{} { return r.elected }

// TestReplicasLeaveRequests: a replica that does not lead acts on a request when the one that leads has had its time,
// and denies none; one that leads acts at once.
func TestReplicasLeaveRequests(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	now, me := start, replica{elected: make(chan struct{})}
	r := &requests{Deps: &controller.Deps{Manager: me, Now: func() time.Time { return now }}}
	r.seen = cache.NewLRUExpireCacheWithClock(1, clock(r.Now))
	// acts is after how long this replica acts on a new request.
	acts := func(chance float64) time.Duration {
		t.Helper()
		m := &memory{}
		first, leaves := r.leaves(podrequest.Action{Step: podrequest.StepAuthorize}, false, m, chance)
		now = first.Wake.Add(-time.Millisecond)
		if again, still := r.leaves(podrequest.Action{Step: podrequest.StepSign}, false, m, 0.7); !leaves || !still || !again.Wake.Equal(first.Wake) {
			t.Errorf("a second look: %t, until %s and not %s", still, again.Wake, first.Wake)
		}
		now = first.Wake
		for _, step := range []podrequest.Step{podrequest.StepAuthorize, podrequest.StepRead, podrequest.StepReadKey, podrequest.StepSign} {
			if _, leaves := r.leaves(podrequest.Action{Step: step}, false, m, 0.7); leaves {
				t.Errorf("step %d: it is not done at %s", step, now)
			}
		}
		took := now.Sub(m.first)
		now = m.first
		return took
	}
	of := func(reason string) *podCertificateRequest {
		pcr := &podCertificateRequest{}
		pcr.Status.Conditions = []metav1.Condition{{Reason: reason}}
		return pcr
	}
	for _, c := range []struct {
		about  string
		after  time.Duration
		saw    time.Duration
		chance float64
		want   time.Duration
	}{
		{"nothing seen", 0, 0, 0, 300 * time.Millisecond},
		{"by chance", 0, 0, 0.5, 450 * time.Millisecond},
		{"a fast leader", 0, 20 * time.Millisecond, 0, 300 * time.Millisecond},
		{"a slow one", 0, time.Second, 0, 3 * time.Second},
		{"a fast request does not hide it", 30 * time.Second, 20 * time.Millisecond, 0, 3 * time.Second},
		{"a minute later", 31 * time.Second, 0, 0, 300 * time.Millisecond},
		{"a very slow one", 0, time.Hour, 0, 5 * time.Second},
	} {
		now = now.Add(c.after)
		if c.saw > 0 {
			r.saw(of(reasonIssued), c.saw)
			r.saw(of(reasonWithoutLeader), time.Hour)
		}
		if took := acts(c.chance); took != c.want {
			t.Errorf("%s: it acts after %s, want %s", c.about, took, c.want)
		}
	}
	for _, step := range []podrequest.Step{podrequest.StepWait, podrequest.StepDeny} {
		m := &memory{first: start, turn: start}
		if plan, leaves := r.leaves(podrequest.Action{Step: step, Message: "why"}, false, m, 0); !leaves || plan.Status != nil || len(plan.Events) > 0 || !plan.Wake.IsZero() || !m.first.IsZero() {
			t.Errorf("step %d: %t %+v %+v", step, leaves, plan, m)
		}
	}
	if _, leaves := r.leaves(podrequest.Action{Step: podrequest.StepIgnore}, false, &memory{}, 0); leaves {
		t.Error("it leaves what there is nothing to do about")
	}
	for _, step := range []podrequest.Step{podrequest.StepAuthorize, podrequest.StepRead, podrequest.StepReadKey, podrequest.StepSign} {
		if plan, leaves := r.leaves(podrequest.Action{Step: step}, true, &memory{first: start, turn: start}, 0); !leaves || !plan.Wake.IsZero() {
			t.Errorf("step %d: it asks a server to sign: %t %+v", step, leaves, plan)
		}
	}
	r.Fit = func() bool { return false }
	if plan, leaves := r.leaves(podrequest.Action{Step: podrequest.StepSign}, false, &memory{first: start, turn: start}, 0); !leaves || !plan.Wake.After(now) {
		t.Errorf("a replica that must not lead: %t %+v", leaves, plan)
	}
	close(me.elected)
	for _, step := range []podrequest.Step{podrequest.StepWait, podrequest.StepDeny, podrequest.StepAuthorize, podrequest.StepRead, podrequest.StepReadKey, podrequest.StepSign} {
		if _, leaves := r.leaves(podrequest.Action{Step: step}, true, &memory{}, 0); leaves {
			t.Errorf("step %d: the replica that leads leaves it to others", step)
		}
	}
}
