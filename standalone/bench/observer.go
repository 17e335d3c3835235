package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// observer watches for objects to be issued.
type observer struct {
	work  *workload
	watch watch.Interface

	mu sync.Mutex
	// waiting holds, by name, what to close when the object is issued.
	waiting map[string]chan struct{}
	// words are the last that were said about an object that is not issued.
	words map[string]string
	ended error
}

// errWatchEnded is what waits end with when the watch does.
var errWatchEnded = errors.New("the watch ended")

// observe watches what a scenario issues. The watch is one request, not one for each certificate.
func (r *run) observe(ctx context.Context, work *workload) (*observer, error) {
	// The namespace is empty for objects without one.
	w, err := r.plane.client.Watch(ctx, work.list, client.InNamespace(work.object(0).GetNamespace()))
	if err != nil {
		return nil, fmt.Errorf("watch what is issued: %w", err)
	}
	o := &observer{work: work, watch: w, waiting: map[string]chan struct{}{}, words: map[string]string{}}
	go func() {
		for event := range w.ResultChan() {
			if object, ok := event.Object.(client.Object); ok && event.Type != watch.Deleted {
				o.observe(object)
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ended = errWatchEnded
	}()
	return o, nil
}

// expect returns what is closed once the object is issued.
func (o *observer) expect(object client.Object) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	issued := make(chan struct{})
	o.waiting[object.GetName()] = issued
	return issued
}

func (o *observer) observe(object client.Object) {
	issued, said := o.work.state(object)
	o.mu.Lock()
	defer o.mu.Unlock()
	name := object.GetName()
	if !issued {
		o.words[name] = said
		return
	}
	delete(o.words, name)
	if waiting, ok := o.waiting[name]; ok {
		close(waiting)
		delete(o.waiting, name)
	}
}

// said is the last that the watch has said about an object.
func (o *observer) said(object client.Object) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil {
		return o.ended.Error()
	}
	if words := o.words[object.GetName()]; words != "" {
		return words
	}
	return "it has no condition: nobody has looked at it"
}

func (o *observer) stop() { o.watch.Stop() }
