package certificate

import (
	"testing"
	"time"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
)

// TestCausesArePaced: whatever a request waits for in turn, and whatever the API server refuses in turn, a Certificate
// is written three times a minute at most because of it, and says the last cause in the end.
func TestCausesArePaced(t *testing.T) {
	for name, trouble := range map[string]func(w *world, c *cmmeta.Cause){
		"of a request": func(w *world, c *cmmeta.Cause) { w.next().Status.Cause = c },
		"of a write": func(w *world, c *cmmeta.Cause) {
			w.requests = nil
			w.refusal = &Refusal{Step: StepCreateRequest, Message: c.Message, Cause: c, Err: fault.After(time.Second, "x", "%s", c.Message)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			causes := []*cmmeta.Cause{cause.New(cause.Quota, "", "a", "one"), cause.New(cause.Admission, "", "b", "other")}
			writes := map[int]int{}
			for second := range 600 {
				w.now = w.now.Add(time.Second)
				trouble(w, causes[second%2])
				for {
					a := Decide(w.state(), w.now)
					w.act(a, 9)
					if a.Status == nil {
						break
					}
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
			w.now = w.now.Add(cause.Pause)
			w.act(Decide(w.state(), w.now), 9)
			if !w.crt.Status.Cause.SameAs(causes[1]) {
				t.Errorf("the last cause is not told: %+v", w.crt.Status.Cause)
			}
		})
	}
}

// TestNewsAreNotPaced: what is said once is said, also where a status is held back at the same time.
func TestNewsAreNotPaced(t *testing.T) {
	w := newWorld(t)
	w.settle()
	for i, c := range []*cmmeta.Cause{cause.New(cause.Quota, "", "a", "one"), cause.New(cause.Admission, "", "b", "other")} {
		w.now = w.now.Add(time.Second)
		w.next().Status.Cause = c
		if i > 0 {
			w.postponed = []Postponed{{Step: StepDropSurplus, Until: w.now.Add(time.Minute), News: "forbidden"}}
		}
		a := Decide(w.state(), w.now)
		if i > 0 && (a.Status != nil || len(a.Events) != 1 || a.Events[0].Message != "forbidden") {
			t.Errorf("%+v", a)
		}
		w.act(a, 9)
	}
}
