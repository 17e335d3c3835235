package trend

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"time"
)

// Panel is the diagram of one measurement.
type Panel struct {
	// Title names the measurement and its unit.
	Title string
	// Samples are drawn as a line.
	Samples []Point
	// Levels are drawn as dots, and Line through them.
	Levels []Point
	Line   Line
}

// Picture is diagrams with a common time, two in a row.
type Picture struct {
	Title  string
	Panels []Panel
	// End is where the time ends.
	End time.Duration
	// Shaded are the parts of the time, from and to, that are drawn on another ground.
	Shaded [][2]time.Duration
}

// The sizes of a panel and of the diagram in it, in pixels.
const (
	columns               = 2
	panelWide, panelHigh  = 460, 200
	left, top             = 56, 34
	diagramWide, diagramH = panelWide - left - 14, panelHigh - top - 34
	// most is how many points a line has at most: each is the mean of its part of the time.
	most = 300
	// ticks is how many parts an axis has, about.
	ticks = 5
)

const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img">
<title>%[3]s</title>
<style>
text { font: 11px system-ui, sans-serif; fill: #57606a }
.title { font-size: 13px; font-weight: 600; fill: #24292f }
.ground { fill: #ffffff } .shaded { fill: #eaeef2 }
.grid { stroke: #d0d7de; stroke-width: 1 }
.samples { fill: none; stroke: #0969da; stroke-width: 1.2 }
.fit { stroke: #bc4c00; stroke-width: 1.5; stroke-dasharray: 6 3 } .level { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
text { fill: #9198a1 } .title { fill: #f0f6fc }
.ground { fill: #0d1117 } .shaded { fill: #21262d }
.grid { stroke: #3d444d }
.samples { stroke: #58a6ff }
.fit { stroke: #f0883e } .level { fill: #f0883e }
}
</style>
<rect class="ground" width="100%%" height="100%%" rx="8"/>
`

// SVG draws the picture. It is readable on light and on dark ground.
func (p Picture) SVG() string {
	var s strings.Builder
	rows := (len(p.Panels) + columns - 1) / columns
	fmt.Fprintf(&s, head, columns*panelWide, rows*panelHigh+10, escaped(p.Title))
	for i, panel := range p.Panels {
		fmt.Fprintf(&s, "<g transform=\"translate(%d %d)\">\n", i%columns*panelWide, i/columns*panelHigh)
		p.draw(&s, panel)
		s.WriteString("</g>\n")
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// draw draws a panel: its ground, its axes from zero on, its samples and its levels.
func (p Picture) draw(s *strings.Builder, panel Panel) {
	points := thin(panel.Samples, p.End)
	highest := panel.Line.At(p.End)
	for _, each := range [][]Point{points, panel.Levels} {
		for _, point := range each {
			highest = max(highest, point.Value)
		}
	}
	step := stepOf(highest)
	highest = step * max(1, math.Ceil(highest/step))
	x := func(at time.Duration) float64 { return left + diagramWide*at.Hours()/p.End.Hours() }
	y := func(value float64) float64 { return top + diagramH*(1-value/highest) }

	fmt.Fprintf(s, "<text class=\"title\" x=\"%d\" y=\"20\">%s</text>\n", left, escaped(panel.Title))
	for _, part := range p.Shaded {
		fmt.Fprintf(s, "<rect class=\"shaded\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n", x(part[0]), top, x(part[1])-x(part[0]), diagramH)
	}
	for i := range int(math.Round(highest/step)) + 1 {
		value := float64(i) * step
		fmt.Fprintf(s, "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			left, y(value), diagramWide, left-6, y(value)+4, number(value))
	}
	for minute, each := 0.0, stepOf(p.End.Minutes()); minute <= p.End.Minutes(); minute += each {
		fmt.Fprintf(s, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x(time.Duration(minute*float64(time.Minute))), top+diagramH+16, number(minute))
	}
	fmt.Fprintf(s, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">minutes</text>\n<polyline class=\"samples\" points=\"", left+diagramWide, top+diagramH+30)
	for _, point := range points {
		fmt.Fprintf(s, "%.1f,%.1f ", x(point.At), y(point.Value))
	}
	s.WriteString("\"/>\n")
	if len(panel.Levels) == 0 {
		return
	}
	first, last := panel.Levels[0].At, panel.Levels[len(panel.Levels)-1].At
	fmt.Fprintf(s, "<path class=\"fit\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x(first), y(panel.Line.At(first)), x(last), y(panel.Line.At(last)))
	for _, point := range panel.Levels {
		fmt.Fprintf(s, "<circle class=\"level\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", x(point.At), y(point.Value))
	}
}

// thin returns the mean of each part of the time.
func thin(samples []Point, end time.Duration) (out []Point) {
	part, n := -1, 0.0
	for _, p := range samples {
		if mine := int(most * p.At / end); mine != part {
			part, n = mine, 0
			out = append(out, Point{})
		}
		n++
		last := &out[len(out)-1]
		last.At += time.Duration(float64(p.At-last.At) / n)
		last.Value += (p.Value - last.Value) / n
	}
	return out
}

// stepOf is how far the ticks of an axis that ends at a value are apart: 1, 2 or 5 times a power of ten.
func stepOf(end float64) float64 {
	if end <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(end/ticks)))
	for _, times := range []float64{1, 2, 5} {
		if step := times * power; end/step <= ticks {
			return step
		}
	}
	return 10 * power
}

// escaped is text as it stands in XML.
func escaped(text string) string {
	var s strings.Builder
	_ = xml.EscapeText(&s, []byte(text)) // a strings.Builder takes everything
	return s.String()
}
