package certificate

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/renewal"
	"chancery.dev/internal/rig/golden"
)

// luck is the UID of a Certificate that has a chance, which it draws for a purpose by its UID.
func luck(t *testing.T, purpose string, chance float64) types.UID {
	t.Helper()
	const grain = 1000
	for i := range 100 * grain {
		uid := types.UID(strconv.Itoa(i))
		if renewal.Part(grain, uid, purpose) == time.Duration(chance*grain) {
			return uid
		}
	}
	t.Fatalf("no UID has the chance %v", chance)
	return ""
}

// roughly is a wait as Text has it, without what chance adds that luck does not know to the last digit.
func roughly(wait time.Duration) string {
	if wait < day {
		return golden.Text(wait.Round(time.Minute))
	}
	return golden.Text(wait.Round(time.Hour))
}

// TestWaits is the table of the waits of Certificates after a failed issuance, and after what a CA says when it is
// asked when to renew.
func TestWaits(t *testing.T) {
	t.Parallel()
	var waits golden.Waits
	for _, class := range golden.Classes() {
		waits.Add("renewal", string(class), func(_ time.Duration, chance float64) func(int) string {
			w := newWorld(t)
			byClass(w)
			w.crt.UID = luck(t, "again", chance)
			return func(int) string {
				w.settle()
				w.failAs(class)
				failed := w.now.Truncate(time.Second)
				w.now = w.settle()
				return roughly(w.now.Sub(failed))
			}
		})
	}
	w := informed(t)
	from := w.now.Add(50 * day)
	for _, c := range []struct {
		name   string
		answer RenewalAnswer
	}{
		{"an answer", RenewalAnswer{Start: from, End: from.Add(day)}},
		{"an answer without a window", RenewalAnswer{}},
		{"a failure", RenewalAnswer{Error: errors.New("no")}},
	} {
		waits.Add("ARI", c.name, func(asked time.Duration, chance float64) func(int) string {
			return func(int) string {
				w.now = w.now.Add(time.Second)
				answer := c.answer
				answer.Certificate, answer.At, answer.RetryAfter = facts.OfSecret(w.secret).Leaf.ID, w.now, asked
				s := w.state()
				s.Answer, s.Certificate = &answer, s.Certificate.DeepCopy()
				s.Certificate.UID = luck(t, w.now.Truncate(time.Second).String(), chance)
				ari := Decide(s, w.now).Status.ACME.ARI
				return roughly(ari.NextCheck.Sub(ari.LastChecked.Time))
			}
		})
	}
	waits.Check(t, `renewal: by the class that the CertificateRequest has failed with, which tells of no wait that was asked for. Chance is the
UID, which matters where only a change helps (Permanent); from a week after the certificate was due it is a week.
ARI: after an answer it is no failure. A failure that asks for 30s or less never comes here: see ARI errors.`)
}
