package requests

import (
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/machine/request"
)

// TestCausesArePaced: whatever a request waits for in turn, it is written three times a minute at most because of it,
// and not at all for other words or another time of the next try, until that has passed.
func TestCausesArePaced(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	k := &certificateRequests{&controller.Deps{Now: func() time.Time { return now }}}
	p := &pass{Object: &certmanagerv1.CertificateRequest{}, Memory: &memory{}}
	tell := func(c *cmmeta.Cause) (wrote bool) {
		status, _ := k.record(p, verdict{step: request.StepWait, reason: request.ReasonOrderPending, message: c.Message, cause: c})
		if status != nil {
			p.Object = status
		}
		return status != nil
	}
	causes, writes := []*cmmeta.Cause{cause.New(cause.Quota, "", "a", "one"), cause.New(cause.Admission, "", "b", "other")}, map[int]int{}
	for second := range 600 {
		now = now.Add(time.Second)
		if tell(causes[second%2]) {
			writes[second/60]++
		}
	}
	for minute, n := range writes {
		if n > 3 {
			t.Errorf("%d writes in minute %d", n, minute)
		}
	}
	if len(writes) != 10 {
		t.Errorf("the causes are told in %d minutes only", len(writes))
	}
	var refusals cause.Refusals
	now = now.Add(time.Minute)
	again := cause.New(cause.Quota, "", "c", "no")
	refusals.After(again, now)
	if !tell(again) {
		t.Fatal("a new cause is not told")
	}
	moved := *again
	moved.Message, moved.NextTry = "no, in other words", again.NextTry.DeepCopy()
	moved.NextTry.Time = moved.NextTry.Add(time.Hour)
	if tell(&moved) {
		t.Error("another next try is told before the one that is known has passed")
	}
	if now = now.Add(time.Minute); !tell(&moved) {
		t.Error("another next try is not told after the one that is known has passed")
	}
}
