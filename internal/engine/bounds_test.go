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
	"chancery.dev/internal/rig/growth"
)

// TestLongMessagesAreCut: however much a pass does, and whatever is quoted, events and lines of the log stay short.
func TestLongMessagesAreCut(t *testing.T) {
	const passes = 2000
	long := strings.Repeat("é", limits.EventBytes)
	var line string
	e := &Engine{log: funcr.New(func(_, text string) { line = text }, funcr.Options{})}
	a := &account{}
	for i := range passes {
		a.did(fmt.Sprintf("create Pod %d", i))
		a.because(fmt.Sprint(i)+long, "Because")
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
			a := &account{}
			for _, cause := range causes {
				a.because(cause, "Because")
			}
		}
	})
}
