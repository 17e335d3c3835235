package app

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

// counted is an API server that counts the events that it gets.
type counted struct {
	record.EventSink

	n atomic.Int32
}

// Create implements record.EventSink.
func (c *counted) Create(e *corev1.Event) (*corev1.Event, error) {
	c.n.Add(1)
	return e, nil
}

// Patch implements record.EventSink: it says that an event has come again.
func (c *counted) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) { return c.Create(e) }

// TestEventsAreFew: of many events about one object at once, few are sent, and then one every five minutes.
func TestEventsAreFew(t *testing.T) {
	// sent is how many of n events are sent, beside those that were before.
	sent := func(n, before int, wait time.Duration) (got int) {
		synctest.Test(t, func(t *testing.T) {
			b, sink := newEvents(t.Context()), &counted{}
			defer b.Shutdown()
			b.StartRecordingToSink(sink)
			events := b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "chancery"})
			pod := &corev1.Pod{}
			pod.Name = "web"
			emit := func(n int) {
				for i := range n {
					events.Event(pod, corev1.EventTypeNormal, fmt.Sprint("Reason", i), "something")
				}
				synctest.Wait()
			}
			emit(before)
			time.Sleep(wait) //nolint:forbidigo // the bubble's time
			first := sink.n.Load()
			emit(n)
			got = int(sink.n.Load() - first)
		})
		return got
	}
	bounds.Holds(t, "events", func(n int) limits.Outcome { return bounds.Without(n, sent(n, 0, 0)) })
	bounds.Holds(t, "events every five minutes", func(n int) limits.Outcome {
		return bounds.Without(n, sent(n, limits.Events, limits.EventSeconds*time.Second))
	})
}
