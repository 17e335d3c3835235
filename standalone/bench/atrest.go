package bench

import (
	"context"
	"errors"
	"fmt"

	"chancery.dev/standalone/bench/usage"
)

// AtRest is the cost of objects that are in order.
type AtRest struct {
	// With is the memory of a process with the objects, Alone that of a process without them. Budget is for the
	// difference of InUse: resident memory differs by more from start to start.
	With   Memory `json:"with"`
	Alone  Memory `json:"alone"`
	Budget int64  `json:"budget"`
	// Reads and Writes are those of the start, beside what an idle cluster does. There are no writes if all is in order.
	Reads  []RequestRow `json:"reads"`
	Writes []RequestRow `json:"writes"`
	// WindowSeconds is how long the process was watched after that. Requests are its requests to the API server in that
	// time: there should be none.
	WindowSeconds float64      `json:"windowSeconds"`
	Requests      []RequestRow `json:"requests"`
}

// Memory is what a process holds and has held at most, and how much of that its heap has in use, in bytes.
type Memory struct {
	Resident int64 `json:"resident"`
	Peak     int64 `json:"peak"`
	InUse    int64 `json:"inUse"`
}

// startAtRest starts a process, and calls do once it is at rest.
func (r *run) startAtRest(ctx context.Context, p process, do func(*controller) error) (err error) {
	c, err := startProcess(ctx, r, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.calm(ctx); err != nil {
		return errors.Join(err, c.LastWords())
	}
	return do(c)
}

// measure looks at a process that is at rest. The process is asked nothing in that time.
func (o *AtRest) measure(ctx context.Context, r *run, c *controller, first counts) error {
	before, _, err := r.plane.settled(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, r.Window); err != nil {
		return err
	}
	after, err := r.plane.counted(ctx)
	if err != nil {
		return err
	}
	started := before.since(first)
	o.Reads = rows(started.takeReads(true), 1)
	o.Writes = rows(started.of(classWork), 1)
	o.Requests = rows(after.since(before).of(classWork), 1)
	o.With, err = c.memory(ctx)
	return err
}

// memory reads what the process holds, and then, after garbage is collected, what is in use.
func (c *controller) memory(ctx context.Context) (m Memory, err error) {
	pid := c.PID()
	if m.Resident, err = usage.Resident(pid); err != nil {
		return m, err
	}
	if m.Peak, err = usage.Peak(pid); err != nil {
		return m, err
	}
	m.InUse, _, err = usage.Heap(ctx, c.profiles)
	return m, err
}

// writeText prints what objects cost beside a process without them; of names how many of them have the budget.
func (o *AtRest) writeText(t *table, what, alone, of string) {
	t.line("")
	more, verdict := o.With.InUse-o.Alone.InUse, ""
	if more > o.Budget {
		verdict = ": EXCEEDED"
	}
	const mib = 1 << 20
	t.line("  %s, at rest\t%.1f MiB in use more than %s, budget %s for %s%s", what, float64(more)/mib, alone, mebibytes(o.Budget), of, verdict)
	t.line("  resident memory with them, at most and at rest\t%s, %s", mebibytes(o.With.Peak), mebibytes(o.With.Resident))
	t.line("  resident memory of %s\t%s, %s", alone, mebibytes(o.Alone.Peak), mebibytes(o.Alone.Resident))
	if len(o.Reads) > 0 {
		t.line("  single reads of a start\t%s", inWords(o.Reads))
	}
	for _, row := range []struct {
		what string
		rows []RequestRow
	}{{"writes of a start", o.Writes}, {fmt.Sprintf("requests in %.0f s at rest", o.WindowSeconds), o.Requests}} {
		said := "none, budget none"
		if len(row.rows) > 0 {
			said = inWords(row.rows) + ", budget none: EXCEEDED"
		}
		t.line("  %s\t%s", row.what, said)
	}
}
