package trend

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// rests are levels of a rest every two minutes, with noise.
func rests(n int, slope, noise float64) (out []Point) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		at := time.Duration(2*i) * time.Minute
		out = append(out, Point{At: at, Value: 50 + slope*at.Hours() + noise*random.NormFloat64()})
	}
	return out
}

// TestALeakIsFound: a series with noise grows if there is a leak in it, and not otherwise.
func TestALeakIsFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		slope, noise float64
		grows        bool
	}{
		"flat":                         {0, 0.3, false},
		"flat without noise":           {0, 0, false},
		"falls":                        {-10, 0.3, false},
		"grows less than is allowed":   {0.5, 0.1, false},
		"leaks":                        {5, 0.3, true},
		"leaks without noise":          {1.1, 0, true},
		"leaks less than can be found": {5, 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line, err := Fit(rests(13, tc.slope, tc.noise))
			if err != nil {
				t.Fatal(err)
			}
			s := Series{Name: "memory", Points: rests(13, tc.slope, tc.noise), Allowed: 1, Line: line}
			if s.Grows() != tc.grows {
				t.Errorf("%+v grows: %t", line, s.Grows())
			}
			if line.Low > tc.slope+1e-9 || line.High < tc.slope-1e-9 {
				t.Errorf("%v is not between %v and %v", tc.slope, line.Low, line.High)
			}
			if got := strings.Contains(Table([]Series{s}), "GROWS"); got != tc.grows {
				t.Errorf("the table says so: %t", got)
			}
		})
	}
}

// TestFit compares with what a textbook computes: the slope of these points is 0.6, its standard error 0.2828, and
// Student's t for 3 degrees of freedom is 3.182.
func TestFit(t *testing.T) {
	t.Parallel()
	var points []Point
	for i, value := range []float64{2, 4, 5, 4, 5} {
		points = append(points, Point{At: time.Duration(i+1) * time.Hour, Value: value})
	}
	line, err := Fit(points)
	if err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]float64{
		"slope": {line.Slope, 0.6}, "begin": {line.Begin, 2.2}, "low": {line.Low, -0.3}, "high": {line.High, 1.5}, "at 5 h": {line.At(5 * time.Hour), 5.2},
		"t of 5": {student(5), 2.571}, "t of 11": {student(11), 2.201}, "t of 1000": {student(1000), 1.962},
	} {
		if math.Abs(pair[0]-pair[1]) > 0.005 {
			t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
		}
	}
	if _, err := Fit(points[:4]); err == nil || !strings.Contains(err.Error(), "needs 5 points, and there are 4") {
		t.Errorf("4 points: %v", err)
	}
	if _, err := Fit(make([]Point, Least)); err == nil {
		t.Error("points of one time have a slope")
	}
	points[2].Value = math.NaN()
	if _, err := Fit(points); err == nil {
		t.Error("a point without a value has a slope")
	}
}

// TestPicture: the picture is XML, has what was measured, and nothing is drawn outside of it.
func TestPicture(t *testing.T) {
	t.Parallel()
	var samples []Point
	for i := range 1800 {
		samples = append(samples, Point{At: time.Duration(i) * time.Second, Value: 30 + 20*math.Sin(float64(i)/60)})
	}
	line, err := Fit(rests(15, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	p := Picture{
		Title: "memory & more", End: 30 * time.Minute, Shaded: [][2]time.Duration{{0, time.Minute}, {2 * time.Minute, 3 * time.Minute}},
		Panels: []Panel{{Title: "resident memory, MiB", Samples: samples, Levels: rests(15, 0, 1), Line: line}, {Title: "zero"}},
	}
	svg := p.SVG()
	found := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			found[e.Name.Local]++
			for _, a := range e.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s: %s is %q", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
	if found["circle"] != 15 || found["rect"] != 1+2*2 || found["polyline"] != 2 {
		t.Errorf("found %v", found)
	}
	for _, want := range []string{"memory &amp; more", ">resident memory, MiB<", ">minutes<", ">60<", ">30<", "prefers-color-scheme: dark"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture has no %q", want)
		}
	}
	if points := thin(samples, p.End); len(points) != most || math.Abs(points[0].Value-mean(samples[:6])) > 1e-9 {
		t.Errorf("%d points, of which the first is %+v", len(points), points[0])
	}
}

func mean(points []Point) (sum float64) {
	for _, p := range points {
		sum += p.Value
	}
	return sum / float64(len(points))
}
