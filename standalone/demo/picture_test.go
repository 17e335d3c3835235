package demo

import (
	"encoding/xml"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"chancery.dev/internal/rig/golden"
)

// TestPicture: docs/demo.svg shows what the demo has printed. make demo-picture records the output, and draws it.
func TestPicture(t *testing.T) {
	recorded, err := os.ReadFile("testdata/demo.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := shown(string(recorded))
	if last := lines[len(lines)-1]; len(lines) < 20 || !strings.Contains(last, "every chain is verified") {
		t.Fatalf("%d lines, the last one is %q: has the demo failed?", len(lines), last)
	}
	svg := draw(lines)
	if len(svg) > 60_000 {
		t.Errorf("the picture has %d bytes, the bar is 60,000", len(svg))
	}
	golden.Check(t, "../../../docs/demo.svg", svg)
}

var (
	step    = regexp.MustCompile(`^ *[0-9.]+ s  (Certificate|CertificateSigningRequest|Order|Challenge|ClusterIssuer|Pod|PodCertificateRequest) .*`)
	boring  = regexp.MustCompile(`  new$| issuing: | not ready: |, queued$`)
	verdict = regexp.MustCompile(`^✓ |^All |^ +identity `)
	good    = regexp.MustCompile(`^✓ |^All |  (ready|issued|valid|approved|running)`)
)

// shown are the lines of the output that fit a picture: what becomes of each object, and the verdict.
func shown(output string) []string {
	lines := []string{"$ make demo", ""}
	verdicts := false
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		switch {
		case verdict.MatchString(line):
			if !verdicts {
				lines = append(lines, "")
			}
			verdicts = true
			lines = append(lines, line)
		case step.MatchString(line) && !boring.MatchString(line):
			lines = append(lines, cut(line, 112))
		}
	}
	return lines
}

// draw draws lines as a terminal shows them.
func draw(lines []string) string {
	const row, margin, width = 18, 16, 920
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img">
<title>make demo: certificates are issued by ACME, by a CA and for a Pod, and every chain is verified</title>
<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13" fill="#c9d1d9" xml:space="preserve">
`, width, 2*margin+row*len(lines))
	for i, line := range lines {
		if line == "" {
			continue
		}
		colour := ""
		if good.MatchString(line) {
			colour = ` fill="#3fb950"`
		}
		fmt.Fprintf(&s, `<text x="%d" y="%d"%s>`, margin, margin+row*i+13, colour)
		_ = xml.EscapeText(&s, []byte(line)) // a strings.Builder takes everything
		s.WriteString("</text>\n")
	}
	s.WriteString("</g>\n</svg>\n")
	return s.String()
}
