package certificate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/facts"
)

// failAs makes the issuer refuse the request, in a class.
func (w *world) failAs(class fault.Class) {
	w.t.Helper()
	r := w.next()
	w.fail(r)
	if class != "" {
		w.say(r, certmanagerv1.CertificateRequestConditionFailureClass, cmmeta.ConditionTrue, string(class), "")
	}
}

// TestFailuresAreWaitedOutByClass fails again and again, in each class, with the bounds
// set by the user and not.
func TestFailuresAreWaitedOutByClass(t *testing.T) {
	const m, h = time.Minute, time.Hour
	for class, want := range map[fault.Class][]time.Duration{
		fault.ClassPolicy:        {h, 2 * h, 4 * h, 8 * h, 16 * h, 24 * h, 24 * h},
		fault.ClassValidation:    {m, 10 * m, 100 * m, 24 * h, 24 * h},
		fault.ClassRateLimited:   {30 * m, h, 2 * h, 4 * h, 8 * h, 12 * h, 12 * h},
		fault.ClassUnavailable:   {m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, h, h},
		fault.ClassRefused:       {m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, h, h},
		fault.ClassConfiguration: {m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, h, h},
		"":                       {h, 2 * h, 4 * h},
		"SomethingNew":           {h, 2 * h, 4 * h},
	} {
		for _, byClass := range []bool{true, false} {
			w := newWorld(t)
			w.backoff.ByClass = byClass
			if !byClass {
				want = []time.Duration{h, 2 * h, 4 * h, 8 * h, 16 * h, 32 * h, 32 * h}
			}
			for i, wait := range want {
				w.settle()
				w.failAs(class)
				failed := w.now.Truncate(time.Second)
				wake := w.settle()
				if got := wake.Sub(failed); got != wait {
					t.Errorf("%q, by class %t, failure %d: waits %s, want %s", class, byClass, i+1, got, wait)
				}
				w.now = wake.Add(-time.Second)
				if w.settle(); w.condition(certmanagerv1.CertificateConditionIssuing).Status == cmmeta.ConditionTrue {
					t.Errorf("%q: retried a second too early", class)
				}
				w.now = wake
			}
		}
	}
}

// A change is not waited for after a request that would fail again.
func TestPermanentFailureEndsWithAChange(t *testing.T) {
	issuing := func(w *world) bool {
		w.settle()
		return w.condition(certmanagerv1.CertificateConditionIssuing).Status == cmmeta.ConditionTrue
	}
	for name, change := range map[string]func(*world){
		"the spec":                 otherNames,
		"a person":                 triggered,
		"the issuer's spec":        func(w *world) { w.issuer = &IssuerFacts{Version: "a/2"} },
		"another issuer by a name": func(w *world) { w.issuer = &IssuerFacts{Version: "b/1"} },
		"the issuer's CA":          func(w *world) { w.issuer = &IssuerFacts{Version: "a/1/another"} },
		"the request is deleted":   func(w *world) { w.requests, w.now = nil, w.now.Add(time.Hour) },
	} {
		w := newWorld(t)
		w.backoff.ByClass, w.issuer = true, &IssuerFacts{Version: "a/1/ca"}
		w.settle()
		w.failAs(fault.ClassPermanent)
		w.now = w.now.Add(time.Hour)
		if issuing(w) {
			t.Fatal("retried though nothing has changed")
		}
		c := w.condition(certmanagerv1.CertificateConditionIssuing)
		if !strings.Contains(c.Message, "spec or the issuer has changed") || !strings.Contains(c.Message, "cmctl renew") || !strings.Contains(c.Message, "Secret is deleted") {
			t.Errorf("Issuing does not say what helps: %s", c.Message)
		}
		change(w)
		if !issuing(w) {
			t.Errorf("%s: not retried: %+v", name, c)
		}
	}
}

// TestACAThatIsNotAtHandIsNoChange: which CA an issuer has may not be known when a request is made, or afterwards.
// Nothing is retried because of that: a Certificate was tried twice at once where its issuer was as new.
func TestACAThatIsNotAtHandIsNoChange(t *testing.T) {
	for was, now := range map[string]string{"a/1": "a/1/ca", "a/1/ca": "a/1"} {
		w := newWorld(t)
		w.backoff.ByClass, w.issuer = true, &IssuerFacts{Version: was}
		w.settle()
		w.failAs(fault.ClassPermanent)
		w.now, w.issuer = w.now.Add(time.Hour), &IssuerFacts{Version: now}
		w.settle()
		if c := w.condition(certmanagerv1.CertificateConditionIssuing); c.Status == cmmeta.ConditionTrue {
			t.Errorf("retried since the issuer, which was %s, is %s", was, now)
		}
	}
}

// spoil lets another writer replace the private key.
func (w *world) spoil() {
	w.takes("external-secrets", func(s *corev1.Secret) {
		s.Data["tls.key"] = keySecret(w.t, "x", newKey(w.t, facts.KeySpecOf(&w.crt.Spec))).Data["tls.key"]
	})
}

// Whoever fights over the Secret does not get certificates without end: the
// condition names them, and there is a way out.
func TestBudgetEndsAFight(t *testing.T) {
	w := issued(t)
	good, begin := w.secret.DeepCopy(), w.now
	var until time.Time
	for w.now.Before(begin.Add(24*time.Hour)) || until.IsZero() {
		w.spoil()
		writes, events := w.statusWrites, len(w.events)
		until = w.settle()
		if r, ok := pendingRequest(w); ok {
			w.sign(r)
			w.settle()
			good, until = w.secret.DeepCopy(), time.Time{}
			w.now = w.now.Add(time.Second)
			continue
		}
		for range 5 {
			w.settle()
		}
		if w.statusWrites-writes != 1 || len(w.events)-events != 1 || w.events[events].Reason != ReasonOverBudget {
			t.Fatalf("%d writes and events %v, want one each", w.statusWrites-writes, w.events[events:])
		}
		if w.now.Before(begin.Add(24 * time.Hour)) {
			w.now = until
		}
	}
	if n := w.stores; n < 5*24-5 || n > 5*24+5 {
		t.Errorf("issued %d times in a day, want five an hour", n)
	}
	c := w.condition(certmanagerv1.CertificateConditionIssuing)
	if c.Status != "False" || c.Reason != ReasonOverBudget || !strings.Contains(c.Message, `"external-secrets"`) ||
		!strings.Contains(c.Message, until.Format(time.RFC3339)) || strings.Contains(c.Message, "cmctl renew") {
		t.Errorf("Issuing is %+v, woken at %s", c, until)
	}
	for name, out := range map[string]func(*world){
		"time": func(w *world) { w.now = until }, "the spec": otherNames,
		"another Secret": spec(func(s *certmanagerv1.CertificateSpec) { s.SecretName = "another" }),
	} {
		v := w.clone()
		out(v)
		v.settle()
		if _, ok := pendingRequest(v); !ok {
			t.Errorf("%s is no way out: %+v", name, v.condition(certmanagerv1.CertificateConditionIssuing))
		}
	}
	w.secret = good
	w.settle()
	if c := w.condition(certmanagerv1.CertificateConditionIssuing); c.Reason != "" || w.condition(certmanagerv1.CertificateConditionReady).Status != "True" {
		t.Errorf("the rival has given in, and Issuing is %+v", c)
	}
}

// TestRenewalsByHandKeepToTheBudget lets a tool call cmctl renew as often as it can, with a CA that issues and with one
// that refuses. Each time the Certificate says until when it is held up, once, and goes on then without another wish.
func TestRenewalsByHandKeepToTheBudget(t *testing.T) {
	for name, end := range map[string]func(*world){
		"issued":  func(w *world) { w.sign(w.next()) },
		"refused": func(w *world) { w.failAs(fault.ClassPermanent) },
	} {
		w := issued(t)
		byClass(w)
		begin, made := w.now, w.requestsMade
		for w.now.Before(begin.Add(day)) {
			if w.condition(certmanagerv1.CertificateConditionIssuing).Status != cmmeta.ConditionTrue {
				triggered(w)
			}
			events := len(w.events)
			wake := w.settle()
			if _, ok := pendingRequest(w); ok {
				w.now = w.now.Add(time.Second)
				end(w)
				w.settle()
				w.now = w.now.Add(time.Second)
				continue
			}
			for range 3 {
				w.settle()
			}
			c := w.condition(certmanagerv1.CertificateConditionIssuing)
			if c.Status != cmmeta.ConditionTrue || c.Reason != "ManuallyTriggered" || !strings.Contains(c.Message, wake.UTC().Format(time.RFC3339)) ||
				len(w.events) != events+1 || w.events[events].Reason != ReasonOverBudget {
				t.Fatalf("%s: Issuing is %+v, woken at %s, events %v", name, c, wake, w.events[events:])
			}
			v := w.clone()
			otherNames(v)
			v.settle()
			if _, ok := pendingRequest(v); !ok {
				t.Fatalf("%s: a change of the spec has to wait: %+v", name, v.crt.Status)
			}
			w.now = wake
		}
		if n := w.requestsMade - made; n < 5*24-10 || n > 5*24+5 {
			t.Errorf("%s: %d requests in a day, want five an hour", name, n)
		}
	}
}

// Changes of the spec have a budget of their own: many are free, a tool that flips it
// for ever is slowed down.
func TestBudgetOfSpecChanges(t *testing.T) {
	w := issued(t)
	begin := w.now
	for i := 0; w.now.Before(begin.Add(10 * time.Hour)); i++ {
		w.amend(func(s *certmanagerv1.CertificateSpec) { s.DNSNames = []string{fmt.Sprintf("n%d.example.com", i)} })
		for {
			wake := w.settle()
			if r, ok := pendingRequest(w); ok {
				w.sign(r)
				w.settle()
				w.now = w.now.Add(time.Second)
				break
			}
			if i < 30 {
				t.Fatalf("change %d has to wait: %+v", i, w.condition(certmanagerv1.CertificateConditionIssuing))
			}
			w.now = wake
		}
	}
	if per := w.stores / 10; per < 20 || per > 25 {
		t.Errorf("issued %d times an hour", per)
	}
}

// Renewals of certificates that last for minutes are not held up by the budget.
func TestBudgetAllowsShortLives(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.signFor(w.next(), csrOf(t, w.next()).PublicKey, w.now, w.now.Add(15*time.Minute))
	w.settle()
	for range 200 {
		w.now = w.settle()
		if w.now.IsZero() || !w.now.Before(w.crt.Status.NotAfter.Time) {
			t.Fatalf("expired at %s: %+v", w.crt.Status.NotAfter, w.crt.Status.Conditions)
		}
		w.settle()
		if r, ok := pendingRequest(w); ok {
			w.signFor(r, csrOf(t, r).PublicKey, w.now, w.now.Add(15*time.Minute))
			w.settle()
		}
	}
	if w.stores < 50 {
		t.Errorf("issued %d times", w.stores)
	}
}

// informed has a Certificate in order by an issuer that can be asked when to renew.
func informed(t *testing.T) *world {
	t.Helper()
	w := issued(t)
	w.issuer = &IssuerFacts{Version: "a/1", Informs: true}
	return w
}

// inquiry lives until the issuer is asked, and answers.
func (w *world) inquiry(answer RenewalAnswer) {
	w.t.Helper()
	for range 10 {
		asked := w.asked
		wake := w.settle()
		if w.asked > asked {
			answer.Certificate, answer.At = facts.OfSecret(w.secret).Leaf.ID, w.now
			w.answer = &answer
			w.settle()
			return
		}
		w.now = wake
	}
	w.t.Fatal("the issuer is not asked")
}

// TestRenewalInformation holds the words of spec §2.5 about ARI.
func TestRenewalInformation(t *testing.T) {
	day := 24 * time.Hour
	w := informed(t)
	issuedAt := w.now
	start, end := w.now.Add(50*day), w.now.Add(52*day)
	w.inquiry(RenewalAnswer{Start: start, End: end, ExplanationURL: "https://why", RetryAfter: 12 * time.Hour})
	if since := w.now.Sub(issuedAt); since < 10*time.Minute || since > 7*time.Hour {
		t.Errorf("first asked %s after the issuance", since)
	}
	ari := w.crt.Status.ACME.ARI
	if !ari.SuggestedWindow.Start.Time.Equal(start.Truncate(time.Second)) || ari.ExplanationURL != "https://why" || ari.LastError != "" {
		t.Errorf("status %+v", ari)
	}
	if wait := ari.NextCheck.Sub(ari.LastChecked.Time); wait < 648*time.Minute || wait > 792*time.Minute {
		t.Errorf("asked again after %s, want 12h, more or less a tenth", wait)
	}
	chosen := w.crt.Status.RenewalTime.Time
	if chosen.Before(start.Truncate(time.Second)) || !chosen.Before(end) {
		t.Errorf("renewal at %s, want one from %s to %s", chosen, start, end)
	}
	w.inquiry(RenewalAnswer{Start: start.Add(-day), End: end.Add(day)})
	if !w.crt.Status.RenewalTime.Time.Equal(chosen) {
		t.Error("the chosen time changes while the window still has it")
	}
	if wait := w.crt.Status.ACME.ARI.NextCheck.Sub(w.crt.Status.ACME.ARI.LastChecked.Time); wait < 324*time.Minute || wait > 396*time.Minute {
		t.Errorf("asked again after %s without Retry-After, want 6h", wait)
	}
	events := len(w.events)
	w.inquiry(RenewalAnswer{Error: fault.After(time.Second, "x", "the CA is asleep"), RetryAfter: time.Second})
	if ari := w.crt.Status.ACME.ARI; ari.LastError != "the CA is asleep" || ari.SuggestedWindow == nil || ari.NextCheck.Sub(ari.LastChecked.Time) < 54*time.Minute {
		t.Errorf("after a failure %+v", ari)
	}
	if got := w.events[events:]; len(got) != 1 || got[0].Reason != "ARIError" || !got[0].Warning {
		t.Errorf("events %v", got)
	}
	w.inquiry(RenewalAnswer{Start: w.now.Add(-2 * time.Hour), End: w.now.Add(-time.Hour), RetryAfter: 365 * day})
	if c := w.condition(certmanagerv1.CertificateConditionIssuing); c.Reason != "Renewing" {
		t.Errorf("a window that is past does not renew at once: %+v", c)
	}
	w.sign(w.next())
	if w.settle(); w.crt.Status.ACME != nil {
		t.Errorf("what was said of the certificate before is kept: %+v", w.crt.Status.ACME)
	}
}

// What a CA says must not keep a certificate from being renewed, nor renew it
// against the user's will.
func TestRenewalInformationIsNotObeyedBlindly(t *testing.T) {
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		answer RenewalAnswer
		amend  func(*certmanagerv1.CertificateSpec)
		check  func(w *world) bool
	}{
		"a window after the end": {RenewalAnswer{Start: start().Add(91 * day), End: start().Add(92 * day)}, nil, func(w *world) bool {
			return w.crt.Status.RenewalTime.Before(&metav1.Time{Time: start().Add(64 * day)})
		}},
		"a window that reaches past the end": {RenewalAnswer{Start: start().Add(80 * day), End: start().Add(1000 * day)}, nil, func(w *world) bool {
			return w.crt.Status.RenewalTime.Before(&metav1.Time{Time: start().Add(86 * day)})
		}},
		"a window that ends before it begins": {RenewalAnswer{Start: start().Add(40 * day), End: start().Add(39 * day)}, nil, func(w *world) bool {
			return w.crt.Status.ACME.ARI.LastError != "" && w.crt.Status.RenewalTime.After(start().Add(59*day))
		}},
		"none": {RenewalAnswer{None: true}, nil, func(w *world) bool {
			return w.crt.Status.ACME == nil && w.settle().Sub(w.now) == 24*time.Hour
		}},
		"the user's windows": {RenewalAnswer{Start: start().Add(40 * day), End: start().Add(41 * day)},
			openAt(opens("0 3 * * 6", time.Hour, "")), func(w *world) bool {
				at := w.crt.Status.RenewalTime.UTC()
				return at.Weekday() == time.Saturday && at.Hour() == 3 && at.Before(start().Add(48*day))
			}},
	} {
		w := informed(t)
		if c.amend != nil {
			w.amend(c.amend)
		}
		if w.inquiry(c.answer); !c.check(w) {
			t.Errorf("%s: renewal at %s, status %+v", name, w.crt.Status.RenewalTime, w.crt.Status.ACME)
		}
	}
	w := informed(t)
	w.amend(func(s *certmanagerv1.CertificateSpec) {
		s.Renewal = &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyDisabled}
	})
	w.settle()
	w.now = w.now.Add(30 * day)
	if w.settle(); w.asked != 0 {
		t.Error("asked when to renew what is never renewed")
	}
	w = informed(t)
	w.inquiry(RenewalAnswer{Start: start().Add(40 * day), End: start().Add(41 * day)})
	w.issuer = &IssuerFacts{Version: "b/1"}
	if w.settle(); w.crt.Status.ACME != nil || w.crt.Status.RenewalTime.Time.Before(start().Add(59*day)) {
		t.Error("what one issuer has said is kept with another")
	}
}

// TestWhoDecidesWhenToRenew: what the user says of the time wins over what the CA suggests, unless the CA is earlier.
// The status names who has decided. A change of the spec counts although the time before is in the CA's window.
func TestWhoDecidesWhenToRenew(t *testing.T) {
	day := 24 * time.Hour
	early, late := RenewalAnswer{Start: start().Add(20 * day), End: start().Add(21 * day)}, RenewalAnswer{Start: start().Add(70 * day), End: start().Add(72 * day)}
	around := RenewalAnswer{Start: start().Add(39 * day), End: start().Add(80 * day)}
	before := func(d time.Duration) func(*certmanagerv1.CertificateSpec) {
		return func(s *certmanagerv1.CertificateSpec) { s.RenewBefore = &metav1.Duration{Duration: d} }
	}
	half := func(s *certmanagerv1.CertificateSpec) { s.RenewBeforePercentage = new(int32(50)) }
	for name, c := range map[string]struct {
		amend    func(*certmanagerv1.CertificateSpec)
		answer   RenewalAnswer
		from, to time.Duration
		want     certmanagerv1.RenewalTimeSource
	}{
		"the CA is later than the default":             {func(*certmanagerv1.CertificateSpec) {}, late, 70 * day, 72 * day, "ARI"},
		"the CA is earlier than the default":           {func(*certmanagerv1.CertificateSpec) {}, early, 20 * day, 21 * day, "ARI"},
		"the CA is later than renewBefore":             {before(50 * day), late, 40 * day, 40 * day, "RenewBefore"},
		"the CA is earlier than renewBefore":           {before(50 * day), early, 20 * day, 21 * day, "ARI"},
		"the CA is later than a percentage":            {half, late, 45 * day, 45 * day, "RenewBeforePercentage"},
		"the CA is earlier than a percentage":          {half, early, 20 * day, 21 * day, "ARI"},
		"the CA's window opens just before":            {before(51*day - time.Second), around, 39 * day, 39*day + time.Second, "RenewBefore"},
		"the CA says nothing, and the default decides": {func(*certmanagerv1.CertificateSpec) {}, RenewalAnswer{None: true}, 60 * day, 63 * day, "Default"},
	} {
		w := informed(t)
		w.crt.Status.RenewalTime = nil // the world comes with cert-manager's, which stays
		w.amend(c.amend)
		w.inquiry(c.answer)
		s := w.crt.Status
		if after := s.RenewalTime.Sub(s.NotBefore.Time); after < c.from || after > c.to || s.RenewalTimeSource != c.want {
			t.Errorf("%s: renewed after %s by %q, want %s to %s by %s", name, after, s.RenewalTimeSource, c.from, c.to, c.want)
		}
	}
	w := informed(t)
	w.amend(before(50 * day))
	w.inquiry(around)
	w.amend(before(89 * day))
	w.settle()
	w.amend(before(50 * day))
	w.settle()
	if after := w.crt.Status.RenewalTime.Sub(w.crt.Status.NotBefore.Time); after != 40*day {
		t.Errorf("renewed after %s by %s, want as the spec says now", after, w.crt.Status.RenewalTimeSource)
	}
}

// What was written by a clock that was ahead keeps nobody from asking, nor from taking the answer.
func TestRenewalInformationOfTheFuture(t *testing.T) {
	day := 24 * time.Hour
	w := informed(t)
	w.inquiry(RenewalAnswer{Start: w.now.Add(50 * day), End: w.now.Add(52 * day)})
	ari := w.crt.Status.ACME.ARI
	ari.LastChecked, ari.NextCheck = at(w.now.Add(365*day)), at(w.now.Add(366*day))
	before := w.now
	w.inquiry(RenewalAnswer{Start: start().Add(40 * day), End: start().Add(41 * day)})
	if ari = w.crt.Status.ACME.ARI; w.now.Sub(before) > day || !ari.LastChecked.Time.Equal(w.now.Truncate(time.Second)) {
		t.Errorf("asked %s later, status %+v", w.now.Sub(before), ari)
	}
	if due := w.crt.Status.RenewalTime; due.After(start().Add(41 * day)) {
		t.Errorf("renewed at %s", due)
	}
}

// A certificate that came with a CA certificate that expires first is issued anew a
// little before that, once: the next may come with no better one.
func TestExpiringChainRenewsOnce(t *testing.T) {
	day := 24 * time.Hour
	w := newWorld(t)
	w.amend(func(s *certmanagerv1.CertificateSpec) { s.RenewBefore = &metav1.Duration{Duration: day} })
	w.settle()
	end := w.now.Add(40 * day)
	sign := func() {
		r := w.next()
		w.sign(r)
		r.Status.CA = leafFor(t, csrOf(t, r), csrOf(t, r).PublicKey, start(), end)
		w.settle()
	}
	sign()
	issuedAt := []time.Duration{}
	for w.now.Before(start().Add(88 * day)) {
		w.now = w.settle()
		w.settle()
		if _, ok := pendingRequest(w); ok && w.now.Before(start().Add(88*day)) {
			issuedAt = append(issuedAt, w.now.Sub(start()))
			sign()
		}
	}
	if len(issuedAt) != 1 || issuedAt[0] < 31*day || issuedAt[0] > 40*day {
		t.Errorf("issued again after %v, want once, up to nine days before day 40", issuedAt)
	}
}

// A temporary certificate stands in until there is a real one, is never taken for one,
// and is made once (spec §2.4).
func TestTemporaryCertificate(t *testing.T) {
	for name, kind := range map[string]string{"Issuer": "", "ClusterIssuer": "ClusterIssuer"} {
		w := newWorld(t)
		w.crt.Spec.IssuerRef.Kind = kind
		w.crt.Annotations = map[string]string{certmanagerv1.IssueTemporaryAnnotation: "true"}
		w.settle()
		if w.secret != nil {
			t.Errorf("%s: a temporary certificate before the issuer has said anything", name)
		}
		w.conclude(w.next(), cmmeta.ConditionFalse, certmanagerv1.CertificateRequestReasonPending, "in the works")
		w.settle()
		w.settle()
		if w.secret == nil || !facts.OfSecret(w.secret).Leaf.Temporary || w.secret.Annotations[certmanagerv1.SubjectSerialNumberAnnotation] != "1234567890" {
			t.Fatalf("%s: no temporary certificate: %v", name, w.secret)
		}
		if _, said := w.secret.Annotations[certmanagerv1.IssuerNameAnnotation]; said || w.versions != 1 {
			t.Errorf("%s: annotations %v, written %d times", name, w.secret.Annotations, w.versions)
		}
		if c := w.condition(certmanagerv1.CertificateConditionReady); c.Status != "False" || c.Reason != "IncorrectIssuer" {
			t.Errorf("%s: Ready is %+v", name, c)
		}
		w.fail(w.next())
		w.now = w.settle()
		w.settle()
		if c := w.condition(certmanagerv1.CertificateConditionIssuing); c.Status != "True" {
			t.Errorf("%s: after a failure it is left at that: %+v", name, c)
		}
		w.sign(w.next())
		w.settle()
		if c := w.condition(certmanagerv1.CertificateConditionReady); c.Status != "True" || facts.OfSecret(w.secret).Leaf.Temporary {
			t.Errorf("%s: Ready is %+v", name, c)
		}
		if !slices.ContainsFunc(w.events, func(e Event) bool { return e.Message == "Issued temporary certificate" }) {
			t.Errorf("%s: events %v", name, w.events)
		}
	}
}
