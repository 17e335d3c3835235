package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"chancery.dev/standalone/bench/usage"
)

const (
	// restFor is how long a controller is left alone before its memory is read: Go gives back what a start has taken.
	restFor = 15 * time.Second
	// A controller is calm that uses no more than calmCPU in each of calmWindows times calmWindow.
	calmCPU, calmWindow, calmWindows = 50 * time.Millisecond, time.Second, 5
)

// memory is what a process holds and has held at most, and how much of that its heap has in use, in bytes.
type memory struct{ resident, peak, inUse int64 }

// memory reads what the process holds, and then, after garbage is collected, what is in use.
func (c *controller) memory(ctx context.Context) (m memory, err error) {
	pid := c.PID()
	if m.resident, err = usage.Resident(pid); err != nil {
		return m, err
	}
	if m.peak, err = usage.Peak(pid); err != nil {
		return m, err
	}
	m.inUse, _, err = usage.Heap(ctx, c.profiles)
	return m, err
}

func (m memory) rows(name string) []Row {
	atRest, atMost := mebibytes(name, m.resident), mebibytes(name, m.peak)
	atRest.Part, atMost.Part = "at rest", "at most"
	return []Row{atRest, atMost}
}

// calm waits until the controller has looked at everything, and then leaves it alone for restFor.
func (c *controller) calm(ctx context.Context) error {
	before, err := usage.CPU(c.PID())
	if err != nil {
		return err
	}
	for quiet := 0; quiet < calmWindows; quiet++ {
		if err := sleep(ctx, calmWindow); err != nil {
			return err
		}
		now, err := usage.CPU(c.PID())
		if err != nil {
			return err
		}
		if now-before > calmCPU {
			quiet = -1
		}
		before = now
	}
	return sleep(ctx, restFor)
}

// atRest runs a process that finds nothing to do, reads its memory once it is at rest, and calls do before that.
func (r *run) atRest(ctx context.Context, work *workload, do func(*controller) error) (m memory, err error) {
	err = r.with(ctx, work, func(c *controller) error {
		if err := c.calm(ctx); err != nil {
			return err
		}
		if err := do(c); err != nil {
			return err
		}
		m, err = c.memory(ctx)
		return err
	})
	return m, err
}

// memoryAtRest is atRest with nothing else to do.
func (r *run) memoryAtRest(ctx context.Context, work *workload) (memory, error) {
	return r.atRest(ctx, work, func(*controller) error { return nil })
}

// started tells what requests a start has made since before, and what is counted now. There are no writes if all is in
// order.
func (r *run) started(ctx context.Context, before counts) (now counts, rows []Row, err error) {
	if now, _, err = r.plane.settled(ctx); err != nil {
		return nil, nil, err
	}
	made := now.since(before)
	reads := made.takeReads(true)
	return now, []Row{reads.row("single reads of a start"), made.of(classWork).none("writes of a start")}, nil
}

// restOn starts a process on objects that are in order, waits until it has sent so many GETs, and looks at it for a
// while. The process is asked nothing in that while, and should make no request.
func (r *run) restOn(ctx context.Context, work *workload, reads int) (m memory, rows []Row, err error) {
	first, _, err := r.plane.settled(ctx)
	if err != nil {
		return m, nil, err
	}
	m, err = r.atRest(ctx, work, func(c *controller) error {
		// An API server with so many objects may be slow with the answers.
		for read := 0; read < reads; {
			if err := sleep(ctx, time.Second); err != nil {
				return err
			}
			sent, err := c.requests(ctx)
			if err != nil {
				return err
			}
			read = sent[request{verb: http.MethodGet}]
		}
		var before counts
		if before, rows, err = r.started(ctx, first); err != nil {
			return err
		}
		if err := sleep(ctx, r.Window); err != nil {
			return err
		}
		after, err := r.plane.counted(ctx)
		rows = append(rows, after.since(before).of(classWork).none(fmt.Sprintf("requests in %s at rest", r.Window)))
		return err
	})
	return m, rows, err
}

// objectsAtRest tells what objects cost: memory beside that of a process without them. The budget is for what is in
// use: resident memory differs by more from start to start.
func objectsAtRest(objects, others string, with, without memory, budget int64, of string) []Row {
	more := mebibytes("heap in use for "+objects+" beside "+others, with.inUse-without.inUse)
	more.Budget, more.Words = new(mebibytes("", budget).Value), "for "+of
	return append(append([]Row{more}, with.rows("resident memory with them")...), without.rows("resident memory of "+others)...)
}
