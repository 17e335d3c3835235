package certificate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/golden"
)

// situation is a world right before Decide is asked.
type situation struct {
	name  string
	world func(t *testing.T) *world
}

func after(base func(*testing.T) *world, changes ...func(*world)) func(*testing.T) *world {
	return func(t *testing.T) *world {
		t.Helper()
		w := base(t)
		for _, change := range changes {
			change(w)
		}
		return w
	}
}

func spec(change func(*certmanagerv1.CertificateSpec)) func(*world) {
	return func(w *world) { w.amend(change) }
}

func never(s *certmanagerv1.CertificateSpec) {
	s.PrivateKey.RotationPolicy = certmanagerv1.RotationPolicyNever
}

func p384(s *certmanagerv1.CertificateSpec) { s.PrivateKey.Size = 384 }

func annotate(key, value string) func(*world) {
	return func(w *world) { w.secret.Annotations[key] = value }
}

func data(key, value string) func(*world) {
	return func(w *world) {
		w.secret.Data[key] = []byte(value)
		if value == "" {
			delete(w.secret.Data, key)
		}
	}
}

func otherSecretKey(size int) func(*world) {
	return func(w *world) {
		key := keySecret(w.t, "x", newKey(w.t, pki.KeySpec{Algorithm: pki.ECDSA, Size: size}))
		w.secret.Data[cmmeta.TLSPrivateKeyKey] = key.Data[cmmeta.TLSPrivateKeyKey]
	}
}

func otherRequestKey(w *world) {
	r := w.next().DeepCopy()
	made, err := NewRequest(w.crt, Action{Name: r.Name, Revision: 1}, newKey(w.t, facts.KeySpecOf(&w.crt.Spec)), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.next().Spec.Request = made.Spec.Request
}

func noRequests(w *world) { w.requests = nil }
func garbledCSR(w *world) { w.next().Spec.Request = []byte("soup") }
func otherNames(w *world) {
	w.amend(func(s *certmanagerv1.CertificateSpec) { s.DNSNames = []string{"c.example.com"} })
}
func due(w *world)   { w.now = w.crt.Status.RenewalTime.Time }
func ended(w *world) { w.now = w.crt.Status.NotAfter.Add(2 * time.Second) }
func disabled(w *world) {
	w.amend(func(s *certmanagerv1.CertificateSpec) {
		s.Renewal = &certmanagerv1.CertificateRenewal{Policy: "Disabled"}
	})
}
func restored(w *world)      { w.secret = w.backup }
func later(w *world)         { w.now = w.now.Add(time.Minute) }
func noSecret(w *world)      { w.secret, w.backup = nil, w.secret }
func settled(w *world)       { w.settle() }
func failedRequest(w *world) { w.fail(w.next()) }
func signed(w *world)        { w.sign(w.next()) }
func triggered(w *world)     { w.trigger("ManuallyTriggered") }

// policySituations are the reasons of spec §2.1, in their order.
func policySituations() []situation {
	return []situation{
		{"just made", newWorld},
		{"in order", issued},
		{"being deleted", after(issued, noSecret, func(w *world) { w.crt.DeletionTimestamp = &metav1.Time{Time: w.now} })},
		{"the Secret is gone", after(issued, noSecret)},
		{"the Secret has no data", after(issued, func(w *world) { w.secret.Data = nil })},
		{"the Secret has no key", after(issued, data("tls.key", ""))},
		{"the Secret has no certificate", after(issued, data("tls.crt", ""))},
		{"the key is soup", after(issued, data("tls.key", "soup"))},
		{"the key is another one", after(issued, otherSecretKey(256))},
		{"the certificate is soup", after(issued, data("tls.crt", "soup"))},
		{"the Secret is of another issuer", after(issued, annotate(certmanagerv1.IssuerNameAnnotation, "old"))},
		{"the Secret is of a ClusterIssuer", after(issued, annotate(certmanagerv1.IssuerKindAnnotation, "ClusterIssuer"))},
		{"the Secret is of another group", after(issued, annotate(certmanagerv1.IssuerGroupAnnotation, "example.com"))},
		{"the Secret says the defaults of kind and group", after(issued,
			annotate(certmanagerv1.IssuerKindAnnotation, "Issuer"), annotate(certmanagerv1.IssuerGroupAnnotation, "cert-manager.io"))},
		{"the Secret does not say who issued it", after(issued, func(w *world) { w.secret.Annotations = nil })},
		{"the Secret does not say who issued it, a ClusterIssuer is wanted", after(issued, func(w *world) { w.secret.Annotations = nil },
			spec(func(s *certmanagerv1.CertificateSpec) { s.IssuerRef.Kind = "ClusterIssuer" }))},
		{"the Secret is of another Certificate", after(issued, annotate(certmanagerv1.CertificateNameAnnotation, "other"))},
		{"the key has another size", after(issued, spec(p384))},
		{"the key has another algorithm", after(issued, spec(func(s *certmanagerv1.CertificateSpec) { s.PrivateKey = nil }))},
		{"the request is soup", after(issued, garbledCSR)},
		{"the request has another key", after(issued, otherRequestKey)},
		{"other names are wanted", after(issued, otherNames)},
		{"everything else is wanted", after(issued, spec(everythingElse))},
		{"a literal subject is wanted", after(issued, spec(func(s *certmanagerv1.CertificateSpec) { s.LiteralSubject = "CN=x,O=y" }))},
		{"the request is gone, the names are others", after(issued, noRequests, otherNames)},
		{"the request is gone, other names of all kinds are wanted", after(issued, noRequests, spec(everythingElse))},
		{"the request is gone, a common name is wanted", after(issued, noRequests, spec(func(s *certmanagerv1.CertificateSpec) { s.CommonName = "c.example.com" }))},
		{"the request is gone, a DNS name became the common name", after(issued, noRequests, spec(func(s *certmanagerv1.CertificateSpec) { s.CommonName = "a.example.com" }))},
		{"the request is gone", after(issued, noRequests)},
		{"due", after(issued, due)},
		{"a second before it is due", after(issued, due, func(w *world) { w.now = w.now.Add(-time.Second) })},
		{"past its end", after(issued, ended)},
		{"due, but never renewed", after(issued, due, disabled)},
		{"past its end, but never renewed", after(issued, ended, disabled)},
		{"another Certificate has the Secret", after(issued, func(w *world) { w.owner = "older" })},
		{"another Certificate has a Secret that is gone", after(issued, noSecret, func(w *world) { w.owner = "older" })},
	}
}

func everythingElse(s *certmanagerv1.CertificateSpec) {
	s.CommonName, s.IsCA, s.Duration = "cn", true, &metav1.Duration{Duration: time.Hour}
	s.DNSNames, s.IPAddresses, s.URIs, s.EmailAddresses = []string{"c"}, []string{"192.0.2.1"}, []string{"urn:a"}, []string{"a@b"}
	s.OtherNames = []certmanagerv1.OtherName{{OID: "1.2.3", UTF8Value: "x"}}
	s.Usages = certmanagerv1.DefaultKeyUsages()
	s.Subject = &certmanagerv1.X509Subject{
		Organizations: []string{"o"}, Countries: []string{"c"}, OrganizationalUnits: []string{"ou"}, Localities: []string{"l"},
		Provinces: []string{"st"}, StreetAddresses: []string{"s"}, PostalCodes: []string{"p"}, SerialNumber: "7",
	}
}

// keySituations are spec §2.2.
func keySituations() []situation {
	named := func(name string) func(*world) {
		return func(w *world) { w.crt.Status.NextPrivateKeySecretName = &name }
	}
	add := func(name string, size int) func(*world) {
		return func(w *world) {
			w.keys = append(w.keys, keySecret(w.t, name, newKey(w.t, pki.KeySpec{Algorithm: pki.ECDSA, Size: size})))
		}
	}
	return []situation{
		{"not issuing, a key is left", after(issued, add("k", 256))},
		{"not issuing, a name is left", after(issued, named("k"))},
		{"issuing, no key", after(issued, triggered)},
		{"issuing, a name, no key", after(issued, triggered, named("k"))},
		{"issuing, a key, no name", after(issued, triggered, add("k", 256))},
		{"issuing, a key of another name", after(issued, triggered, named("k"), add("l", 256))},
		{"issuing, a key that is soup", after(issued, triggered, named("k"), add("k", 256), func(w *world) { w.keys[0].Data["tls.key"] = []byte("soup") })},
		{"issuing, a key that is empty", after(issued, triggered, named("k"), add("k", 256), func(w *world) { w.keys[0].Data = nil })},
		{"issuing, a key that does not match", after(issued, triggered, named("k"), add("k", 384))},
		{"issuing, several keys, one of them named", after(issued, triggered, named("k"), add("k", 256), add("l", 256), add("m", 256))},
		{"issuing, several keys, none of them named", after(issued, triggered, add("k", 256), add("l", 256))},
		{"never rotated, in order", after(issued, spec(never), triggered)},
		{"never rotated, no Secret", after(issued, spec(never), noSecret, triggered)},
		{"never rotated, no key", after(issued, spec(never), data("tls.key", ""), triggered)},
		{"never rotated, only the key is left", after(issued, spec(never), data("tls.crt", ""), triggered)},
		{"never rotated, the key is soup", after(issued, spec(never), data("tls.key", "soup"), triggered)},
		{"never rotated, the key does not match", after(issued, spec(never), otherSecretKey(384))},
		{"never rotated, the key does not match, which was said", after(issued, spec(never), otherSecretKey(384), settled)},
		{"never rotated, the key matches again", after(issued, spec(never), otherSecretKey(384), settled, spec(p384))},
	}
}

// lost is a Certificate that was made again after all was lost, and that is being issued: the backup has its Secret.
func lost(t *testing.T) *world {
	t.Helper()
	return after(issued, lose, settled)(t)
}

func lose(w *world) {
	noSecret(w)
	w.crt = w.crt.DeepCopy()
	w.crt.Status, w.requests = certmanagerv1.CertificateStatus{}, nil
}

// issuanceSituations are spec §2.1, 4, §2.3, §2.4, §2.7 and §2.8.
func issuanceSituations() []situation {
	rejected := func(t certmanagerv1.CertificateRequestConditionType) func(*world) {
		return func(w *world) { w.say(w.next(), t, cmmeta.ConditionTrue, "Policy", "not that name") }
	}
	revision := func(v string) func(*world) {
		return func(w *world) { w.next().Annotations[certmanagerv1.CertificateRevisionAnnotation] = v }
	}
	pending := func(w *world) {
		w.conclude(w.next(), cmmeta.ConditionFalse, certmanagerv1.CertificateRequestReasonPending, "the issuer is asleep")
	}
	twin := func(w *world) {
		r := w.next().DeepCopy()
		r.Name, r.CreationTimestamp = "twin", metav1.NewTime(w.now.Add(time.Second))
		w.requests = append(w.requests, r)
	}
	return []situation{
		{"the key is there", after(issued, triggered, func(w *world) { w.act(Decide(w.state(), w.now), 9) })},
		{"a request without revision", after(issuing, func(w *world) { delete(w.next().Annotations, certmanagerv1.CertificateRevisionAnnotation) })},
		{"a request whose revision is soup", after(issuing, revision("soup"))},
		{"a request for other names", after(issuing, otherNames)},
		{"a request for another key", after(issuing, otherRequestKey)},
		{"a request that is soup", after(issuing, garbledCSR)},
		{"two requests", after(issuing, twin)},
		{"a request that nobody has looked at", issuing},
		{"a request that nobody has approved for a minute", after(issuing, later)},
		{"a request that is approved, and waits for a minute", after(issuing, rejected(certmanagerv1.CertificateRequestConditionApproved), later)},
		{"a request that is pending", after(issuing, pending)},
		{"a request that is pending for a minute", after(issuing, pending, later)},
		{"a request that is pending for a minute, which was said", after(issuing, pending, later, settled)},
		{"a request that is denied", after(issuing, rejected(certmanagerv1.CertificateRequestConditionDenied))},
		{"a request that is denied, though issued", after(issuing, signed, rejected(certmanagerv1.CertificateRequestConditionDenied))},
		{"a request that is invalid", after(issuing, rejected(certmanagerv1.CertificateRequestConditionInvalidRequest))},
		{"a request that is denied and invalid", after(issuing, rejected(certmanagerv1.CertificateRequestConditionDenied), func(w *world) {
			w.say(w.next(), certmanagerv1.CertificateRequestConditionInvalidRequest, cmmeta.ConditionTrue, "Other", "other")
		})},
		{"a request that failed", after(issuing, failedRequest)},
		{"a request that failed a second time", after(issuing, func(w *world) { n := 1; w.crt.Status.FailedIssuanceAttempts = &n }, failedRequest)},
		{"a request that failed before", after(issued, spec(never), triggered, settled, failedRequest, settled, later, triggered)},
		{"the Secret comes back", after(lost, restored)},
		{"the Secret comes back, and the request is gone", after(lost, restored, noRequests)},
		{"the Secret comes back, and all of the issuance is gone", after(lost, restored, noRequests, func(w *world) { w.keys = nil })},
		{"the Secret comes back on the short way", after(issued, lose, inLine, settled, restored)},
		{"the Secret comes back, and a request cannot be deleted", after(lost, restored, func(w *world) {
			w.postponed = []Postponed{{Step: StepDropSurplus, Until: w.now.Add(time.Minute)}}
		})},
		{"the Secret comes back late", after(lost, restored, func(w *world) { w.now = w.now.Add(restoring) })},
		{"the Secret comes back after the first certificate", after(issued, noSecret, settled, restored)},
		{"the Secret comes back with the certificate of other names", after(lost, restored, otherNames)},
		{"the Secret comes back when it is due", after(lost, restored, func(w *world) { w.now = w.now.Add(lifetime - time.Hour) })},
		{"the Secret comes back while somebody asks for another one", after(lost, restored, triggered)},
		{"issued", after(issuing, signed)},
		{"issued after a failure", after(issuing, func(w *world) {
			n := 3
			w.crt.Status.FailedIssuanceAttempts, w.crt.Status.LastFailureTime = &n, at(w.now)
		}, signed)},
		{"issued to an unready Certificate, the first time", after(newWorld, settled, signed)},
		{"issued, no certificate", after(issuing, signed, func(w *world) { w.next().Status.Certificate = nil })},
		{"issued, soup", after(issuing, signed, func(w *world) { w.next().Status.Certificate = []byte("soup") })},
		{"issued for another key", after(issuing, func(w *world) {
			w.signFor(w.next(), newKey(w.t, pki.KeySpec{Algorithm: pki.ECDSA}).Public(), w.now, w.now.Add(lifetime))
		})},
		{"issued, expired", after(issuing, func(w *world) {
			w.signFor(w.next(), csrOf(w.t, w.next()).PublicKey, w.now.Add(-time.Hour), w.now.Add(-time.Second))
		})},
		{"failed a moment ago", after(issued, noSecret, settled, failedRequest, settled)},
		{"failed an hour ago", after(issued, noSecret, settled, failedRequest, settled, func(w *world) { w.now = w.now.Add(time.Hour) })},
		{"failed a moment ago, then the spec was changed", after(issued, noSecret, settled, failedRequest, settled, otherNames)},
		{"failed a moment ago, the request is soup", after(issued, noSecret, settled, failedRequest, settled, garbledCSR)},
		{"failed a moment ago, the request is gone", after(issued, noSecret, settled, failedRequest, settled, noRequests)},
		{"failed a moment ago, without back-off", after(issued, noSecret, settled, failedRequest, settled, func(w *world) { w.backoff.Min = 0 })},
		{"renewal asked for by hand during back-off", after(issued, noSecret, settled, failedRequest, settled, triggered)},
		{"an old request is left", after(issuing, signed, settled, twin, func(w *world) {
			w.requests[len(w.requests)-1].Annotations[certmanagerv1.CertificateRevisionAnnotation] = "1"
		})},
		{"an old request is left, two are kept", after(issuing, spec(func(s *certmanagerv1.CertificateSpec) { n := int32(2); s.RevisionHistoryLimit = &n }), signed, settled)},
	}
}

func TestDecideTable(t *testing.T) {
	for file, situations := range map[string][]situation{
		"policy.txt": policySituations(), "keys.txt": keySituations(), "issuance.txt": issuanceSituations(),
	} {
		var out strings.Builder
		for _, s := range situations {
			w := s.world(t)
			fmt.Fprintf(&out, "%s\n%s\n", s.name, describe(w, Decide(w.state(), w.now)))
		}
		golden.Check(t, file, out.String())
	}
}

// describe says what an Action does, status only as far as it changes.
func describe(w *world, a Action) string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, "    "+format+"\n", args...) }
	line("%s%s", a.Step, map[bool]string{true: " (reuse)"}[a.ReuseKey])
	if a.Name != "" || a.Names != nil {
		line("  %s%s", a.Name, strings.Join(a.Names, ", "))
	}
	if a.Key != "" {
		line("  revision %d, key %s", a.Revision, a.Key)
	}
	if a.Revoke {
		line("and have the pinned certificate revoked")
	}
	if a.Step == StepRecord {
		line("  %s", a.Record)
	}
	if a.Failure != nil {
		line("  not taken: %v", a.Failure)
	}
	if a.Held || a.Keep {
		line("  the key in memory is used %v, kept %v", a.Held, a.Keep)
	}
	if a.Status == nil && a.Unsaid != nil {
		line("  unsaid: Issuing %s %s since %s", a.Unsaid.Status, a.Unsaid.Reason, instant(w, a.Unsaid.LastTransitionTime))
	}
	if a.Status != nil {
		for _, l := range statusChanges(w, w.crt.Status, *a.Status) {
			line("%s", l)
		}
	}
	for _, e := range a.Events {
		line("event %s %s: %s", map[bool]string{true: "Warning", false: "Normal"}[e.Warning], e.Reason, e.Message)
	}
	if !a.Wake.IsZero() {
		line("wake in %s", a.Wake.Sub(w.now))
	}
	return out.String()
}

func statusChanges(w *world, was, is certmanagerv1.CertificateStatus) []string {
	var out []string
	say := func(name, before, now string) {
		if before != now {
			out = append(out, fmt.Sprintf("%s: %s", name, now))
		}
	}
	for _, kind := range []certmanagerv1.CertificateConditionType{"Ready", "Issuing", "Revoking"} {
		text := func(s certmanagerv1.CertificateStatus) string {
			c := certmanagerv1.FindCertificateCondition(s.Conditions, kind)
			if c == nil {
				return "none"
			}
			return fmt.Sprintf("%s %s, generation %d, since %s: %s", c.Status, c.Reason, c.ObservedGeneration, instant(w, c.LastTransitionTime), c.Message)
		}
		say(string(kind), text(was), text(is))
	}
	say("notBefore", instant(w, was.NotBefore), instant(w, is.NotBefore))
	say("notAfter", instant(w, was.NotAfter), instant(w, is.NotAfter))
	say("renewalTime", instant(w, was.RenewalTime), instant(w, is.RenewalTime))
	say("renewalTimeSource", string(was.RenewalTimeSource), string(is.RenewalTimeSource))
	say("renewal information", information(w, was.ACME), information(w, is.ACME))
	say("lastFailureTime", instant(w, was.LastFailureTime), instant(w, is.LastFailureTime))
	say("nextTry", instant(w, was.NextTry), instant(w, is.NextTry))
	say("failedIssuanceAttempts", value(was.FailedIssuanceAttempts), value(is.FailedIssuanceAttempts))
	say("revision", value(was.Revision), value(is.Revision))
	say("nextPrivateKeySecretName", value(was.NextPrivateKeySecretName), value(is.NextPrivateKeySecretName))
	if len(out) == 0 {
		out = []string{"status is written, but does not change"}
	}
	return out
}

func information(w *world, s *certmanagerv1.CertificateACMEStatus) string {
	if s == nil || s.ARI == nil {
		return "none"
	}
	window := "no window"
	if a := s.ARI.SuggestedWindow; a != nil {
		window = fmt.Sprintf("from %s to %s", instant(w, &a.Start), instant(w, &a.End))
	}
	return fmt.Sprintf("%s, explained %q, error %q, asked %s, next %s", window, s.ARI.ExplanationURL, s.ARI.LastError, instant(w, s.ARI.LastChecked), instant(w, s.ARI.NextCheck))
}

func instant(w *world, t *metav1.Time) string {
	switch {
	case t == nil:
		return "none"
	case t.Equal(&metav1.Time{Time: w.now.Truncate(time.Second)}), t.Time.Equal(w.now):
		return "now"
	default:
		return t.UTC().Format(time.RFC3339)
	}
}

func value[T any](p *T) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprint(*p)
}
