package controller

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is what a controller takes its work from.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Limiter is the back-off of a Queue.
type Limiter = workqueue.TypedRateLimiter[reconcile.Request]

// NewQueue returns a Queue for the controller of that name. It is a
// priorityqueue.PriorityQueue of two levels: what has a priority below 0 comes last.
//
// It is client-go's work queue with an order of its own, and not controller-runtime's
// priorityqueue (v0.24). That one takes each item through three goroutines to its worker.
// And at its end it hands out what becomes ready in that moment to workers that have left
// already, and waits for them with its locks held: only who calls it from yet another
// goroutine, twice for each item, is sure to come back.
func NewQueue(name string, limiter Limiter) Queue {
	l := &line{
		delays: map[reconcile.Request]*delay{}, onlyLow: map[reconcile.Request]bool{}, taken: map[reconcile.Request]bool{},
		normal: workqueue.DefaultQueue[reconcile.Request](), lows: map[reconcile.Request]*list.Element{},
	}
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: l})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: ordered})
	limited := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{DelayingQueue: delaying})
	return &queue{Queue: limited, line: l, limiter: limiter}
}

// queue adds items to a Queue, and first tells the line in which they wait with which priority.
//
// As in controller-runtime's, of several delays of an item the first to end counts, and none
// outlasts the start of a pass, which says itself when the next one is due. In client-go
// each would end in one more pass.
type queue struct {
	Queue

	line    *line
	limiter Limiter
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *queue) AddWithOpts(o priorityqueue.AddOpts, items ...reconcile.Request) {
	low := o.Priority != nil && *o.Priority < 0
	for _, item := range items {
		after := o.After
		if o.RateLimited {
			if wait := q.limiter.When(item); after <= 0 || wait < after {
				after = wait
			}
		}
		if after > 0 {
			q.line.delay(item, low, after, func() { q.Queue.AddAfter(item, 0) }) // is counted as a retry, and adds at once
			continue
		}
		q.line.ask(item, low)
		q.Queue.Add(item)
	}
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(item reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, item) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(item reconcile.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, item)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue) AddRateLimited(item reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, item)
}

// Get implements workqueue.TypedInterface.
func (q *queue) Get() (item reconcile.Request, shutdown bool) {
	item, _, shutdown = q.GetWithPriority()
	return item, shutdown
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *queue) GetWithPriority() (item reconcile.Request, priority int, shutdown bool) {
	if item, shutdown = q.Queue.Get(); !shutdown && q.line.wasLow(item) {
		priority = handler.LowPriority
	}
	return item, priority, shutdown
}

// ShutDown implements workqueue.TypedInterface: what still waits is dropped.
func (q *queue) ShutDown() {
	q.line.close()
	q.Queue.ShutDown()
}

// line is where the items of a queue wait, those of low priority behind the others. It is a
// workqueue.Queue, called under the lock of client-go's queue: its own is taken last.
type line struct {
	mu     sync.Mutex
	closed bool
	delays map[reconcile.Request]*delay

	// onlyLow has what is asked for since its last pass began, true while all who did are
	// content with low priority. What is taken between being asked for and being added is
	// added without: its priority is normal.
	onlyLow map[reconcile.Request]bool
	normal  workqueue.Queue[reconcile.Request]
	low     list.List
	lows    map[reconcile.Request]*list.Element // of low
	taken   map[reconcile.Request]bool          // from low, until its worker knows
}

// delay is what makes an item wait before it gets in line.
type delay struct {
	end   time.Time
	low   bool
	timer *time.Timer
}

// ask says with which priority an item is going to be added.
func (l *line) ask(item reconcile.Request, low bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked(item, low)
}

func (l *line) asked(item reconcile.Request, low bool) {
	before, known := l.onlyLow[item]
	l.onlyLow[item] = low && (before || !known)
}

// delay lets an item be added when that time has passed, unless a pass begins before. The
// wait itself has no goroutine: the timer starts one at the end.
func (l *line) delay(item reconcile.Request, low bool, after time.Duration, add func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &delay{end: time.Now().Add(after), low: low}
	if before := l.delays[item]; before != nil {
		d.low = low && before.low
		if !d.end.Before(before.end) {
			before.low = d.low
			return
		}
		before.timer.Stop()
	}
	if l.closed {
		return
	}
	l.delays[item] = d
	d.timer = time.AfterFunc(after, func() {
		if l.ended(item, d) {
			add()
		}
	})
}

// ended reports whether that delay of an item still counts; then the item is going to be added.
func (l *line) ended(item reconcile.Request, d *delay) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delays[item] != d {
		return false
	}
	delete(l.delays, item)
	l.asked(item, d.low)
	return true
}

// Push implements workqueue.Queue.
func (l *line) Push(item reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.onlyLow[item] {
		l.lows[item] = l.low.PushBack(item)
	} else {
		l.normal.Push(item)
	}
}

// Touch implements workqueue.Queue: an item can move up.
func (l *line) Touch(item reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if place := l.lows[item]; place != nil && !l.onlyLow[item] {
		l.low.Remove(place)
		delete(l.lows, item)
		l.normal.Push(item)
	}
}

// Len implements workqueue.Queue: a worker finds nothing once the line is closed, and leaves.
func (l *line) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0
	}
	return l.normal.Len() + l.low.Len()
}

// Pop implements workqueue.Queue: a pass begins.
func (l *line) Pop() (item reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.normal.Len() > 0 {
		item = l.normal.Pop()
	} else {
		item, _ = l.low.Remove(l.low.Front()).(reconcile.Request)
		delete(l.lows, item)
		l.taken[item] = true
	}
	delete(l.onlyLow, item)
	if d := l.delays[item]; d != nil {
		d.timer.Stop()
		delete(l.delays, item)
	}
	return item
}

// wasLow reports, once, whether an item has been taken from the low level.
func (l *line) wasLow(item reconcile.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	low := l.taken[item]
	delete(l.taken, item)
	return low
}

// close makes all workers leave.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, d := range l.delays {
		d.timer.Stop()
	}
	clear(l.delays)
}
