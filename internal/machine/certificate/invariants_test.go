package certificate

import (
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
)

// The invariants below know nothing of the golden tables: they say what must hold of
// every decision, whatever the state.

// dimension is one thing that can be otherwise, in each of its ways.
type dimension []func(*world)

func asItIs(*world) {}

// dimensions span the states that Decide is asked about; see eachState.
func dimensions() []dimension {
	condition := func(t certmanagerv1.CertificateRequestConditionType) func(*world) {
		return func(w *world) { w.say(w.next(), t, cmmeta.ConditionTrue, "Policy", "because") }
	}
	ready := func(reason string) func(*world) {
		return func(w *world) { w.conclude(w.next(), cmmeta.ConditionFalse, reason, "because") }
	}
	return []dimension{
		{asItIs, noSecret, func(w *world) { w.secret.Data = nil }, data("tls.key", "soup"), data("tls.crt", "soup"), otherSecretKey(384)},
		{asItIs, triggered, func(w *world) {
			w.crt.Status.Conditions = append(w.crt.Status.Conditions, certmanagerv1.CertificateCondition{Type: "Issuing", Status: "True"})
		}},
		{asItIs, otherNames, spec(never), func(w *world) { w.crt.Status.Revision = nil }},
		{asItIs, func(w *world) { w.keys = nil }, func(w *world) {
			w.keys = append(w.keys, keySecret(w.t, "k", newKey(w.t, pki.KeySpec{Algorithm: pki.ECDSA})))
		}, func(w *world) { w.crt.Status.NextPrivateKeySecretName = nil }},
		{
			asItIs, noRequests, signed, condition("Denied"), condition("InvalidRequest"), ready("Failed"), ready("Denied"), ready("Pending"),
			ready("Unheard"), garbledCSR, func(w *world) { w.next().Annotations = nil },
		},
		{asItIs, func(w *world) { w.crt.Status.LastFailureTime = at(w.now) }, func(w *world) { w.owner = "older" }, func(w *world) { w.owner = "" }},
		{asItIs, later, due, ended},
		{
			asItIs, revoke(revocation.Superseded), revoke("X"), pinned(revocation.KeyCompromise), pinned(revocation.Superseded),
			func(w *world) { pinned(revocation.Superseded)(w); revoke("")(w) },
			replaced(revocation.KeyCompromise), func(w *world) { replaced(revocation.Superseded)(w); caSays(nil)(w) },
			func(w *world) { replaced(revocation.Superseded)(w); caSays(errors.New("away"))(w) },
		},
		{asItIs, inLine, inLineWithKey, asks, func(w *world) { inLine(w); w.onShortWay() }, func(w *world) { w.onShortWay(); w.issuer = nil }},
	}
}

// eachState calls visit with states: each way of each dimension with each of every
// other one, and a sample of all dimensions at once.
func eachState(t *testing.T, visit func(name string, w *world)) {
	t.Helper()
	all := dimensions()
	var choices [][]int
	for i := range all {
		for j := range i {
			for x := range all[i] {
				for y := range all[j] {
					choice := make([]int, len(all))
					choice[i], choice[j] = x, y
					choices = append(choices, choice)
				}
			}
		}
	}
	r := rand.New(rand.NewSource(1))
	for range 100 {
		choice := make([]int, len(all))
		for i := range choice {
			choice[i] = r.Intn(len(all[i]))
		}
		choices = append(choices, choice)
	}
	for _, base := range []*world{issued(t), issuing(t)} {
		for _, choice := range choices {
			w := base.clone()
			for _, i := range []int{6, 7, 8, 4, 0, 1, 2, 3, 5} { // what needs the world as it was comes first
				all[i][choice[i]](w)
			}
			visit(fmt.Sprint(choice), w)
		}
	}
}

func (w *world) clone() *world {
	c := *w
	c.crt, c.secret = w.crt.DeepCopy(), w.secret.DeepCopy()
	c.keys, c.requests = slices.Clone(w.keys), nil
	for i := range c.keys {
		c.keys[i] = c.keys[i].DeepCopy()
	}
	for _, r := range w.requests {
		c.requests = append(c.requests, r.DeepCopy())
	}
	c.events, c.steps, c.statusWrites, c.keysMade, c.requestsMade, c.stores = nil, nil, 0, 0, 0, 0
	return &c
}

// TestEveryStateHasOneAction asks about a product of states: no panic, a known step
// with what it needs, and nothing observed is changed.
func TestEveryStateHasOneAction(t *testing.T) {
	states := 0
	eachState(t, func(name string, w *world) {
		states++
		s := w.state()
		crt, requests := s.Certificate.DeepCopy(), make([]*certmanagerv1.CertificateRequest, 0, len(s.Requests))
		for _, r := range s.Requests {
			requests = append(requests, r.CertificateRequest.DeepCopy())
		}
		a := Decide(s, w.now)
		if why := malformed(s, a); why != "" {
			t.Errorf("%s: %s %+v: %s", name, a.Step, a, why)
		}
		if !reflect.DeepEqual(crt, s.Certificate) {
			t.Errorf("%s: the Certificate was changed", name)
		}
		for i, r := range s.Requests {
			if !reflect.DeepEqual(requests[i], r.CertificateRequest) {
				t.Errorf("%s: request %q was changed", name, r.Name)
			}
		}
		if again := Decide(s, w.now); again.Step != a.Step || !slices.Equal(again.Names, a.Names) || again.Name != a.Name {
			t.Errorf("%s: %s, then %s", name, a.Step, again.Step)
		}
	})
	if states < 1_000 {
		t.Errorf("only %d states", states)
	}
}

// malformed says what an Action lacks for its step; "" for nothing.
func malformed(s State, a Action) string {
	owned := func(names []string, has func(string) bool) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !has(n) })
	}
	key := func(n string) bool { return slices.ContainsFunc(s.Keys, func(k facts.Key) bool { return k.Name == n }) }
	request := func(n string) bool {
		return slices.ContainsFunc(s.Requests, func(r facts.Request) bool { return r.Name == n })
	}
	switch a.Step {
	case StepRest:
		if a.Name != "" || a.Names != nil || a.Request != nil {
			return "rest with an object"
		}
	case StepDeleteKeys:
		if !owned(a.Names, key) {
			return "deletes keys that are not there"
		}
	case StepCreateKey:
		if a.Name == "" || len(s.Keys) > 0 {
			return "a second key, or one without name"
		}
		if a.Held && s.Held == nil {
			return "no key in memory"
		}
		if a.ReuseKey && (s.Secret == nil || s.Secret.Key.Algorithm == "") {
			return "no key to reuse"
		}
	case StepDeleteRequests, StepDropSurplus:
		if len(a.Names) == 0 || !owned(a.Names, request) {
			return "deletes requests that are not there"
		}
	case StepCreateRequest:
		_, exists := s.ofRevision(a.Revision)
		if a.Name == "" || exists || request(a.Name) || a.Key != "" && !key(a.Key) {
			return "a second request, or one without name or key"
		}
		if a.Key == "" && (s.Issuer == nil || !s.Issuer.InLine || s.Issuer.NeedsKey || !a.Keep || a.Held && s.Held == nil) {
			return "a request without a key that is kept"
		}
	case StepPin:
		if s.Pin != nil || s.Secret == nil || s.Secret.Leaf == nil || a.Status != nil {
			return "pins what is not there, or before that was said"
		}
	case StepRecord, StepUnpin:
		if s.Pin == nil || a.Status != nil || a.Step == StepRecord && a.Record.Serial != s.Pin.Serial {
			return "ends a revocation that there is not"
		}
	case StepAskRenewalInfo, StepRepair:
		if s.Secret == nil || s.Secret.Leaf == nil {
			return "no certificate to ask about, or to repair"
		}
	case StepStoreTemporary:
		if a.Request == nil || !key(a.Key) {
			return "a temporary certificate without request or key"
		}
	case StepStore:
		if a.Request == nil || !a.Held && !key(a.Key) || a.Held && !s.Held.Public.Same(facts.OfRequest(a.Request).Public) || a.Status == nil || a.Status.Revision == nil || *a.Status.Revision != a.Revision {
			return "stores without request, key or revision"
		}
	default:
		return "unknown step"
	}
	if a.Revoke && (s.Pin == nil || s.Secret != nil && s.Secret.Leaf != nil && s.Pin.ID == s.Secret.Leaf.ID && s.Pin.Reason != revocation.KeyCompromise) {
		return "has a certificate revoked that is in use"
	}
	if !a.Rests() && !a.Wake.IsZero() {
		return "wakes though there is something to do"
	}
	if a.Unsaid != nil && (a.Unsaid.Type != certmanagerv1.CertificateConditionIssuing || a.Unsaid.Status != cmmeta.ConditionTrue || a.Unsaid.Reason == "") {
		return "has nothing to say if it cannot be done"
	}
	return ""
}

// TestEveryStateSettles carries out what is decided: after a bounded number of steps
// there is a rest that writes nothing, that stays a rest, and that is issued, failed
// and backing off, or waiting for something it names.
func TestEveryStateSettles(t *testing.T) {
	eachState(t, func(name string, w *world) {
		wake := w.settle()
		writes := w.statusWrites
		if again := w.settle(); again != wake || w.statusWrites != writes {
			t.Errorf("%s: rests until %s, then until %s, after %d more writes", name, wake, again, w.statusWrites-writes)
		}
		if why := stuck(w, wake); why != "" {
			t.Errorf("%s: %s; steps %v, status %+v", name, why, w.steps, w.crt.Status)
		}
		if len(w.keys) > 1 || w.keysMade > 1 || w.requestsMade > 1 || w.stores > 1 {
			t.Errorf("%s: made %d keys and %d requests, stored %d times", name, w.keysMade, w.requestsMade, w.stores)
		}
		if !wake.IsZero() && !wake.After(w.now) {
			t.Errorf("%s: wakes at once, at %s", name, wake)
		}
	})
}

// TestRevocationHoldsUpNoRenewal: while nothing of a revocation can be pinned, recorded or unpinned, each Certificate
// settles as any other does, a renewal that is due begins, and those steps are tried again.
func TestRevocationHoldsUpNoRenewal(t *testing.T) {
	renewals := 0
	eachState(t, func(name string, w *world) {
		until := w.now.Add(time.Second)
		w.steps = nil
		for _, step := range []Step{StepPin, StepRecord, StepUnpin} {
			w.postponed = append(w.postponed, Postponed{Step: step, Until: until})
		}
		due := w.crt.Status.RenewalTime != nil && !w.now.Before(w.crt.Status.RenewalTime.Time)
		wake := w.settle()
		if slices.ContainsFunc(w.steps, func(s Step) bool { return s == StepPin || s == StepRecord || s == StepUnpin }) {
			t.Errorf("%s: steps %v", name, w.steps)
		}
		if wake.IsZero() || wake.After(until) {
			t.Errorf("%s: wakes at %s, and tries again at %s", name, wake, until)
		}
		issuing := w.condition(certmanagerv1.CertificateConditionIssuing)
		if !due || w.owner != "web" || w.crt.Status.LastFailureTime != nil {
			return
		}
		renewals++
		s := w.state()
		if _, begun := s.ofRevision(s.nextRevision()); !begun && w.stores == 0 && issuing.Message == "" {
			t.Errorf("%s: the renewal does not begin: steps %v, status %+v", name, w.steps, w.crt.Status)
		}
	})
	if renewals < 50 {
		t.Errorf("only %d renewals", renewals)
	}
}

// stuck says why a Certificate at rest would stay as it is for ever; "" if it would
// not, or should.
func stuck(w *world, wake time.Time) string {
	issuing := w.condition(certmanagerv1.CertificateConditionIssuing)
	ready := w.condition(certmanagerv1.CertificateConditionReady)
	switch {
	case w.held != nil || issuing.Status != cmmeta.ConditionTrue && len(w.keys) > 0 && w.issuer != nil && w.issuer.NeedsKey:
		next, ok := pendingRequest(w)
		if left := wake.Sub(w.now); !ok || len(next.Status.Conditions) > 0 || left <= 0 || left > patience {
			return "waits on the short way, though the request was looked at, or without an end"
		}
	case issuing.Status == cmmeta.ConditionTrue:
		if len(w.keys) == 0 && issuing.Message == "" {
			return "issuing without key or reason"
		}
		if len(w.keys) == 1 && !slices.ContainsFunc(w.requests, func(r *certmanagerv1.CertificateRequest) bool {
			n, ok := facts.Request{CertificateRequest: r}.Revision()
			s := w.state()
			return ok && n == s.nextRevision()
		}) {
			return "issuing without request"
		}
	case len(w.keys) > 0 || w.crt.Status.NextPrivateKeySecretName != nil:
		return "a key is left"
	case ready.Status == cmmeta.ConditionTrue:
		if wake.IsZero() {
			return "ready for ever"
		}
	case w.owner != "web":
		if wake.IsZero() {
			return "waits for a Secret for ever"
		}
	case w.crt.Status.LastFailureTime == nil || wake.IsZero():
		return "not ready, and nothing is done about it"
	}
	return ""
}

// TestPrecedence puts each two defects together: the one that spec §2.1 checks first
// is the one that is said.
func TestPrecedence(t *testing.T) {
	defects := []struct {
		reason string
		make   func(*world)
	}{
		{"MissingData", func(w *world) { w.secret.Data = nil }},
		{"InvalidKeyPair", data("tls.key", "soup")},
		{"InvalidCertificate", data("tls.crt", "soup")},
		{"IncorrectIssuer", annotate(certmanagerv1.IssuerNameAnnotation, "old")},
		{"IncorrectCertificate", annotate(certmanagerv1.CertificateNameAnnotation, "other")},
		{"SecretMismatch", spec(p384)},
		{"InvalidCertificateRequest", garbledCSR},
		{"RequestChanged", otherNames},
		{"Renewing", due},
	}
	for i, first := range defects {
		for _, second := range defects[i+1:] {
			w := issued(t)
			second.make(w)
			if w.secret.Data == nil {
				continue
			}
			first.make(w)
			if first.reason == "MissingData" {
				w.secret.Data = nil
			}
			w.act(Decide(w.state(), w.now), 9)
			if got := w.condition(certmanagerv1.CertificateConditionIssuing).Reason; got != first.reason {
				t.Errorf("%s and %s: issues because of %s", first.reason, second.reason, got)
			}
		}
	}
}

// TestBudget counts the writes (docs/performance.md): key, status, request, Secret, status,
// key deletion; the request's own status and the user's create are others'.
func TestBudget(t *testing.T) {
	for name, w := range map[string]*world{"first": newWorld(t), "renewal": issued(t)} {
		if name == "renewal" {
			w.now = w.crt.Status.RenewalTime.Time
		}
		w.settle()
		if w.statusWrites != 1 {
			t.Errorf("%s: %d status writes before the issuer is asked, want 1", name, w.statusWrites)
		}
		w.sign(w.next())
		w.settle()
		if w.statusWrites != 2 || w.keysMade != 1 || w.requestsMade != 1 || w.stores != 1 || len(w.events) != 1 {
			t.Errorf("%s: %d status writes, %d keys, %d requests, %d stores, events %v; want 2, 1, 1, 1 and one",
				name, w.statusWrites, w.keysMade, w.requestsMade, w.stores, w.events)
		}
	}
}

// TestRandomLives lets a Certificate live for years under an issuer that is moody, a
// user who changes her mind and a process that dies between any two writes.
func TestRandomLives(t *testing.T) {
	for seed := range int64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewSource(seed))
			w := newWorld(t)
			w.t = t
			w.backoff.ByClass = seed%2 == 0
			[]func(*world){asItIs, inLine, inLineWithKey}[seed/4](w)
			if seed%3 == 0 {
				temporaryWanted(w)
			}
			for range 100 {
				live(w, r)
			}
			w.owner = "web"
			for range 60 { // calm: the issuer signs whatever it is asked for
				wake := w.settle()
				if next, ok := pendingRequest(w); ok {
					w.sign(next)
					continue
				}
				if w.pinned != nil && w.revocations > 0 {
					w.revocations = 0
					caSays(nil)(w)
					continue
				}
				ready := w.condition(certmanagerv1.CertificateConditionReady).Status == cmmeta.ConditionTrue
				drifting := !wake.IsZero() && wake.Sub(w.now) <= repairPause
				if ready && !drifting && w.pinned == nil && w.condition(certmanagerv1.CertificateConditionIssuing).Status != cmmeta.ConditionTrue {
					isAsWanted(t, w)
					return
				}
				if wake.IsZero() {
					t.Fatalf("waits for nothing: %+v", w.crt.Status)
				}
				w.now = wake
			}
			t.Fatalf("does not get issued: %+v", w.crt.Status)
		})
	}
}

// live is one thing that happens.
func live(w *world, r *rand.Rand) {
	switch r.Intn(16) {
	case 0: // the process dies in the midst of an Action
		a := Decide(w.state(), w.now)
		w.dies(a, r.Intn(3))
	case 1:
		w.now = w.now.Add(time.Duration(r.Intn(3600)) * time.Second)
	case 2:
		if wake := w.settle(); wake.After(w.now) {
			w.now = wake
		}
	case 3:
		w.amend(func(s *certmanagerv1.CertificateSpec) {
			s.DNSNames = []string{fmt.Sprintf("n%d.example.com", r.Intn(3))}
		})
	case 4:
		w.secret = nil
	case 5:
		if next, ok := pendingRequest(w); ok && r.Intn(2) == 0 {
			w.fail(next)
		}
	case 6:
		if next, ok := pendingRequest(w); ok {
			w.say(next, certmanagerv1.CertificateRequestConditionDenied, cmmeta.ConditionTrue, "Policy", "no")
		}
	case 7:
		meddle(w, r)
	case 8:
		if next, ok := pendingRequest(w); ok {
			w.conclude(next, cmmeta.ConditionFalse, certmanagerv1.CertificateRequestReasonPending, "in the works")
			w.settle()
			w.sign(next)
		}
	case 9:
		if _, ok := pendingRequest(w); ok {
			w.failAs([]fault.Class{fault.ClassValidation, fault.ClassUnavailable, fault.ClassRateLimited}[r.Intn(3)])
		}
	case 10:
		revoke([]revocation.Reason{"", revocation.Superseded, revocation.KeyCompromise}[r.Intn(3)])(w)
	case 11:
		if w.pinned != nil {
			caSays([]error{nil, errors.New("away")}[r.Intn(2)])(w)
		}
	default:
		w.settle()
		if next, ok := pendingRequest(w); ok {
			w.sign(next)
		}
	}
}

// meddle lets somebody change what is beside key and certificate, or be of another mind
// about it.
func meddle(w *world, r *rand.Rand) {
	note := fmt.Sprint(r.Intn(3))
	switch r.Intn(5) {
	case 0:
		w.amend(template(map[string]string{"team": note}, nil))
	case 1:
		w.amend(formats("DER"))
	case 2:
		w.amend(formats())
	case 3:
		w.ownerReference = !w.ownerReference
	default:
		if w.secret != nil {
			w.takes("kubectl", func(s *corev1.Secret) {
				s.Labels["team"], s.Annotations[certmanagerv1.IPSANsAnnotation] = "theirs", note
			})
		}
	}
}

func pendingRequest(w *world) (*certmanagerv1.CertificateRequest, bool) {
	s := w.state()
	r, ok := s.ofRevision(s.nextRevision())
	if !ok || r.Condition(certmanagerv1.CertificateRequestConditionDenied) != nil ||
		certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, certmanagerv1.CertificateRequestConditionReady) != nil {
		return nil, false
	}
	return r.CertificateRequest, true
}

// TestBackoffDoubles fails again and again: each time the wait is that of spec §2.1, 4.
func TestBackoffDoubles(t *testing.T) {
	w := newWorld(t)
	var waits []time.Duration
	for range 8 {
		w.settle()
		w.fail(w.next())
		failed := w.now.Truncate(time.Second)
		wake := w.settle()
		waits = append(waits, wake.Sub(failed))
		w.now = wake
	}
	h := time.Hour
	if want := []time.Duration{h, 2 * h, 4 * h, 8 * h, 16 * h, 32 * h, 32 * h, 32 * h}; !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
	w.settle()
	w.sign(w.next())
	w.settle()
	if w.crt.Status.FailedIssuanceAttempts != nil || w.crt.Status.LastFailureTime != nil {
		t.Errorf("success leaves %+v", w.crt.Status)
	}
}

// Mission rule 7: CertificateRequests come from Certificates when one is created,
// its spec changes, or renewal is due. And from nothing else.
func TestRule7_RequestsComeFromCreationChangeAndRenewal(t *testing.T) {
	w := newWorld(t)
	made := func(why string, want int) {
		t.Helper()
		w.settle()
		if w.requestsMade != want {
			t.Fatalf("%s: %d requests were made, want %d", why, w.requestsMade, want)
		}
		if next, ok := pendingRequest(w); ok {
			w.sign(next)
			w.settle()
		}
	}
	made("created", 1)
	made("nothing happened", 1)
	w.now = w.now.Add(24 * time.Hour)
	made("a day has passed", 1)
	otherNames(w)
	made("the spec has changed", 2)
	w.amend(func(s *certmanagerv1.CertificateSpec) { s.RenewBefore = &metav1.Duration{Duration: time.Hour} })
	made("the spec has changed in what no request says", 2)
	w.amend(func(s *certmanagerv1.CertificateSpec) {
		s.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"a": "b"}}
	})
	made("the spec has changed in what only the Secret says", 2)
	w.now = w.crt.Status.RenewalTime.Add(-time.Second)
	made("a second before renewal is due", 2)
	w.now = w.crt.Status.RenewalTime.Time
	made("renewal is due", 3)
	made("nothing happened since", 3)
	if len(w.requests) != 1 || *w.crt.Status.Revision != 3 {
		t.Errorf("%d requests are kept at revision %d, want 1 at 3", len(w.requests), *w.crt.Status.Revision)
	}
}
