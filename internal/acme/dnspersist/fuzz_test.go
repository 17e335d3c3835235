package dnspersist

import (
	"regexp"
	"strconv"
	"testing"
	"time"
)

// issueValue is the grammar of a record by the letter (RFC 8659 §4.2), with the underscores that Choose takes.
var issueValue = regexp.MustCompile(`^[ \t]*[A-Za-z0-9_](?:-*[A-Za-z0-9_])*(?:\.[A-Za-z0-9_](?:-*[A-Za-z0-9_])*)*[ \t]*` +
	`(?:;[ \t]*[A-Za-z0-9](?:-*[A-Za-z0-9])*[ \t]*=[ \t]*[!-:<-~]*[ \t]*)+$`)

// FuzzPersistRecord: no record is taken that a CA which keeps to the grammar refuses, what is taken is read again from
// its own text, and it ends when it says.
func FuzzPersistRecord(f *testing.F) {
	f.Add("ca.example; accounturi=https://ca.example/acct/1; policy=wildcard; persistUntil=1767225600")
	f.Add(" \tca.example\t;ACCOUNTURI = a ; future=1=2")
	f.Add("ca.example; a b=c; accounturi=x")
	f.Add("ca.example; accounturi=x; persistUntil=9223372036854775807")
	now := time.Unix(1767225600, 0)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if !issueValue.MatchString(text) {
			t.Errorf("%q is taken: %+v", text, r)
		}
		if again, err := Parse(r.String()); err != nil || again != r {
			t.Errorf("%q: its own text %q is read as %+v, %v", text, r.String(), again, err)
		}
		end := regexp.MustCompile(`(?i)persistUntil[ \t]*=[ \t]*([0-9]+)[ \t]*(?:;|$)`).FindStringSubmatch(text)
		if end == nil || r.Until.IsZero() {
			return
		}
		if seconds, err := strconv.ParseInt(end[1], 10, 64); err == nil && now.After(r.Until) != (seconds < now.Unix()) {
			t.Errorf("%q ends at %v", text, r.Until)
		}
	})
}
