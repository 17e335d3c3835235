// Package trend computes whether a measurement grows over hours, and draws diagrams. It measures nothing.
package trend

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"
)

// Least is the fewest points that a line is fitted to: with fewer of them, the interval of its slope is so wide that it
// says nothing.
const Least = 5

// Point is a value that was measured a time after the begin.
type Point struct {
	At    time.Duration
	Value float64
}

// Line is the straight line that fits points best, by least squares.
type Line struct {
	// Begin is its value at the time 0.
	Begin float64
	// Slope is by how much it grows in an hour. The real slope is between Low and High with a confidence of 95 %.
	Slope, Low, High float64
}

// At is the value of the line at a time.
func (l Line) At(at time.Duration) float64 { return l.Begin + l.Slope*at.Hours() }

// Fit returns the line of points. It is an error if there are fewer than Least, if all have the same time, or if a
// point has no value.
func Fit(points []Point) (Line, error) {
	if len(points) < Least {
		return Line{}, fmt.Errorf("a slope needs %d points, and there are %d", Least, len(points))
	}
	n := float64(len(points))
	var x, y float64
	for _, p := range points {
		x, y = x+p.At.Hours()/n, y+p.Value/n
	}
	var xx, xy float64
	for _, p := range points {
		dx := p.At.Hours() - x
		xx, xy = xx+dx*dx, xy+dx*(p.Value-y)
	}
	if xx == 0 || math.IsNaN(xy) {
		return Line{}, errors.New("a slope needs points of different times, each with a value")
	}
	l := Line{Slope: xy / xx}
	l.Begin = y - l.Slope*x
	var rest float64
	for _, p := range points {
		rest += math.Pow(p.Value-l.At(p.At), 2)
	}
	free := len(points) - 2
	wide := student(free) * math.Sqrt(rest/float64(free)/xx)
	l.Low, l.High = l.Slope-wide, l.Slope+wide
	return l, nil
}

// student is the 97.5 % quantile of Student's t-distribution, for 3 degrees of freedom or more: Abramowitz and Stegun,
// Handbook of Mathematical Functions, 26.7.5.
func student(free int) float64 {
	const z = 1.959964
	power := func(n int) float64 { return math.Pow(z, float64(n)) }
	n := float64(free)
	return z + (power(3)+z)/4/n + (5*power(5)+16*power(3)+3*z)/96/n/n + (3*power(7)+19*power(5)+17*power(3)-15*z)/384/n/n/n +
		(79*power(9)+776*power(7)+1482*power(5)-1920*power(3)-945*z)/92160/n/n/n/n
}

// Series are comparable values of one measurement: those at the end of each rest, for example.
type Series struct {
	Name   string
	Points []Point
	// Allowed is the largest slope, in an hour, of a series that does not grow.
	Allowed float64
	// Line is that of the points.
	Line Line
}

// Grows reports whether even the lower end of the interval of the slope is above Allowed.
func (s Series) Grows() bool { return s.Line.Low > s.Allowed }

// Table writes series as a table of Markdown.
func Table(all []Series) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	_, _ = fmt.Fprintln(w, "| series\t| at first\t| at last\t| slope in an hour, with 95 % confidence\t| allowed\t| verdict\t|")
	_, _ = fmt.Fprintln(w, "|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, s := range all {
		verdict := "does not grow"
		if s.Grows() {
			verdict = "GROWS"
		}
		_, _ = fmt.Fprintf(w, "| %s\t| %s\t| %s\t| %s (%s to %s)\t| %s\t| %s\t|\n", s.Name, number(s.Points[0].Value), number(s.Points[len(s.Points)-1].Value),
			number(s.Line.Slope), number(s.Line.Low), number(s.Line.High), number(s.Allowed), verdict)
	}
	_ = w.Flush() // to a strings.Builder
	return text.String()
}

// number writes a value with two decimals, of which zeros at the end are left out.
func number(v float64) string {
	text := strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
	if text == "-0" {
		return "0"
	}
	return text
}
