package engine

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/growth"
)

// TestLongMessagesAreCut: however much a pass does, and whatever is quoted, events and lines of the log stay short.
func TestLongMessagesAreCut(t *testing.T) {
	const passes = 2000
	long := strings.Repeat("é", limits.EventBytes)
	var line string
	e := &Engine{log: funcr.New(func(_, text string) { line = text }, funcr.Options{})}
	a := &passLog{}
	for i := range passes {
		a.did(fmt.Sprintf("create Pod %d", i))
		a.addCause(fmt.Sprint(i)+long, "Because")
	}
	e.line("Pod", podName, a, "", nil)
	if more := fmt.Sprintf("and %d more", passes-limits.Listed); len(line) > 2*limits.Listed*limits.EventBytes || strings.Count(line, more) != 2 {
		t.Errorf("%d bytes: %.300s…", len(line), line)
	}
	events := record.NewFakeRecorder(1)
	Emit(events, &corev1.Pod{}, Event{Reason: "Because", Message: long})
	if got := strings.TrimPrefix(<-events.Events, "Normal Because "); len(got) > limits.EventBytes || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %.300s…", len(got), got)
	}
	said := func(message string) string {
		Emit(events, &corev1.Pod{}, Event{Reason: "Because", Message: message})
		return strings.TrimPrefix(<-events.Events, "Normal Because ")
	}
	bounds.Holds(t, "event", func(n int) limits.Outcome { return bounds.Without(n, len(said(strings.Repeat("x", n)))) })
	bounds.Holds(t, "link", func(n int) limits.Outcome {
		link := "https://" + strings.Repeat("x", n-len("https://"))
		if !strings.Contains(said(link), link) {
			return limits.Cut
		}
		return limits.Taken
	})
	// told is the line of a pass.
	told := func(steps, causes []string) string {
		a := &passLog{}
		for _, step := range steps {
			a.did(step)
		}
		for _, cause := range causes {
			a.addCause(cause, "Because")
		}
		e.line("Pod", podName, a, "", nil)
		return line
	}
	numbered := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("number-%d.", i)
		}
		return out
	}
	bounds.Holds(t, "steps in a line", func(n int) limits.Outcome {
		return bounds.Without(n, strings.Count(told(numbered(n), nil), "number-"))
	})
	bounds.Holds(t, "causes in a line", func(n int) limits.Outcome {
		return bounds.Without(n, strings.Count(told(nil, numbered(n)), "number-"))
	})
	bounds.Holds(t, "cause", func(n int) limits.Outcome {
		return bounds.Without(n, strings.Count(told(nil, []string{strings.Repeat("Z", n)}), "Z"))
	})
	link := "https://portal.example/unpause?jwt=" + strings.Repeat("x", 700)
	Emit(events, &corev1.Pod{}, Event{Reason: "Because", Message: strings.Repeat("w ", 400) + link})
	if got := <-events.Events; !strings.HasSuffix(got, " "+link) {
		t.Errorf("the link is cut: %s", got)
	}
	growth.Linear(t, passes, func(n int) func() {
		causes := make([]string, n)
		for i := range causes {
			causes[i] = fmt.Sprintf("cause %d", i)
		}
		return func() {
			a := &passLog{}
			for _, cause := range causes {
				a.addCause(cause, "Because")
			}
		}
	})
}
