package takeover

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"chancery.dev/internal/cli"
	"chancery.dev/internal/cli/terminal"
)

// Level says how much a finding matters.
type Level string

// The levels. A report with a red finding is red.
const (
	OK   Level = "ok"
	Note Level = "note"
	Red  Level = "red"
)

// Finding is one thing that a takeover meets.
type Finding struct {
	// About is the name by which --accept takes a red finding.
	About string `json:"about"`
	Level Level  `json:"level"`
	// Message says what was found, and what the takeover does about it.
	Message string `json:"message"`
	// Objects are the objects that the finding is about.
	Objects []string `json:"objects,omitempty"`
	// Help says what to do.
	Help string `json:"help,omitempty"`
	// Accepted says that the user takes a red finding as it is.
	Accepted bool `json:"accepted,omitempty"`
}

// Report is what takeover check finds.
type Report struct {
	Green    bool      `json:"green"`
	Findings []Finding `json:"findings"`
	// Switches are the fates of the flags and feature gates of the running Deployments, by Deployment.
	Switches map[string][]cli.Fate `json:"switches"`
	// Certificates is nil if the cluster has no cert-manager.
	Certificates *Forecast `json:"certificates,omitempty"`
}

// add adds a finding.
func (r *Report) add(about string, level Level, message string, a ...any) *Finding {
	r.Findings = append(r.Findings, Finding{About: about, Level: level, Message: fmt.Sprintf(message, a...)})
	return &r.Findings[len(r.Findings)-1]
}

// judge accepts the red findings that the user names, and says whether the report is green.
func (r *Report) judge(accepted []string) {
	r.Green = true
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Accepted = f.Level == Red && slices.Contains(accepted, f.About)
		r.Green = r.Green && (f.Level != Red || f.Accepted)
	}
}

// print writes the report for people.
func (r *Report) print(out io.Writer) error {
	b := &strings.Builder{}
	for _, f := range r.Findings {
		level := string(f.Level)
		if f.Level == Red {
			level = "RED"
		}
		if f.Accepted {
			level = "taken"
		}
		message := f.Message
		if len(f.Objects) > 0 {
			message += ": " + few(f.Objects)
		}
		fmt.Fprintf(b, "%-6s %-12s %s\n", level, f.About, terminal.Line(message))
		if f.Help != "" {
			fmt.Fprintf(b, "%-6s %-12s > %s\n", "", "", f.Help)
		}
	}
	fmt.Fprintln(b, r.verdict())
	_, err := io.WriteString(out, b.String())
	return err
}

// verdict is the last line: which red findings have to go, and which may be accepted.
func (r *Report) verdict() string {
	var hard, soft []string
	for _, f := range r.Findings {
		switch {
		case f.Level != Red || f.Accepted:
		case slices.Contains(mayBeAccepted(), f.About):
			soft = append(soft, f.About)
		default:
			hard = append(hard, f.About)
		}
	}
	verdict := "RED: takeover apply refuses"
	if slices.Sort(hard); len(hard) > 0 {
		verdict += " until these red findings are gone: " + strings.Join(slices.Compact(hard), ", ")
	}
	if slices.Sort(soft); len(soft) > 0 {
		verdict += ". To take red findings as they are: --accept " + strings.Join(slices.Compact(soft), ",")
	}
	if r.Green {
		return "GREEN: takeover apply may run"
	}
	return verdict
}

// printJSON writes the report for programs.
func (r *Report) printJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
