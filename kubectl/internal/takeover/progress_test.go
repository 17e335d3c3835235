package takeover

import (
	"context"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/rig/slow"
)

// TestUnderWay: check says how far an earlier command has come.
func TestUnderWay(t *testing.T) {
	t.Parallel()
	slow.Test(t, slow.Takeover)
	o := newOriginal(t)
	r := &record{Done: []string{saveStep}}
	for _, c := range []struct {
		done, undone []string
		code         int
		want         string
	}{
		{done: []string{saveStep}, code: redCode, want: "is under way"},
		{done: []string{saveStep, lastStep}, code: 0, want: "is done"},
		{done: []string{saveStep, lastStep}, undone: []string{"one"}, code: redCode, want: "a rollback is under way"},
	} {
		r.Done, r.Undone = c.done, c.undone
		if err := r.write(t.Context(), cluster{o.client}); err != nil {
			t.Fatal(err)
		}
		if said := o.reported(c.code, "--image="+ourImage).about(aboutInstallation); !strings.Contains(said, c.want) {
			t.Errorf("after %v and %v check does not say %q:\n%s", c.done, c.undone, c.want, said)
		}
	}
}

// TestWaitSays: the reason is told, although the timeout cuts the last look off.
func TestWaitSays(t *testing.T) {
	t.Parallel()
	r := &runner{timeout: 300 * time.Millisecond}
	looks := 0
	err := r.wait(t.Context(), func(ctx context.Context) (string, error) {
		if looks++; looks == 1 {
			return "no Pod is ready", nil
		}
		<-ctx.Done()
		return "", ctx.Err()
	})
	if err == nil || !strings.Contains(err.Error(), "no Pod is ready") {
		t.Errorf("the command says: %v", err)
	}
}
