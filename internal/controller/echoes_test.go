package controller_test

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/controller"
)

// TestEchoes has the event of a write come before and after the answer to it, alone and
// with the events of others.
func TestEchoes(t *testing.T) {
	order := func(version string) *acmev1.Order {
		return &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "order", ResourceVersion: version}}
	}
	for name, c := range map[string]struct {
		before, after []string // the versions that are seen before and after the answer
		fails         bool
		through       int // how many of them come through at once
		rings         bool
	}{
		"after the answer":                       {after: []string{"2"}},
		"before the answer":                      {before: []string{"2"}},
		"never":                                  {},
		"somebody else's before it":              {before: []string{"1", "2"}, rings: true},
		"somebody else's before, ours after":     {before: []string{"1"}, after: []string{"2"}, rings: true},
		"somebody else's after it":               {before: []string{"2"}, after: []string{"3"}, through: 1},
		"somebody else's, and ours never":        {after: []string{"3"}, through: 1},
		"ours, and the same again by a resync":   {after: []string{"2", "2"}, through: 1},
		"the write failed, nothing was seen":     {fails: true},
		"the write failed, somebody else's came": {before: []string{"3"}, fails: true, rings: true},
		"the write failed, something comes":      {fails: true, after: []string{"3"}, through: 1},
	} {
		t.Run(name, func(t *testing.T) {
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			bell := &controller.Doorbell{}
			if err := bell.Start(context.Background(), queue); err != nil {
				t.Fatal(err)
			}
			echoes := controller.NewEchoes(bell)
			through := 0
			see := func(versions []string) {
				for _, version := range versions {
					if echoes.Predicate().Update(event.UpdateEvent{ObjectOld: order("0"), ObjectNew: order(version)}) {
						through++
					}
				}
			}
			obj, broken := order("0"), errors.New("broken")
			err := echoes.Write(obj, func() error {
				see(c.before)
				if c.fails {
					return broken
				}
				obj.ResourceVersion = "2"
				return nil
			})
			if (err != nil) != c.fails {
				t.Errorf("the write returned %v", err)
			}
			see(c.after)
			if through != c.through || (queue.Len() > 0) != c.rings {
				t.Errorf("%d came through and %d were queued, want %d and %v", through, queue.Len(), c.through, c.rings)
			}
		})
	}
}

// TestEchoesOfWhatIsGone lets a deletion through, and what comes by the name after it.
func TestEchoesOfWhatIsGone(t *testing.T) {
	obj := &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "order", ResourceVersion: "1"}}
	echoes := controller.NewEchoes(&controller.Doorbell{})
	if err := echoes.Write(obj, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if !echoes.Predicate().Delete(event.DeleteEvent{Object: obj}) {
		t.Error("the deletion did not come through")
	}
	if !echoes.Predicate().Create(event.CreateEvent{Object: obj}) {
		t.Error("what was made afterwards did not come through")
	}
}
