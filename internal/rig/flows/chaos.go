package flows

import (
	"fmt"
	"math/rand"
	"strings"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
)

// Chaos is a world without sense: until it is calm, every call is answered with anything at
// all, from any state. Then it keeps to one verdict for good. Walks that follow a CA's
// rules are in internal/machine/acmeflow/walk_test.go.
type Chaos struct {
	R       *rand.Rand
	Now     time.Time
	Calm    time.Time
	Verdict string
	History []string
}

// NewChaos is one of the worlds, and its verdict one of these.
func NewChaos(seed int64, verdicts ...string) *Chaos {
	r := rand.New(rand.NewSource(seed))
	return &Chaos{
		R: r, Now: Start(), Calm: Start().Add(time.Duration(r.Intn(48)) * time.Hour), Verdict: verdicts[r.Intn(len(verdicts))],
	}
}

// Pick is one of them.
func Pick[T any](r *rand.Rand, from ...T) T { return from[r.Intn(len(from))] }

// Wild reports whether anything may be answered.
func (c *Chaos) Wild() bool { return c.Now.Before(c.Calm) }

// Failure is any; nil in a third of the cases.
func (c *Chaos) Failure() *fault.Fault {
	if c.R.Intn(3) == 0 {
		return nil
	}
	f := Pick(c.R, Failures()...)
	f.Err = fmt.Errorf("%w of %s", f.Err, f.Class) // a class that changes alone is not written
	if c.R.Intn(4) == 0 {
		f.Reason = fault.ReasonNoZone
	}
	f.Delay = Pick(c.R, 0, 0, time.Second, time.Minute, 30*time.Hour)
	return f
}

// Sleep moves the clock to the next thing that is due, or to the calm, in which the last
// events happen. It reports whether there was any.
func (c *Chaos) Sleep(wake time.Time) bool {
	next := wake
	if c.Wild() && (next.IsZero() || c.Calm.Before(next)) {
		next = c.Calm
	}
	if !next.After(c.Now) {
		return false
	}
	c.Now = next
	return true
}

// Say adds to the history.
func (c *Chaos) Say(text string) {
	c.History = append(c.History, c.Now.Format(time.DateTime)+" "+text)
}

// Told is the verdict, and the end of the history.
func (c *Chaos) Told() string {
	return c.Verdict + ":\n" + strings.Join(c.History[max(0, len(c.History)-40):], "\n")
}

// Readiness is that of the issuer.
func (c *Chaos) Readiness() acmeflow.Readiness {
	if !c.Wild() {
		return acmeflow.IssuerReady
	}
	return Pick(c.R, acmeflow.IssuerReady, acmeflow.IssuerReady, acmeflow.IssuerReady, acmeflow.IssuerStarting, acmeflow.IssuerNotReady, acmeflow.IssuerMissing)
}

// ParkedUntil is that of the account.
func (c *Chaos) ParkedUntil() time.Time {
	if c.Wild() && c.R.Intn(8) == 0 {
		return c.Now.Add(time.Hour)
	}
	return time.Time{}
}

// Seeds is how many random histories a run has time for: a third, or all in the slow part faults.
func Seeds(faults bool, all int64) int64 {
	if faults {
		return all
	}
	return all / 3
}
