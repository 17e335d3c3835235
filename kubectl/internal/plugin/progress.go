package plugin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/wait"

	"chancery.dev/internal/cli/terminal"
)

const (
	// patience is how long a command may take without a word.
	patience = time.Second
	// reminder is how often the user is told that the same goes on.
	reminder = 30 * time.Second
	// lookAgain is how often Await looks.
	lookAgain = 250 * time.Millisecond
)

// Progress tells a waiting user, on standard error, what a command does: a line for each step, and a reminder now and
// then. A command of less than a second says nothing. A nil Progress never says anything.
type Progress struct {
	out   io.Writer
	begin time.Time
	stop  chan struct{}
	done  chan struct{}

	mu sync.Mutex
	// step is what is done now.
	step string
}

// StartProgress begins with a step, as in "read the Certificates". Call Stop before the command prints its result. A
// quiet command, whose output programs read, gets nil.
func StartProgress(streams Streams, quiet bool, step string) *Progress {
	if quiet {
		return nil
	}
	p := &Progress{out: streams.ErrOut, begin: time.Now(), step: step, stop: make(chan struct{}), done: make(chan struct{})}
	go p.run()
	return p
}

// Step begins another step.
func (p *Progress) Step(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = fmt.Sprintf(format, args...)
}

// Stop ends the Progress.
func (p *Progress) Stop() {
	if p == nil {
		return
	}
	close(p.stop)
	<-p.done
}

func (p *Progress) run() {
	defer close(p.done)
	tick := time.NewTicker(patience)
	defer tick.Stop()
	var said string
	var at time.Time
	for {
		select {
		case <-p.stop:
			return
		case now := <-tick.C:
			p.mu.Lock()
			step := p.step
			p.mu.Unlock()
			if step != said || now.Sub(at) >= reminder {
				fmt.Fprintf(p.out, "%s … %s\n", terminal.Line(step), now.Sub(p.begin).Round(time.Second))
				said, at = step, now
			}
		}
	}
}

// Width is how many columns a terminal has; 0 if that is unknown.
func Width(out io.Writer) int {
	file, is := terminal.Raw(out).(*os.File)
	if !is {
		return 0
	}
	columns, _, _ := term.GetSize(int(file.Fd())) // 0 with an error
	return columns
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	if w, is := stream.(io.Writer); is {
		stream = terminal.Raw(w)
	}
	file, is := stream.(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}

// Await calls check again and again until check has nothing to wait for any more, and tells the user what it waits for.
// If that takes longer than timeout, the error says so, with the help.
func Await(ctx context.Context, p *Progress, timeout time.Duration, help string, check func(context.Context) (waitsFor string, err error)) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, lookAgain, timeout, true, func(ctx context.Context) (bool, error) {
		now, err := check(ctx)
		last = cmp.Or(now, last) // the timeout cuts the last look off
		if now != "" {
			p.Step("%s", now)
		}
		return now == "" && err == nil, err
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %s: %s", last, help)
	case wait.Interrupted(err):
		return fmt.Errorf("%s, after %s: %s", last, timeout, help)
	}
	return err
}
