package certificate

import (
	"container/heap"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	mathrand "math/rand"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/slow"
)

// simIssuer is how an issuer of the simulation behaves.
type simIssuer struct {
	name string
	// slow is how long it takes at most, and early how long a certificate has begun
	// when it is issued.
	slow, early time.Duration
	// fails is how many of a hundred requests fail, and as what.
	fails int
	class fault.Class
	// down is from when to when all requests fail.
	downFrom, downTo time.Duration
	// informs says when to renew, a day or so before the default.
	informs bool
}

func simIssuers() []simIssuer {
	return []simIssuer{
		{name: "ca"},
		{name: "acme", slow: 2 * time.Minute, early: time.Hour, fails: 15, class: fault.ClassValidation, informs: true},
		{name: "acme-without-information", slow: time.Minute, early: time.Hour, fails: 5, class: fault.ClassRateLimited},
		{name: "vault", slow: 3 * time.Second, fails: 2, class: fault.ClassUnavailable, downFrom: 100 * day, downTo: 101 * day},
		{name: "external", slow: 5 * time.Hour, fails: 10},
	}
}

// simulation is a year of many Certificates that were all made at once.
type simulation struct {
	t      *testing.T
	chance *mathrand.Rand
	now    time.Time
	pairs  [2]crypto.Signer // a new key is the other one
	ca     crypto.Signer
	queue  wakeUps
	all    []*simCertificate

	decisions int
	renewals  map[int64]int // by hour
}

// simCertificate is one Certificate, and what exists because of it.
type simCertificate struct {
	crt      *certmanagerv1.Certificate
	issuer   simIssuer
	lifetime time.Duration

	secret   *facts.Secret
	keys     []facts.Key
	requests []facts.Request
	answer   *RenewalAnswer
	verdict  time.Time // when the issuer says something about the last request
	due      time.Time // when to look at it again without that

	attempts, issued, failed, waited, asked    int
	statuses, keysMade, requestsMade, keyDrops int
	requestDrops, repairs                      int
	windowKept                                 bool
}

type wakeUp struct {
	at time.Time
	of *simCertificate
}

type wakeUps []wakeUp

func (w wakeUps) Len() int           { return len(w) }
func (w wakeUps) Less(i, j int) bool { return w[i].at.Before(w[j].at) }
func (w wakeUps) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *wakeUps) Push(x any)        { *w = append(*w, x.(wakeUp)) }
func (w *wakeUps) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	*w = (*w)[:last]
	return x
}

func (s *simulation) wake(c *simCertificate, at time.Time) {
	if !at.IsZero() {
		heap.Push(&s.queue, wakeUp{at, c})
	}
}

// stale reports whether a time to look at a Certificate is not that any more.
func (w wakeUp) stale() bool { return !w.at.Equal(w.of.due) && !w.at.Equal(w.of.verdict) }

// TestAYearOfAThousandCertificates lives a year with issuers that are slow, fail and
// are out of order for a day, lifetimes from six days on, and windows. No certificate
// expires, none is renewed before it should be, and nothing is written that need not be. The thousand are the slow part
// simulation.
func TestAYearOfAThousandCertificates(t *testing.T) {
	many := 300
	if slow.Runs(slow.Faults) {
		many = 1_000
	}
	s := newSimulation(t, many)
	end := start().Add(365 * day)
	for len(s.queue) > 0 && s.queue[0].at.Before(end) {
		next, ok := heap.Pop(&s.queue).(wakeUp)
		if !ok {
			t.Fatal("the queue holds something else")
		}
		if next.stale() {
			continue
		}
		if next.at.After(s.now) {
			s.now = next.at
		}
		next.of.due = time.Time{}
		s.pass(next.of)
	}
	attempts := 0
	for _, c := range s.all {
		s.account(c)
		attempts += c.attempts
	}
	if s.decisions > 20*attempts {
		t.Errorf("%d decisions for %d issuances", s.decisions, attempts)
	}
	for hour, n := range s.renewals {
		if n > len(s.all)/10 {
			t.Errorf("%d of %d certificates are renewed in hour %d", n, len(s.all), hour)
		}
	}
	t.Logf("%d issuances, %d decisions", attempts, s.decisions)
}

func newSimulation(t *testing.T, n int) *simulation {
	t.Helper()
	s := &simulation{
		t: t, chance: mathrand.New(mathrand.NewSource(1)), now: start().Truncate(time.Second),
		pairs:    [2]crypto.Signer{newKey(t, pki.KeySpec{Algorithm: pki.ECDSA}), newKey(t, pki.KeySpec{Algorithm: pki.ECDSA})},
		ca:       newKey(t, pki.KeySpec{Algorithm: pki.Ed25519}), // the fastest to sign with
		renewals: map[int64]int{},
	}
	lifetimes := []time.Duration{6 * day, 45 * day, 90 * day, 397 * day, 45 * day, 90 * day, 90 * day, 397 * day, 45 * day, 90 * day}
	for i := range n {
		issuers := simIssuers()
		c := &simCertificate{issuer: issuers[i%len(issuers)], lifetime: lifetimes[i/len(issuers)%len(lifetimes)]}
		if c.issuer.name == "external" && c.lifetime < 45*day {
			c.lifetime = 45 * day // whose failures are of no known class cannot keep up with six days
		}
		name := "c" + strconv.Itoa(i)
		c.crt = &certmanagerv1.Certificate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(s.now)},
			Spec: certmanagerv1.CertificateSpec{
				SecretName: name, DNSNames: []string{name + ".example.com"}, IssuerRef: cmmeta.IssuerReference{Name: c.issuer.name},
				PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
			},
		}
		switch spec := &c.crt.Spec; i / 20 % 5 {
		case 1:
			spec.RenewBefore = &metav1.Duration{Duration: c.lifetime / 4}
		case 2:
			percent := int32(40)
			spec.RenewBeforePercentage = &percent
		case 3: // a window a night, in some zone
			spec.Renewal = &certmanagerv1.CertificateRenewal{
				Policy: certmanagerv1.RenewalPolicyRenewBefore, Windows: []certmanagerv1.CertificateRenewalWindow{opens("0 1 * * *", 4*time.Hour, "Pacific/Auckland")},
			}
			c.windowKept = true
		}
		s.all, c.due = append(s.all, c), s.now
		s.wake(c, s.now)
	}
	return s
}

// pass takes a Certificate as far as it gets.
func (s *simulation) pass(c *simCertificate) {
	s.t.Helper()
	s.judge(c)
	for range 12 {
		s.decisions++
		a := Decide(s.state(c), s.now)
		s.act(c, a)
		if !a.Rests() || a.Status != nil {
			continue
		}
		if a.Step == StepAskRenewalInfo {
			s.inform(c)
			continue
		}
		if c.due = a.Wake; !c.due.Equal(s.now) {
			s.wake(c, c.due)
		}
		return
	}
	s.t.Fatalf("%s does not come to rest: %+v", c.crt.Name, c.crt.Status)
}

func (s *simulation) state(c *simCertificate) State {
	state := State{
		Certificate: c.crt, Secret: c.secret, Keys: c.keys, Requests: c.requests, SecretOwner: c.crt.Name,
		Backoff: Backoff{Min: time.Hour, Max: 32 * time.Hour, ByClass: true},
		Issuer:  &IssuerFacts{Version: c.issuer.name, Informs: c.issuer.informs}, Answer: c.answer,
	}
	return state
}

// judge makes the issuer say something about a request that it has had for long enough.
func (s *simulation) judge(c *simCertificate) {
	if c.verdict.IsZero() || s.now.Before(c.verdict) || len(c.requests) == 0 {
		return
	}
	c.verdict = time.Time{}
	r := c.requests[len(c.requests)-1].CertificateRequest
	set := func(t certmanagerv1.CertificateRequestConditionType, status cmmeta.ConditionStatus, reason string) {
		certmanagerv1.SetCertificateRequestCondition(r, certmanagerv1.CertificateRequestCondition{Type: t, Status: status, Reason: reason}, s.now)
	}
	since := s.now.Sub(start())
	down := since > c.issuer.downFrom && since < c.issuer.downTo
	if down || s.chance.Intn(100) < c.issuer.fails {
		r.Status.FailureTime = &metav1.Time{Time: s.now}
		set(certmanagerv1.CertificateRequestConditionReady, cmmeta.ConditionFalse, certmanagerv1.CertificateRequestReasonFailed)
		if class := c.issuer.class; class != "" {
			set(certmanagerv1.CertificateRequestConditionFailureClass, cmmeta.ConditionTrue, string(class))
		}
		c.failed++
		return
	}
	from := s.now.Add(-c.issuer.early)
	template := &x509.Certificate{SerialNumber: big.NewInt(int64(s.decisions)), DNSNames: c.crt.Spec.DNSNames, NotBefore: from, NotAfter: from.Add(c.lifetime)}
	der, err := x509.CreateCertificate(rand.Reader, template, &x509.Certificate{SerialNumber: big.NewInt(1)}, s.public(c), s.ca)
	if err != nil {
		s.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Status.Certificate = pki.EncodeCertificates(leaf)
	set(certmanagerv1.CertificateRequestConditionReady, cmmeta.ConditionTrue, certmanagerv1.CertificateRequestReasonIssued)
}

// act carries out what was decided, and counts it.
func (s *simulation) act(c *simCertificate, a Action) {
	s.t.Helper()
	switch a.Step {
	case StepRest, StepAskRenewalInfo:
	case StepDeleteKeys:
		c.keys = nil
		c.keyDrops++
	case StepCreateKey:
		s.begins(c)
		c.keysMade++
		c.keys = append(c.keys, facts.Key{Name: a.Name, Public: pki.FactsOfKey(s.public(c))})
	case StepDeleteRequests, StepDropSurplus:
		c.requestDrops++
		c.requests = without(c.requests, a.Names)
	case StepCreateRequest:
		s.request(c, a)
	case StepStore:
		s.stores(c, a)
	default:
		s.t.Fatalf("%s: %s", c.crt.Name, a.Step)
	}
	if a.Status != nil {
		c.statuses++
		c.crt = c.crt.DeepCopy()
		c.crt.Status = *a.Status.DeepCopy()
		truncate(&c.crt.Status)
	}
}

// truncate stores times as the API server does.
func truncate(status *certmanagerv1.CertificateStatus) {
	if status.LastFailureTime != nil {
		status.LastFailureTime.Time = status.LastFailureTime.Truncate(time.Second)
	}
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime.Time = status.Conditions[i].LastTransitionTime.Truncate(time.Second)
	}
}

func without(requests []facts.Request, names []string) []facts.Request {
	var out []facts.Request
	for _, r := range requests {
		if len(names) == 0 || r.Name != names[0] && (len(names) < 2 || r.Name != names[1]) {
			out = append(out, r)
		}
	}
	return out
}

// begins holds an issuance that begins against what is stored.
func (s *simulation) begins(c *simCertificate) {
	s.t.Helper()
	c.attempts++
	if c.secret == nil {
		return
	}
	leaf, spec := c.secret.Leaf, &c.crt.Spec
	lifetime := leaf.NotAfter.Sub(leaf.NotBefore)
	reserve := lifetime / 3
	switch {
	case spec.RenewBefore != nil:
		reserve = spec.RenewBefore.Duration
	case spec.RenewBeforePercentage != nil:
		reserve = lifetime / 100 * time.Duration(*spec.RenewBeforePercentage)
	case lifetime < 10*day:
		reserve = lifetime / 2
	}
	due := leaf.NotAfter.Add(-reserve).Truncate(time.Second)
	if acme := c.crt.Status.ACME; acme != nil && acme.ARI.SuggestedWindow != nil {
		suggested := acme.ARI.SuggestedWindow.Start.Time
		if explicit := spec.RenewBefore != nil || spec.RenewBeforePercentage != nil; !explicit || suggested.Before(due) {
			due = suggested
		}
	}
	if s.now.Before(due) {
		s.t.Errorf("%s is renewed at %s, %s before it is due", c.crt.Name, s.now, due.Sub(s.now))
	}
	if c.windowKept && c.crt.Status.LastFailureTime == nil {
		if hour := s.now.In(auckland(s.t)).Hour(); hour < 1 || hour >= 5 {
			s.t.Errorf("%s is renewed outside of its window, at %s", c.crt.Name, s.now)
		}
	}
	if spec.RenewBefore == nil && spec.RenewBeforePercentage == nil && !c.windowKept {
		s.renewals[s.now.Unix()/3600]++
	}
}

func auckland(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Pacific/Auckland")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// public is the public key of the newest private key of a Certificate.
func (s *simulation) public(c *simCertificate) crypto.PublicKey {
	return s.pairs[c.keysMade%2].Public()
}

func (s *simulation) request(c *simCertificate, a Action) {
	c.requestsMade++
	r := &certmanagerv1.CertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Name: a.Name, UID: types.UID(fmt.Sprint(a.Name, "/", c.requestsMade)), CreationTimestamp: metav1.NewTime(s.now), Annotations: map[string]string{
			certmanagerv1.CertificateRevisionAnnotation: strconv.Itoa(a.Revision), BudgetAnnotation: a.Budget.Format(time.RFC3339),
			IssuerVersionAnnotation: a.IssuerVersion,
		}},
		Spec: certmanagerv1.CertificateRequestSpec{IssuerRef: c.crt.Spec.IssuerRef},
	}
	certmanagerv1.SetCertificateRequestCondition(r, certmanagerv1.CertificateRequestCondition{
		Type: certmanagerv1.CertificateRequestConditionReady, Status: cmmeta.ConditionFalse, Reason: certmanagerv1.CertificateRequestReasonPending, Message: "in the works",
	}, s.now)
	c.requests = append(c.requests, facts.Request{CertificateRequest: r, Public: pki.FactsOfKey(s.public(c)), RawSubject: []byte{0x30, 0}, Names: pki.AltNames{DNSNames: c.crt.Spec.DNSNames}})
	takes := time.Duration(0)
	if c.issuer.slow > 0 {
		takes = time.Duration(s.chance.Int63n(int64(c.issuer.slow))).Truncate(time.Second)
	}
	if takes > patience {
		c.waited++
	}
	c.verdict = s.now.Add(takes)
	s.wake(c, c.verdict)
}

func (s *simulation) stores(c *simCertificate, a Action) {
	s.t.Helper()
	leaf, err := facts.DecodeLeaf(a.Request.Status.Certificate)
	if err != nil {
		s.t.Fatal(err)
	}
	if c.secret != nil && s.now.After(c.secret.Leaf.NotAfter) {
		s.t.Errorf("%s by %s, of %s, expired at %s, before it was renewed at %s", c.crt.Name, c.issuer.name, c.lifetime, c.secret.Leaf.NotAfter, s.now)
	}
	c.issued++
	c.keys, c.answer = nil, nil
	c.secret = &facts.Secret{
		HasKey: true, HasCertificate: true, Key: pki.FactsOfKey(leaf.PublicKey), Leaf: facts.OfLeaf(leaf), CertificateName: c.crt.Name, Named: true,
		Issuer: c.crt.Spec.IssuerRef, IssuerSaid: true,
	}
}

// inform makes the issuer say when to renew: a little before the last third.
func (s *simulation) inform(c *simCertificate) {
	c.asked++
	leaf := c.secret.Leaf
	middle := leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) * 2 / 5)
	c.answer = &RenewalAnswer{Certificate: leaf.ID, At: s.now, Start: middle.Add(-c.lifetime / 60), End: middle.Add(c.lifetime / 60), RetryAfter: 2 * day}
}

// account compares what was written with what was needed.
func (s *simulation) account(c *simCertificate) {
	s.t.Helper()
	open := c.attempts - c.issued - c.failed // the one that is under way, if any
	want := 2*c.attempts - open + c.asked + c.waited
	if c.statuses > want || c.statuses < want-1 {
		s.t.Errorf("%s by %s: the status was written %d times for %d issuances, %d failures, %d questions and %d waits", c.crt.Name, c.issuer.name, c.statuses, c.issued, c.failed, c.asked, c.waited)
	}
	if c.keysMade != c.attempts || c.requestsMade != c.attempts || open < 0 || open > 1 || c.issued == 0 || c.repairs > 0 {
		s.t.Errorf("%s by %s: %d keys, %d requests for %d issuances of which %d are open", c.crt.Name, c.issuer.name, c.keysMade, c.requestsMade, c.attempts, open)
	}
	if c.keyDrops > c.failed || c.requestDrops > c.attempts {
		s.t.Errorf("%s by %s: deletes keys %d times, requests %d times, for %d failures and %d issuances", c.crt.Name, c.issuer.name, c.keyDrops, c.requestDrops, c.failed, c.issued)
	}
	if s.now.After(c.secret.Leaf.NotAfter) {
		s.t.Errorf("%s by %s has expired by the end", c.crt.Name, c.issuer.name)
	}
}
