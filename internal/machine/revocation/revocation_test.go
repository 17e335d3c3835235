package revocation_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
)

func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// keys are two different public keys.
func keys(t *testing.T) (one, two pki.PublicKeyFacts) {
	t.Helper()
	var out []pki.PublicKeyFacts
	for range 2 {
		key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pki.FactsOfKey(key.Public()))
	}
	return out[0], out[1]
}

func conditionOf(status cmmeta.ConditionStatus, reason string) *certmanagerv1.CertificateCondition {
	since := metav1.NewTime(start())
	return &certmanagerv1.CertificateCondition{Type: certmanagerv1.CertificateConditionRevoking, Status: status, Reason: reason, LastTransitionTime: &since}
}

// TestDecide: the whole course of a request to revoke, and all that it can meet.
func TestDecide(t *testing.T) {
	const T, F = cmmeta.ConditionTrue, cmmeta.ConditionFalse
	one, two := keys(t)
	end := start().Add(24 * time.Hour)
	old := &revocation.Held{ID: [32]byte{1}, Key: one, Proven: true, NotAfter: end}
	sameKey := &revocation.Held{ID: [32]byte{2}, Key: one, Proven: true, NotAfter: end}
	fresh := &revocation.Held{ID: [32]byte{3}, Key: two, Proven: true, NotAfter: end}
	foreign := &revocation.Held{ID: [32]byte{4}, Key: two, NotAfter: end}
	temporary := &revocation.Held{ID: [32]byte{5}, Key: two, Proven: true, NotAfter: end, Temporary: true}
	pin := func(r revocation.Reason) *revocation.Pin {
		return &revocation.Pin{ID: [32]byte{1}, Serial: "0a", Key: one, NotAfter: end, Since: start(), Reason: r}
	}
	compromised, superseded := pin(revocation.KeyCompromise), pin(revocation.Superseded)
	answer := func(p *revocation.Pin, err error) *revocation.Answer {
		return &revocation.Answer{ID: p.ID, Reason: p.Reason, Err: err, Refused: fault.IsTerminal(err)}
	}
	refusal, trouble := fault.Terminal("X", "not yours"), errors.New("connection reset")
	done := revocation.Record{Serial: "0a", Reason: revocation.KeyCompromise, Time: start(), Outcome: revocation.Revoked}.String()
	for name, c := range map[string]struct {
		state revocation.State
		wants string // the annotation; empty for none
		after time.Duration
		step  revocation.Step
		says  string // status and reason of what is said; empty for nothing
		text  string // part of the message, or of the record
		warns bool
	}{
		"nobody asks":                   {step: revocation.StepRest},
		"what is no reason":             {wants: "2", state: revocation.State{Held: old}, step: revocation.StepRest, says: "False InvalidReason", text: `"2" is no reason`, warns: true},
		"one that CAs refuse":           {wants: "cACompromise", state: revocation.State{Held: old}, step: revocation.StepRest, says: "False InvalidReason", warns: true},
		"a certificate":                 {wants: "superseded", state: revocation.State{Held: old}, step: revocation.StepPin, says: "True Replacing"},
		"its key":                       {wants: "keyCompromise", state: revocation.State{Held: old}, step: revocation.StepPin, says: "True Replacing", text: "whatever rotationPolicy says"},
		"no certificate":                {wants: "superseded", step: revocation.StepRest, says: "False NothingToRevoke", warns: true},
		"a temporary one":               {wants: "superseded", state: revocation.State{Held: temporary}, step: revocation.StepRest, says: "False NothingToRevoke", warns: true},
		"somebody else's certificate":   {wants: "superseded", state: revocation.State{Held: foreign}, step: revocation.StepRest, says: "False NothingToRevoke", text: "anybody's", warns: true},
		"an expired one":                {wants: "superseded", state: revocation.State{Held: old}, after: 25 * time.Hour, step: revocation.StepRest, says: "False NothingToRevoke", warns: true},
		"somebody else's Secret":        {wants: "superseded", state: revocation.State{Held: old, Owner: "other"}, step: revocation.StepRest, says: "False NothingToRevoke", text: `"other"`, warns: true},
		"one that came later":           {wants: "superseded", state: revocation.State{Held: old, Condition: conditionOf(F, revocation.ReasonNothing)}, step: revocation.StepRest},
		"the same soon after":           {wants: "keyCompromise", state: revocation.State{Held: fresh, Record: done}, step: revocation.StepRest, says: "False Repeated", warns: true},
		"the same, still there":         {wants: "keyCompromise", state: revocation.State{Held: fresh, Record: done, Condition: conditionOf(F, revocation.ReasonRepeated)}, after: 23*time.Hour + 59*time.Minute, step: revocation.StepRest, says: "False Repeated", warns: true},
		"for another reason":            {wants: "superseded", state: revocation.State{Held: fresh, Record: done}, step: revocation.StepPin, says: "True Replacing"},
		"the record was removed":        {wants: "keyCompromise", state: revocation.State{Held: fresh, Condition: conditionOf(F, revocation.ReasonRepeated)}, step: revocation.StepPin, says: "True Replacing"},
		"pinned":                        {wants: "superseded", state: revocation.State{Held: old, Pin: superseded}, step: revocation.StepRest, says: "True Replacing", text: "0a"},
		"pinned for long":               {wants: "superseded", state: revocation.State{Held: old, Pin: superseded}, after: 23 * time.Hour, step: revocation.StepRest, says: "True Replacing"},
		"pinned, and changed to none":   {wants: "x", state: revocation.State{Held: old, Pin: superseded}, step: revocation.StepUnpin},
		"called off":                    {state: revocation.State{Held: old, Pin: superseded, Condition: conditionOf(T, revocation.ReasonReplacing)}, step: revocation.StepUnpin},
		"replaced":                      {wants: "superseded", state: revocation.State{Held: sameKey, Pin: superseded}, step: revocation.StepAsk},
		"replaced, with the same key":   {wants: "keyCompromise", state: revocation.State{Held: sameKey, Pin: compromised}, step: revocation.StepRest, says: "True Replacing"},
		"replaced, with another key":    {wants: "keyCompromise", state: revocation.State{Held: fresh, Pin: compromised}, step: revocation.StepAsk},
		"replaced by a temporary one":   {wants: "superseded", state: revocation.State{Held: temporary, Pin: superseded}, step: revocation.StepRest, says: "True Replacing"},
		"the Secret is gone":            {wants: "superseded", state: revocation.State{Pin: superseded}, step: revocation.StepRest, says: "True Replacing"},
		"a compromised key waits":       {wants: "keyCompromise", state: revocation.State{Held: old, Pin: compromised}, after: 59 * time.Minute, step: revocation.StepRest, says: "True Replacing", text: "2026-01-01T01:00:00Z"},
		"but not for long":              {wants: "keyCompromise", state: revocation.State{Held: old, Pin: compromised}, after: time.Hour, step: revocation.StepAsk},
		"revoked, not replaced":         {wants: "keyCompromise", state: revocation.State{Held: old, Pin: compromised, Answer: answer(compromised, nil)}, after: time.Hour, step: revocation.StepRest, says: "True RevokedBeforeReplaced", warns: true},
		"and a new process knows":       {wants: "keyCompromise", state: revocation.State{Held: old, Pin: compromised, Condition: conditionOf(T, revocation.ReasonRevoked)}, after: 2 * time.Hour, step: revocation.StepRest},
		"replaced after all":            {wants: "keyCompromise", state: revocation.State{Held: fresh, Pin: compromised, Condition: conditionOf(T, revocation.ReasonRevoked)}, after: 2 * time.Hour, step: revocation.StepRecord, text: "outcome=Revoked"},
		"revoked":                       {wants: "superseded", state: revocation.State{Held: fresh, Pin: superseded, Answer: answer(superseded, nil)}, step: revocation.StepRecord, text: "serial=0a reason=superseded time=2026-01-01T00:00:00Z outcome=Revoked"},
		"the answer was of another":     {wants: "superseded", state: revocation.State{Held: fresh, Pin: superseded, Answer: answer(compromised, nil)}, step: revocation.StepAsk},
		"trouble":                       {wants: "superseded", state: revocation.State{Held: fresh, Pin: superseded, Answer: answer(superseded, trouble)}, step: revocation.StepAsk, says: "True RevocationFailed", text: "connection reset", warns: true},
		"refused":                       {wants: "superseded", state: revocation.State{Held: fresh, Pin: superseded, Answer: answer(superseded, refusal)}, after: 59 * time.Minute, step: revocation.StepAsk, says: "True RevocationRefused", text: "not yours", warns: true},
		"an issuer that cannot":         {wants: "superseded", state: revocation.State{Held: old, Pin: superseded, Cannot: "it cannot"}, step: revocation.StepRest, says: "True Replacing", text: "it cannot"},
		"one that cannot, for long":     {wants: "keyCompromise", state: revocation.State{Held: old, Pin: compromised, Cannot: "it cannot"}, after: 5 * time.Hour, step: revocation.StepRest, says: "True Replacing"},
		"one that cannot, replaced":     {wants: "superseded", state: revocation.State{Held: fresh, Pin: superseded, Cannot: "it cannot"}, step: revocation.StepRecord, text: "outcome=Unsupported"},
		"it ends by itself":             {wants: "superseded", state: revocation.State{Held: fresh, Pin: superseded, Answer: answer(superseded, refusal)}, after: 25 * time.Hour, step: revocation.StepRecord, text: "outcome=Expired"},
		"recorded, what is kept is not": {state: revocation.State{Held: fresh, Pin: superseded, Record: done, Condition: conditionOf(T, revocation.ReasonReplacing)}, step: revocation.StepUnpin},
		"recorded, and not said":        {state: revocation.State{Held: fresh, Record: done, Condition: conditionOf(T, revocation.ReasonReplacing)}, step: revocation.StepRest, says: "False Revoked", text: "0a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.state
			s.SecretName, s.Wanted, s.Asked = "web", c.wants, c.wants != ""
			a := revocation.Decide(s, start().Add(c.after))
			said, text := "", a.Record.String()
			if a.Say != nil {
				said, text = string(a.Say.Status)+" "+a.Say.Reason, a.Say.Message
			}
			if a.Step != c.step || said != c.says || a.Warn != c.warns || !strings.Contains(text, c.text) {
				t.Errorf("step %d, says %q: %q, warns %v; want step %d, %q: %q, %v", a.Step, said, text, a.Warn, c.step, c.says, c.text, c.warns)
			}
			pinned := a.Step != revocation.StepPin && s.Pin != nil && a.Step != revocation.StepUnpin && a.Step != revocation.StepRecord
			if pinned && (a.Wake.IsZero() || a.Wake.After(end.Add(time.Second))) {
				t.Errorf("wakes at %s, though the pinned certificate ends at %s", a.Wake, end)
			}
			if a.Step == revocation.StepAsk && a.Wake.Before(end) {
				t.Error("it is called again and again while the CA is asked")
			}
		})
	}
}

// TestCalledOff: the condition goes, or says what was before, and nothing is told as new.
func TestCalledOff(t *testing.T) {
	s := revocation.State{Condition: conditionOf(cmmeta.ConditionTrue, revocation.ReasonReplacing)}
	if a := revocation.Decide(s, start()); !a.Clear || a.Step != revocation.StepRest {
		t.Errorf("%+v", a)
	}
	record := revocation.Record{Serial: "0a", Reason: revocation.KeyCompromise, Time: start().Add(-time.Hour), Outcome: revocation.Unsupported}
	s.Record = record.String()
	if a := revocation.Decide(s, start()); a.Say == nil || a.Say.Reason != "Unsupported" || a.Warn || a.Tell {
		t.Errorf("%+v", a)
	}
	record.Time = start()
	s.Record = record.String()
	if a := revocation.Decide(s, start()); !a.Warn || a.Tell {
		t.Errorf("an issuer that cannot revoke is no warning: %+v", a)
	}
}

// TestRecord: what is written is read, and what is not is no record.
func TestRecord(t *testing.T) {
	want := revocation.Record{Serial: "0a", Reason: revocation.Unspecified, Time: start(), Outcome: revocation.Expired}
	if got, ok := revocation.ParseRecord(want.String()); !ok || got != want {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"", "x", "serial=a reason=b time=c outcome=d", "serial=a reason=b time=2026-01-01T00:00:00Z"} {
		if r, ok := revocation.ParseRecord(text); ok {
			t.Errorf("%q is %+v", text, r)
		}
	}
}

// TestSecretName: it is a name whatever the Certificate's is, and another one for each Certificate.
func TestSecretName(t *testing.T) {
	long := strings.Repeat("a", 229) + ".b" + strings.Repeat("c", 22)
	if name := revocation.SecretName(long, "uid"); len(name) > 253 || strings.Contains(name, ".-") {
		t.Error(name)
	}
	if revocation.SecretName("web", "1") == revocation.SecretName("web", "2") {
		t.Error("two Certificates share a Secret")
	}
}
