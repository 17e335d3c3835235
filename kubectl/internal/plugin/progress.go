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

	"chancery.dev/internal/printable"
)

const (
	// patience is how long a command may take without a word, and how often a terminal is told the time.
	patience = time.Second
	// reminder is how often a log is told that the same goes on.
	reminder = 30 * time.Second
	// lookAgain is how often Await looks.
	lookAgain = 250 * time.Millisecond

	eraseLine = "\r\x1b[K"
)

// Progress tells the user who waits what a command does, on standard error: on a terminal one line, which is
// overwritten, elsewhere a line for each step and a reminder now and then. A command of less than a second says
// nothing. A nil Progress never says anything.
type Progress struct {
	out      io.Writer
	terminal bool
	begin    time.Time
	stop     chan struct{}
	done     chan struct{}

	mu sync.Mutex
	// step is what is done now; shown is what was printed last, at the time printed.
	step, shown string
	printed     time.Time
	// drawn says that the terminal shows a line.
	drawn bool
}

// StartProgress begins with a step, as in "read the Certificates". Call Stop before the command prints its result. A
// quiet command, whose output programs read, gets nil.
func StartProgress(streams Streams, quiet bool, step string) *Progress {
	if quiet {
		return nil
	}
	return startProgress(printable.Raw(streams.ErrOut), IsTerminal(streams.ErrOut), step)
}

func startProgress(out io.Writer, terminal bool, step string) *Progress {
	p := &Progress{out: out, terminal: terminal, begin: time.Now(), step: step, stop: make(chan struct{}), done: make(chan struct{})}
	go p.run()
	return p
}

// Step says what is done from now on.
func (p *Progress) Step(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = fmt.Sprintf(format, args...)
}

// Stop takes the line away.
func (p *Progress) Stop() {
	if p == nil {
		return
	}
	close(p.stop)
	<-p.done
	p.erase()
}

// Over returns a writer that takes the line away before it writes to out: for results that are printed in between.
func (p *Progress) Over(out io.Writer) io.Writer {
	if p == nil {
		return out
	}
	return over{p, out}
}

// over is a writer that shares a terminal with a Progress.
type over struct {
	progress *Progress
	out      io.Writer
}

// Write writes in place of the line.
func (o over) Write(text []byte) (int, error) {
	o.progress.erase()
	return o.out.Write(text)
}

func (p *Progress) run() {
	defer close(p.done)
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-tick.C:
			p.draw(now)
		}
	}
}

func (p *Progress) draw(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("%s … %s", printable.Line(p.step), now.Sub(p.begin).Round(time.Second))
	switch {
	case p.terminal:
		fmt.Fprint(p.out, eraseLine, shorten(line, Width(p.out)))
		p.drawn = true
	case p.step != p.shown || now.Sub(p.printed) >= reminder:
		fmt.Fprintln(p.out, line)
		p.shown, p.printed = p.step, now
	}
}

func (p *Progress) erase() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.out, eraseLine)
		p.drawn = false
	}
}

// shorten cuts a line that a terminal would break: only one that fits can be overwritten.
func shorten(line string, width int) string {
	if r := []rune(line); width > 0 && len(r) >= width {
		return string(r[:width-1])
	}
	return line
}

// Width is how many columns a terminal has; 0 if that is unknown.
func Width(out io.Writer) int {
	file, is := printable.Raw(out).(*os.File)
	if !is {
		return 0
	}
	columns, _, _ := term.GetSize(int(file.Fd())) // 0 with an error
	return columns
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	if w, is := stream.(io.Writer); is {
		stream = printable.Raw(w)
	}
	file, is := stream.(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}

// Await looks again and again until check has nothing to wait for any more; the user is told what is waited for. If
// that takes longer than timeout, the error says so, with the help.
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
