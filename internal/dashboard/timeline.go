package dashboard

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"chancery.dev/internal/clientside/explain"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
	// The picture of a time line, in the units of SVG.
	lineWidth, lineHeight, lineLabels, lineLeft, lineTop = 480, 112, 22, 36, 10
)

// timeline counts how many certificates end and renew in each piece of the time to come.
type timeline struct {
	now  time.Time
	unit time.Duration
	// Pieces are in the order of time: the first is for the past, the last for all that comes later.
	Pieces []piece
	Most   int
	// Missing counts the Certificates that have no certificate yet.
	Missing int
}

// piece is a part of a time line.
type piece struct {
	Name           string
	Ends, Renews   int
	from           time.Time
	Label          string
	X, Width       float64
	EndY, EndH     float64
	RenewY, RenewH float64
}

// newTimeline chooses the unit so that 95 of 100 certificates end within its pieces.
func newTimeline(rows []explain.Row, now time.Time) *timeline {
	t := &timeline{now: now}
	for _, scale := range []struct {
		unit  time.Duration
		count int
	}{{time.Hour, 36}, {day, 30}, {week, 26}, {4 * week, 26}, {52 * week, 20}} {
		t.unit = scale.unit
		last, beyond := 0, 0
		for _, r := range rows {
			if at := t.place(r.Expires); at > scale.count {
				beyond++
			} else {
				last = max(last, at)
			}
		}
		if beyond*20 <= len(rows) || scale.unit == 52*week {
			t.pieces(max(last, 1))
			break
		}
	}
	for _, r := range rows {
		if r.Expires == nil {
			t.Missing++
			continue
		}
		t.Pieces[min(t.place(r.Expires), len(t.Pieces)-1)].Ends++
		if r.Renews != nil {
			t.Pieces[min(t.place(r.Renews), len(t.Pieces)-1)].Renews++
		}
	}
	t.draw()
	return t
}

// place is the piece that a time is in: 0 has passed, 1 is the first of those to come.
func (t *timeline) place(at *metav1.Time) int {
	switch {
	case at == nil || at.Time.Before(t.now):
		return 0
	default:
		return 1 + int(at.Sub(t.now)/t.unit)
	}
}

// pieces makes those for what has passed, for count units, and for what comes later.
func (t *timeline) pieces(count int) {
	format, what := time.DateOnly, strconv.Itoa(int(t.unit/day))+" days from "
	switch t.unit {
	case time.Hour:
		format, what = "2006-01-02 15:04", "the hour from "
	case day:
		what = "the day from "
	case week:
		what = "the week from "
	}
	t.Pieces = append(t.Pieces, piece{Name: "before now"})
	for i := range count {
		from := t.now.Add(time.Duration(i) * t.unit).UTC()
		t.Pieces = append(t.Pieces, piece{Name: what + from.Format(format), from: from})
	}
	t.Pieces = append(t.Pieces, piece{Name: "later", Label: "later"})
}

// draw gives the pieces their places in the picture, and some of them a label.
func (t *timeline) draw() {
	for _, p := range t.Pieces {
		t.Most = max(t.Most, p.Ends, p.Renews)
	}
	from := 1 // the first piece with a day
	if past := &t.Pieces[0]; past.Ends+past.Renews > 0 {
		past.Label, from = "past", 2
	}
	width := (lineWidth - lineLeft) / float64(len(t.Pieces))
	every := len(t.Pieces)/5 + 1
	format := "Jan 2"
	switch {
	case t.unit == time.Hour:
		format = "15:04"
	case t.unit > week:
		format = "Jan 2006"
	}
	for i := range t.Pieces {
		p := &t.Pieces[i]
		p.X, p.Width = lineLeft+float64(i)*width, width/2-1
		height := func(n int) float64 { return float64(n) / float64(max(t.Most, 1)) * (lineHeight - lineLabels - lineTop) }
		p.EndH, p.RenewH = height(p.Ends), height(p.Renews)
		p.EndY, p.RenewY = lineHeight-lineLabels-p.EndH, lineHeight-lineLabels-p.RenewH
		if p.Label == "" && i >= from && (i-from)%every == 0 && i+every/2 < len(t.Pieces)-1 {
			p.Label = p.from.Format(format)
		}
	}
}

// Unit is the length of a piece, in words.
func (t *timeline) Unit() string {
	return map[time.Duration]string{time.Hour: "hour", day: "day", week: "week", 4 * week: "4 weeks", 52 * week: "52 weeks"}[t.unit]
}
