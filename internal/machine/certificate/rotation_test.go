package certificate

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/golden"
)

// on returns a time some days after the certificates of a fleet were issued.
func on(days float64) time.Time { return start().Add(time.Duration(days * float64(day))) }

// rotation is what a CA issuer's Secret, status and annotations say, from a time on. The old CA is Digest{1}.
type rotation struct {
	name string
	// now is when the controller begins to look.
	now time.Time
	// issuer is what is known of the issuer then.
	issuer IssuerFacts
	// oldEnd is when the CA certificate expires that the certificates were delivered with; zero if they came without.
	oldEnd time.Time
	spec   func(*certmanagerv1.CertificateSpec)
}

// authority is a CA with that name and key, which ends on day 3000.
func authority(n byte, notBefore, firstSeen time.Time) IssuerFacts {
	return IssuerFacts{Version: "a/1", Authority: &AuthorityFacts{
		ID: facts.Digest{100 + n}, Name: facts.Digest{1}, Key: facts.Digest{n}, NotBefore: notBefore, End: on(3000), FirstSeen: firstSeen,
	}}
}

func rotations() []rotation {
	fresh := authority(2, on(10), on(10))
	with := func(a IssuerFacts, change func(*IssuerFacts)) IssuerFacts {
		known := *a.Authority
		a.Authority = &known
		change(&a)
		return a
	}
	now := func(i *IssuerFacts) { i.ReissueNow = true }
	sundays := openAt(opens("0 2 * * 0", 2*time.Hour, ""))
	return []rotation{
		{"the same CA", on(10), authority(1, on(-100), on(-100)), on(3000), nil},
		{"take-over, and the CA was replaced a year ago", on(10), authority(2, on(-365), on(10)), on(300), nil},
		{"the same, after a restart on day 30", on(30), authority(2, on(-365), on(10)), on(300), nil},
		{"a new key", on(10), fresh, on(300), nil},
		{"a new key, and certificates without their CA's", on(10), fresh, time.Time{}, nil},
		{"a new key, not in the issuer's status yet", on(10), with(fresh, func(i *IssuerFacts) { i.Authority.FirstSeen = time.Time{} }), on(300), nil},
		{"a new name", on(10), with(fresh, func(i *IssuerFacts) { i.Authority.Name, i.Authority.Key = facts.Digest{2}, facts.Digest{1} }), on(300), nil},
		{"a new key, on the day before renewal", on(50), authority(2, on(50), on(50)), on(300), nil},
		{"a new key, and the old CA expires on day 20", on(10), fresh, on(20), nil},
		{"a new key, and the old CA expires in ten hours", on(10), fresh, on(10).Add(10 * time.Hour), nil},
		{"a new key, and the old CA has expired", on(10), fresh, on(9), nil},
		{"a new key, and reissue-now", on(10), with(fresh, now), on(300), nil},
		{"a new key, and reissue-now on day 30", on(30), with(fresh, now), on(300), nil},
		{"a new key, from a clock that is a day ahead", on(10), authority(2, on(11), on(10)), on(300), nil},
		{"a new key, and reissue-now, from a clock that is a day ahead", on(10), with(authority(2, on(11), on(10)), now), on(300), nil},
		{"a new key, first seen by a clock that was 90 days ahead", on(10), authority(2, on(10), on(100)), on(300), nil},
		{"a new key, first seen by a clock that was an hour ahead", on(10), authority(2, on(10), on(10).Add(time.Hour)), on(300), nil},
		{"a new key, and windows on Sundays", on(10), fresh, on(300), sundays},
		{"a new key, and nothing is ever renewed", on(10), fresh, on(300), func(s *certmanagerv1.CertificateSpec) {
			s.Renewal = &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyDisabled}
		}},
		{"the same key, and the old CA certificate outlives", on(10), authority(1, on(10), on(-100)), on(300), nil},
		{"the same key, and the old CA certificate expires on day 40", on(10), authority(1, on(10), on(-100)), on(40), nil},
		{"the same key, and no other CA certificate than the one that expires on day 40", on(10),
			with(authority(1, on(-100), on(-100)), func(i *IssuerFacts) { i.Authority.End = on(40) }), on(40), nil},
		{"the same key, and reissue-now", on(10), with(authority(1, on(10), on(-100)), now), on(300), nil},
		{"the same key, reissue-now, and the same CA certificate", on(10), with(authority(1, on(10), on(-100)), now), on(3000), nil},
	}
}

// run steps the clock of one Certificate from wake to wake until it is issued again. It returns when that is, and why.
// Until then nothing may be written.
func (r *rotation) run(t *testing.T, w *world, secret *facts.Secret, uid string) (time.Time, string) {
	t.Helper()
	s := w.state()
	s.Certificate, s.Secret, s.Issuer = w.crt.DeepCopy(), secret, &r.issuer
	s.Certificate.UID, s.Certificate.Status.RenewalTime = types.UID(uid), nil
	if r.spec != nil {
		r.spec(&s.Certificate.Spec)
	}
	if a := Decide(s, start()); a.Status != nil { // the renewal time, which differs by UID
		s.Certificate.Status = *a.Status
	}
	now := r.now
	for range 10 {
		a := Decide(s, now)
		if a.Unsaid != nil {
			return now, a.Unsaid.Message
		}
		ended := !s.Secret.AuthoritiesEnd.IsZero() && !now.Before(s.Secret.AuthoritiesEnd) // which is said, and nothing else
		if !a.Rests() || (a.Status != nil || len(a.Events) > 0) != ended || ended && a.Status.Cause.Class != string(cause.CAExpired) {
			t.Fatalf("%s: on day %.2f: %+v", r.name, now.Sub(start()).Hours()/24, a)
		}
		if !a.Wake.After(now) {
			t.Fatalf("%s: at %s it sleeps until %s", r.name, now, a.Wake)
		}
		if a.Wake.After(s.Secret.Leaf.NotAfter) {
			return a.Wake, "never"
		}
		now = a.Wake
	}
	t.Fatalf("%s: not issued again after ten looks", r.name)
	return now, ""
}

// describe says when how many of 500 Certificates are issued again.
func (r *rotation) describe(t *testing.T, w *world) string {
	t.Helper()
	const fleet = 500
	secret := facts.OfSecret(w.secret)
	secret.Leaf.IssuerName, secret.Leaf.IssuerKey, secret.AuthoritiesEnd = facts.Digest{1}, facts.Digest{1}, r.oldEnd
	if r.oldEnd.IsZero() {
		secret.Leaf.IssuerKey, secret.Leaf.AuthorityKeyID, r.issuer.Authority.KeyID = facts.Digest{}, "old", "new"
	}
	var times []time.Time
	reasons := map[string]int{}
	for i := range fleet {
		at, why := r.run(t, w, secret, fmt.Sprint("uid-", i))
		for _, word := range []string{"CA of its issuer", "CA certificate that came with it", "scheduled", "never"} {
			if strings.Contains(why, word) {
				reasons[word]++
			}
		}
		times = append(times, at)
	}
	slices.SortFunc(times, time.Time.Compare)
	most := 0
	for i, j := 0, 0; j < fleet; j++ {
		for times[j].Sub(times[i]) >= time.Hour {
			i++
		}
		most = max(most, j-i+1)
	}
	days := func(i int) float64 { return times[i].Sub(start()).Hours() / 24 }
	return fmt.Sprintf("first %.2f, half %.2f, last %.2f, at most %d in an hour %v", days(0), days(fleet/2), days(fleet-1), most, reasons)
}

// TestRotationTable says when certificates are issued again whose CA was replaced or renewed, in days since they were
// issued. They last for 90 days, and are renewed from day 60 on.
func TestRotationTable(t *testing.T) {
	w, out := issued(t), ""
	w.secret.Data["ca.crt"] = nil
	for _, r := range rotations() {
		out += fmt.Sprintf("%s\n    %s\n", r.name, r.describe(t, w))
	}
	golden.Check(t, "rotation.txt", out)
}

// TestRotationSurvivesRestarts: a Certificate is issued again at the same time by a process that was started later, or
// at once if its time has come.
func TestRotationSurvivesRestarts(t *testing.T) {
	w := issued(t)
	secret := facts.OfSecret(w.secret)
	secret.Leaf.IssuerName, secret.Leaf.IssuerKey, secret.AuthoritiesEnd = facts.Digest{1}, facts.Digest{1}, on(300)
	all := rotations()
	for i := range 50 {
		uid := fmt.Sprint("uid-", i)
		before, _ := all[1].run(t, w, secret, uid)
		after, _ := all[2].run(t, w, secret, uid)
		if want := slices.MaxFunc([]time.Time{before, all[2].now}, time.Time.Compare); !after.Equal(want) {
			t.Errorf("%s: issued again on %s, after a restart on %s", uid, before, after)
		}
	}
}

// TestIssuedAgainOnce: what comes from the new CA, or with the new CA certificate, is not issued once more, even if
// reissue-now stays.
func TestIssuedAgainOnce(t *testing.T) {
	w := newWorld(t)
	ca := func(end time.Time) []byte {
		r := w.next()
		w.sign(r)
		r.Status.CA = leafFor(t, csrOf(t, r), csrOf(t, r).PublicKey, start(), end)
		return r.Status.CA
	}
	w.settle()
	ca(on(100))
	w.settle()
	leaf := facts.OfSecret(w.secret).Leaf
	w.issuer = &IssuerFacts{Version: "a/1", ReissueNow: true, Authority: &AuthorityFacts{
		Name: leaf.IssuerName, Key: leaf.IssuerKey, NotBefore: w.now, End: on(100).Truncate(time.Second), FirstSeen: w.now,
	}}
	w.now = w.now.Add(time.Hour)
	if w.settle(); w.requestsMade != 1 {
		t.Fatalf("%d requests by the CA that it has", w.requestsMade)
	}
	w.issuer.Authority.End = on(200).Truncate(time.Second)
	if w.settle(); w.requestsMade != 2 {
		t.Fatalf("%d requests for the renewed CA certificate, want one more", w.requestsMade)
	}
	renewed, err := pki.DecodeCertificate(ca(on(200)))
	if err != nil {
		t.Fatal(err)
	}
	w.issuer.Authority.Key = sha256.Sum256(renewed.RawSubjectPublicKeyInfo)
	w.settle()
	w.now = w.now.Add(time.Hour)
	if w.settle(); w.requestsMade != 2 {
		t.Fatalf("%d requests, though it has the renewed CA certificate", w.requestsMade)
	}
	w.issuer.Authority.Key, w.issuer.ReissueNow = facts.Digest{7}, false
	w.issuer.Authority.FirstSeen = time.Time{}
	if wake := w.settle(); w.requestsMade != 2 || wake.Before(on(50)) {
		t.Fatalf("%d requests, woken at %s, before the issuer's status knows the CA", w.requestsMade, wake)
	}
	w.issuer.Authority.FirstSeen = w.now
	if w.now = w.settle(); w.requestsMade != 2 || !w.now.Before(w.crt.Status.RenewalTime.Time) {
		t.Fatalf("%d requests, woken at %s", w.requestsMade, w.now)
	}
	w.settle()
	c := w.condition(certmanagerv1.CertificateConditionIssuing)
	if w.requestsMade != 3 || !strings.Contains(c.Message, "CA of its issuer has changed") {
		t.Errorf("%d requests, Issuing is %+v", w.requestsMade, c)
	}
	if w.condition(certmanagerv1.CertificateConditionReady).Status != cmmeta.ConditionTrue {
		t.Error("not Ready, though the certificate is valid")
	}
}

// TestAuthorityIsToldByItsKey: a CA keeps its name when its key is replaced, and its key when its identifier changes.
func TestAuthorityIsToldByItsKey(t *testing.T) {
	bare := facts.Leaf{ID: facts.Digest{9}, IssuerName: facts.Digest{1}, AuthorityKeyID: "k"}
	whole := bare
	whole.IssuerKey = facts.Digest{5}
	for _, c := range []struct {
		a                 AuthorityFacts
		ofBare, ofWithKey bool
	}{
		{AuthorityFacts{Name: facts.Digest{1}, KeyID: "k", Key: facts.Digest{5}}, true, true},
		{AuthorityFacts{Name: facts.Digest{1}, KeyID: "k", Key: facts.Digest{6}}, true, false},
		{AuthorityFacts{Name: facts.Digest{1}, KeyID: "l", Key: facts.Digest{5}}, false, true},
		{AuthorityFacts{Name: facts.Digest{1}, Key: facts.Digest{6}}, true, false},
		{AuthorityFacts{Name: facts.Digest{2}, KeyID: "k", Key: facts.Digest{5}}, false, false},
		{AuthorityFacts{ID: facts.Digest{9}, Name: facts.Digest{2}}, true, true},
	} {
		if bares, wholes := c.a.signed(&bare), c.a.signed(&whole); bares != c.ofBare || wholes != c.ofWithKey {
			t.Errorf("%+v: signed %t, with the CA's key at hand %t", c.a, bares, wholes)
		}
	}
}

// TestOtherRootsAreNoRootsOfTheLeaf: ca.crt may hold roots of earlier CAs after the leaf's own. Neither their end nor
// their key, under the same name, is taken for that of the leaf's CA.
func TestOtherRootsAreNoRootsOfTheLeaf(t *testing.T) {
	w := after(newWorld, settled)(t)
	w.signWithCA(w.next())
	root := w.next().Status.CA
	w.settle()
	own := facts.OfSecret(w.secret)
	csr := csrOf(t, w.requests[0])
	w.secret.Data[cmmeta.TLSCAKey] = slices.Concat(root, leafFor(t, csr, csr.PublicKey, start(), start().Add(day)))
	w.secret.ResourceVersion = "other"
	if got := facts.OfSecret(w.secret); !got.AuthoritiesEnd.Equal(own.AuthoritiesEnd) || got.Leaf.IssuerKey != own.Leaf.IssuerKey || own.AuthoritiesEnd.IsZero() {
		t.Errorf("with another root until %s: %s, %+v", start().Add(day), got.AuthoritiesEnd, got.Leaf)
	}
}

// TestALinkThatEndsIsLeftOutOnce: a leaf that came with a link is issued again in the last tenth of its lifetime before
// the link ends. The issuer leaves the link out then, and the leaf is not issued once more.
func TestALinkThatEndsIsLeftOutOnce(t *testing.T) {
	w := newWorld(t)
	linkEnd := on(30).Truncate(time.Second)
	early := linkEnd.Add(-pki.EarlyBy(lifetime, linkEnd.Sub(start())))
	var root []byte
	issue := func() {
		r := w.next()
		w.sign(r)
		csr := csrOf(t, r)
		if root == nil {
			root = leafFor(t, csr, csr.PublicKey, start(), on(300))
		}
		if r.Status.CA = root; w.now.Before(early) {
			r.Status.Certificate = append(r.Status.Certificate, leafFor(t, csr, csr.PublicKey, start(), linkEnd)...)
		}
		w.settle()
	}
	w.settle()
	issue()
	leaf := facts.OfSecret(w.secret).Leaf
	w.issuer = &IssuerFacts{Version: "a/1", Authority: &AuthorityFacts{Name: leaf.IssuerName, Key: leaf.IssuerKey, End: on(300), FirstSeen: start()}}
	for w.now.Before(on(40)) {
		before := w.requestsMade
		if w.now = w.settle(); w.requestsMade == before {
			continue
		}
		if w.now.Before(early) || !w.now.Before(linkEnd) {
			t.Fatalf("issued again at %s, and the link ends at %s", w.now, linkEnd)
		}
		issue()
	}
	if w.requestsMade != 2 {
		t.Errorf("issued %d times until day 40, want twice", w.requestsMade)
	}
}

// TestRootsOfAStolenKeyGo: what came with older roots is issued again at once, and once, while reissue-now says that
// their keys are stolen; a root drops those in its own Secret by a repair.
func TestRootsOfAStolenKeyGo(t *testing.T) {
	w := newWorld(t)
	csr := func() *x509.CertificateRequest { return csrOf(t, w.next()) }
	w.settle()
	root, older := leafFor(t, csr(), csr().PublicKey, start(), on(300)), leafFor(t, csr(), csr().PublicKey, start(), on(200))
	w.sign(w.next())
	w.next().Status.CA = slices.Concat(root, older)
	w.settle()
	leaf := facts.OfSecret(w.secret).Leaf
	w.issuer = &IssuerFacts{Version: "a/1", Authority: &AuthorityFacts{Name: leaf.IssuerName, Key: leaf.IssuerKey, NotBefore: start(), End: on(300).Truncate(time.Second), FirstSeen: start()}}
	w.now = w.now.Add(time.Hour)
	if w.settle(); w.requestsMade != 1 {
		t.Fatalf("%d requests, and nothing is stolen", w.requestsMade)
	}
	w.issuer.ReissueNow = true
	if w.settle(); w.requestsMade != 2 || !strings.Contains(w.condition(certmanagerv1.CertificateConditionIssuing).Message, "may be stolen") {
		t.Fatalf("%d requests, want one more: %+v", w.requestsMade, w.crt.Status.Conditions)
	}
	w.sign(w.next())
	w.next().Status.CA = root
	w.settle()
	w.now = w.now.Add(time.Hour)
	if w.settle(); w.requestsMade != 2 {
		t.Errorf("%d requests, though it has no older roots any more", w.requestsMade)
	}
	// A root: its certificate is the first in its own ca.crt.
	w.issuer, w.secret.ResourceVersion = nil, "a root"
	w.secret.Data[cmmeta.TLSCAKey] = slices.Concat(w.secret.Data[cmmeta.TLSCertKey], older)
	w.olderRoots = facts.KeepOlderRoots
	if w.settle(); w.repairs != 0 {
		t.Fatal("a repair, and nothing is stolen")
	}
	w.olderRoots = facts.DropOlderRoots
	w.settle()
	if got := w.secret.Data[cmmeta.TLSCAKey]; w.repairs != 1 || w.requestsMade != 2 || string(got) != string(w.secret.Data[cmmeta.TLSCertKey]) {
		t.Errorf("%d repairs, %d requests, ca.crt\n%s", w.repairs, w.requestsMade, got)
	}
}
