package plugin

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress: nothing for a second; then a line for each step and for each half minute.
func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := StartProgress(Streams{ErrOut: &out}, false, "read")
		time.Sleep(patience - 1) //nolint:forbidigo // the bubble's time
		if out.Len() > 0 {
			t.Errorf("before a second is over: %q", out.String())
		}
		time.Sleep(patience + 2) //nolint:forbidigo // the bubble's time
		p.Step("wait")
		time.Sleep(32 * time.Second) //nolint:forbidigo // the bubble's time
		p.Stop()
		if want := "read … 1s\nwait … 3s\nwait … 33s\n"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	})
}

// TestNoProgress: a command whose output programs read says nothing, and needs no test for that.
func TestNoProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := StartProgress(Streams{ErrOut: &out}, true, "read")
	p.Step("wait")
	p.Stop()
	if out.Len() > 0 {
		t.Error(out.String())
	}
}

// TestAwait: the check is repeated until it has nothing to wait for; its own error ends the wait; at the timeout the
// error has what was waited for and what helps.
func TestAwait(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		answers []string
		err     error
		want    string
		took    time.Duration
	}{
		{answers: []string{"a", "b", ""}, took: 2 * lookAgain},
		{answers: []string{"a"}, err: broken, want: "broken", took: lookAgain},
		{answers: []string{"a", "b", "c", "c", "c", "c", "c"}, want: "c, after 900ms: look there", took: 900 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin, looks := time.Now(), 0
			err := Await(t.Context(), nil, 900*time.Millisecond, "look there", func(context.Context) (string, error) {
				if looks == len(c.answers) {
					return "", c.err
				}
				looks++
				return c.answers[looks-1], nil
			})
			if got := errorText(err); got != c.want || time.Since(begin) != c.took {
				t.Errorf("%v: %q after %s", c.answers, got, time.Since(begin))
			}
		})
	}
}

// TestAwaitInterrupted: who presses Ctrl-C reads what is still waited for, and what helps.
func TestAwaitInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := Await(ctx, nil, time.Minute, "look there", func(context.Context) (string, error) {
		cancel()
		return "the CA", nil
	})
	if got, want := errorText(err), "interrupted: the CA: look there"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestConfirm: only a yes goes on; where nobody sits, nobody is asked.
func TestConfirm(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]error{"y\n": nil, "Yes\n": nil, "\n": ErrDeclined, "": ErrDeclined, "no\n": ErrDeclined} {
		var out bytes.Buffer
		if err := confirm(strings.NewReader(answer), &out); !errors.Is(err, want) || out.String() != "Go on? [y/N] " {
			t.Errorf("%q: %v, %q", answer, err, out.String())
		}
	}
	if err := Confirm(Streams{In: strings.NewReader("n\n")}, false); err != nil {
		t.Error(err)
	}
}
