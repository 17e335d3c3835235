package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/clientside/explain"
)

// Marks of what is done and of what failed.
const (
	markDone   = "✓"
	markFailed = "✗"
)

// refresh is how often a terminal is redrawn.
const refresh = 100 * time.Millisecond

// nameWidth is the column in which the words of plain lines begin.
const nameWidth = 46

// display shows a board.
type display struct {
	out   io.Writer
	size  func() (width, height int)
	board *board
	drawn int // lines of the last drawing, on a terminal
	frame int
}

func newDisplay(o Options, b *board) *display {
	return &display{out: o.Out, size: o.Size, board: b}
}

func (d *display) apply(objects int) {
	_, _ = fmt.Fprintf(d.out, "\nApplying %d objects: %d of them ask for a certificate.\n\n", objects, len(d.board.targets))
}

// until shows the progress until every target has settled or the time is over. An error that applied brings ends it.
func (d *display) until(ctx context.Context, timeout time.Duration, applied <-chan error) error {
	over := time.NewTimer(timeout)
	defer over.Stop()
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		settled := d.show()
		if settled {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-applied:
			if err != nil {
				return err
			}
			applied = nil // a nil channel is never ready
		case <-over.C:
			d.show()
			_, _ = fmt.Fprintf(d.out, "\nNot all is done after %s: the time is up (--timeout).\n", timeout)
			return nil
		case <-tick.C:
		case <-d.news():
		}
	}
}

// news rings at a change, where changes are shown as they come; a terminal is redrawn by the clock.
func (d *display) news() <-chan struct{} {
	if d.size != nil {
		return nil
	}
	return d.board.changed
}

// show shows the board as it is, and tells whether every target has settled.
func (d *display) show() (settled bool) {
	settled = true
	var all []standing
	for _, t := range d.board.targets {
		s := d.board.standing(t)
		all = append(all, s)
		settled = settled && s.outcome != explain.Waiting
	}
	if d.size == nil {
		d.lines()
	} else {
		d.draw(all)
	}
	return settled
}

// lines prints each change on a line.
func (d *display) lines() {
	for _, n := range d.board.takeNews() {
		_, _ = fmt.Fprintf(d.out, "%6s  %-*s %s\n", tenths(n.at), nameWidth, n.object, n.words)
	}
}

// draw puts a new drawing over the last one. Lines are cut to the terminal, so that each takes one row.
func (d *display) draw(all []standing) {
	width, height := d.size()
	lines := d.picture(all)
	if fits := max(height-1, 1); len(lines) > fits {
		lines = lines[len(lines)-fits:]
	}
	var s strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(&s, "\x1b[%dA", d.drawn) // cursor up
	}
	for _, line := range lines {
		s.WriteString("\r" + cut(terminal.Text(line), width-1) + "\x1b[K\n") // erase the rest of the row
	}
	s.WriteString("\x1b[J") // and all below
	d.drawn = len(lines)
	d.frame++
	_, _ = io.WriteString(terminal.Raw(d.out), s.String())
}

// picture is the drawing: each target, below it what still works for it, and the sum.
func (d *display) picture(all []standing) []string {
	spinner := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	var lines []string
	cluster, done, bad := d.board.cluster(), 0, 0
	for i, t := range d.board.targets {
		mark := string(spinner[d.frame%len(spinner)])
		switch all[i].outcome {
		case explain.Issued:
			mark = markDone
			done++
		case explain.Failed:
			mark = markFailed
			bad++
		case explain.Waiting:
		}
		lines = append(lines, fmt.Sprintf("%s %-*s %8s  %s", mark, nameWidth, t, tenths(all[i].took), all[i].words))
		if all[i].outcome == explain.Issued {
			continue
		}
		report, _ := d.board.report(cluster, t)
		for _, object := range below(report.Children, "  ") {
			lines = append(lines, fmt.Sprintf("  %-*s %8s  %s", nameWidth, object[0], "", object[1]))
		}
	}
	sum := fmt.Sprintf("%d of %d issued", done, len(all))
	if bad > 0 {
		sum += fmt.Sprintf(", %d failed", bad)
	}
	return append(lines, "", sum)
}

// cut shortens s to at most width characters.
func cut(s string, width int) string {
	runes := []rune(s)
	if width < 1 || len(runes) <= width {
		return s
	}
	return string(runes[:width-1]) + "…"
}
