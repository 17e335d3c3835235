package certificate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
)

// A client may set Issuing without saying when: lastTransitionTime is optional.
func TestTriggerWithoutTransitionTime(t *testing.T) {
	w := issued(t)
	w.crt.Status.Conditions = append(w.crt.Status.Conditions, certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered",
	})
	w.settle()
	w.conclude(w.next(), cmmeta.ConditionFalse, certmanagerv1.CertificateRequestReasonPending, "in the works")
	w.settle()
	w.sign(w.next())
	w.settle()
	if w.stores != 1 || *w.crt.Status.Revision != 2 {
		t.Errorf("stored %d times, status %+v", w.stores, w.crt.Status)
	}
}

// A certificate that ends while something is waited for is not Ready any more, and
// nothing else would say so.
func TestWakesWhenTheCertificateEnds(t *testing.T) {
	for name, arrange := range map[string]func(*world){
		"a request is pending": func(w *world) {
			w.now = w.crt.Status.RenewalTime.Time
			w.settle()
			w.conclude(w.next(), cmmeta.ConditionFalse, certmanagerv1.CertificateRequestReasonPending, "in the works")
		},
		"nobody approves": func(w *world) {
			w.now = w.crt.Status.RenewalTime.Time
		},
		"a failure is waited out": func(w *world) {
			w.now = w.crt.Status.NotAfter.Add(-30 * time.Minute)
			w.settle()
			w.fail(w.next())
		},
		"the user has to allow another key": func(w *world) {
			w.amend(func(s *certmanagerv1.CertificateSpec) {
				s.PrivateKey.RotationPolicy = certmanagerv1.RotationPolicyNever
			})
			w.settle()
			key := keySecret(w.t, "x", newKey(w.t, pki.KeySpec{Algorithm: pki.ECDSA, Size: 384}))
			w.secret.Data[cmmeta.TLSPrivateKeyKey] = key.Data[cmmeta.TLSPrivateKeyKey]
			w.settle()
		},
		"renewal is disabled": func(w *world) {
			w.amend(func(s *certmanagerv1.CertificateSpec) {
				s.Renewal = &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyDisabled}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := issued(t)
			arrange(w)
			for range 100 {
				wake := w.settle()
				if ready := w.condition(certmanagerv1.CertificateConditionReady); ready.Status == cmmeta.ConditionFalse {
					return
				}
				if wake.IsZero() || wake.After(w.crt.Status.NotAfter.Add(2*time.Second)) {
					t.Fatalf("Ready at %s, the certificate ends at %s, and it is looked at again at %s", w.now, w.crt.Status.NotAfter, wake)
				}
				w.now = wake
			}
			t.Fatal("still Ready")
		})
	}
}

// Whoever loses its Secret to another Certificate must not leave a private key behind.
func TestWithoutSecretNoKeyIsLeft(t *testing.T) {
	w := issuing(t)
	w.fail(w.next())
	w.act(Decide(w.state(), w.now), 9) // the failure alone
	w.owner = "older"
	wake := w.settle()
	if len(w.keys) != 0 || w.crt.Status.NextPrivateKeySecretName != nil {
		t.Errorf("left %d keys, and nextPrivateKeySecretName %v", len(w.keys), w.crt.Status.NextPrivateKeySecretName)
	}
	if got := wake.Sub(w.now); got != 3*time.Minute {
		t.Errorf("looks again after %s, want 3m", got)
	}
	if ready := w.condition(certmanagerv1.CertificateConditionReady); ready.Reason != "IncorrectCertificate" || !strings.Contains(ready.Message, `"older"`) {
		t.Errorf("Ready says %+v", ready)
	}
}

// TestTheIssuersSecretIsKept: a Certificate that names the Secret with the CA or the account key of its own issuer
// would overwrite it. It gets nothing issued.
func TestTheIssuersSecretIsKept(t *testing.T) {
	w := newWorld(t)
	w.issuer = &IssuerFacts{Version: "1", InLine: true, Secret: w.crt.Spec.SecretName}
	w.settle()
	c := w.crt.Status.Cause
	if w.requestsMade != 0 || c == nil || c.Class != string(cause.SecretShared) || c.Subject != "Issuer "+w.crt.Spec.IssuerRef.Name {
		t.Errorf("%d requests, the cause is %+v", w.requestsMade, c)
	}
	w.crt.Spec.SecretName = "own"
	if w.settle(); w.requestsMade != 1 {
		t.Errorf("with another Secret: %d requests: %+v", w.requestsMade, w.crt.Status)
	}
}

// What has ended before an issuance began says nothing about it, or a key that is
// never rotated would keep it alive for ever.
func TestOldVerdictsDoNotCount(t *testing.T) {
	for name, verdict := range map[string]func(*world, *certmanagerv1.CertificateRequest){
		"failed": func(w *world, r *certmanagerv1.CertificateRequest) { w.fail(r) },
		"denied": func(w *world, r *certmanagerv1.CertificateRequest) {
			w.say(r, certmanagerv1.CertificateRequestConditionDenied, cmmeta.ConditionTrue, "Policy", "no")
		},
		"denied, and said so": func(w *world, r *certmanagerv1.CertificateRequest) {
			w.say(r, certmanagerv1.CertificateRequestConditionDenied, cmmeta.ConditionTrue, "Policy", "no")
			w.conclude(r, cmmeta.ConditionFalse, certmanagerv1.CertificateRequestReasonDenied, "denied")
		},
		"invalid": func(w *world, r *certmanagerv1.CertificateRequest) {
			w.say(r, certmanagerv1.CertificateRequestConditionInvalidRequest, cmmeta.ConditionTrue, "Policy", "no")
		},
		"issued, but expired": func(w *world, r *certmanagerv1.CertificateRequest) {
			w.signFor(r, csrOf(w.t, r).PublicKey, w.now.Add(-2*time.Hour), w.now.Add(-time.Hour))
		},
		"issued, but no certificate": func(w *world, r *certmanagerv1.CertificateRequest) {
			w.sign(r)
			r.Status.Certificate = []byte("soup")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := issued(t)
			w.amend(func(s *certmanagerv1.CertificateSpec) {
				s.PrivateKey.RotationPolicy = certmanagerv1.RotationPolicyNever
			})
			w.trigger("ManuallyTriggered")
			w.settle()
			old := w.next()
			verdict(w, old)
			w.settle()
			if c := w.condition(certmanagerv1.CertificateConditionIssuing); c.Status != cmmeta.ConditionFalse {
				t.Fatalf("Issuing is %+v after the verdict", c)
			}
			w.now = w.now.Add(time.Minute)
			w.trigger("ManuallyTriggered")
			w.settle()
			if w.next() == old || slices.Contains(w.requests, old) {
				t.Fatalf("the old request is kept: Issuing is %+v", w.condition(certmanagerv1.CertificateConditionIssuing))
			}
			w.sign(w.next())
			w.settle()
			if *w.crt.Status.Revision != 2 || w.stores != 1 {
				t.Errorf("revision %d, stored %d times", *w.crt.Status.Revision, w.stores)
			}
		})
	}
}

// A request that does not fulfil the spec it was made for would be deleted and made
// again without end. Either it does, or it is refused with a reason.
func TestNewRequestFulfilsItsSpec(t *testing.T) {
	refused := map[string]bool{"a URI without a domain": true, "nobody": true}
	for name, change := range map[string]func(*certmanagerv1.CertificateSpec){
		"as it is": func(*certmanagerv1.CertificateSpec) {},
		"URIs in unusual spelling": func(s *certmanagerv1.CertificateSpec) {
			s.URIs = []string{"HTTPS://Example.com/a b", "spiffe://td/ns/x#", "urn:uuid:f81d4fae"}
		},
		"a URI without a domain": func(s *certmanagerv1.CertificateSpec) { s.URIs = []string{"https://foo..bar/"} },
		"nobody":                 func(s *certmanagerv1.CertificateSpec) { s.DNSNames, s.LiteralSubject = nil, "  " },
		"nobody, by a name":      func(s *certmanagerv1.CertificateSpec) { s.LiteralSubject = "  " },
		"addresses in unusual spelling": func(s *certmanagerv1.CertificateSpec) {
			s.IPAddresses = []string{"::ffff:192.0.2.1", "2001:DB8:0:0::1", "192.0.2.1"}
		},
		"names twice": func(s *certmanagerv1.CertificateSpec) { s.DNSNames = []string{"a.example.com", "a.example.com"} },
		"upper case":  func(s *certmanagerv1.CertificateSpec) { s.DNSNames = []string{"A.Example.com"} },
		"a subject": func(s *certmanagerv1.CertificateSpec) {
			s.CommonName = "ü"
			s.Subject = &certmanagerv1.X509Subject{
				Organizations: []string{"b", "a", "a"}, Countries: []string{"NZ"}, OrganizationalUnits: []string{"ü & co"}, Localities: []string{"l"},
				Provinces: []string{"p"}, StreetAddresses: []string{"s, 1"}, PostalCodes: []string{"1"}, SerialNumber: "7",
			}
		},
		"an empty organization": func(s *certmanagerv1.CertificateSpec) {
			s.Subject = &certmanagerv1.X509Subject{Organizations: []string{""}}
		},
		"a literal subject": func(s *certmanagerv1.CertificateSpec) { s.LiteralSubject = "CN=x,OU=a+OU=b,DC=example,DC=com" },
		"other names": func(s *certmanagerv1.CertificateSpec) {
			s.OtherNames = []certmanagerv1.OtherName{{OID: "1.3.6.1.4.1.311.20.2.3", UTF8Value: "b@x"}, {OID: "1.2.3", UTF8Value: "a"}}
		},
		"e-mail": func(s *certmanagerv1.CertificateSpec) {
			s.EmailAddresses = []string{"a@example.com", `"b c"@example.com`}
		},
		"a CA": func(s *certmanagerv1.CertificateSpec) {
			s.IsCA, s.Usages, s.Duration = true, []certmanagerv1.KeyUsage{certmanagerv1.UsageCertSign}, &metav1.Duration{Duration: time.Hour}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			change(&w.crt.Spec)
			r, err := NewRequest(w.crt, Action{Name: "web-1", Revision: 1, Key: "k"}, newKey(t, facts.KeySpecOf(&w.crt.Spec)), nil)
			if refused[name] {
				if err == nil {
					t.Errorf("is not refused: %s", r.Spec.Request)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wrong, err := facts.RequestViolations(&w.crt.Spec, facts.OfRequest(r))
			if err != nil || len(wrong) > 0 {
				t.Errorf("violates %q, error %v", wrong, err)
			}
		})
	}
}

// TestChainsOfOtherIssuers: an external issuer may have anything around the certificates in the status of a request.
// The Secret gets the certificates that were checked, and no more; what cannot be read is refused.
func TestChainsOfOtherIssuers(t *testing.T) {
	const key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
	for name, tc := range map[string]struct {
		said   func(clean string) string
		reason string
	}{
		"clean":            {said: func(clean string) string { return clean }},
		"CRLF":             {said: func(clean string) string { return strings.ReplaceAll(clean, "\n", "\r\n") }},
		"text around":      {said: func(clean string) string { return "Subject: x\n" + clean + "key = value\n" }},
		"no last line end": {said: strings.TrimSpace},
		"a mark":           {said: func(clean string) string { return "\ufeff" + clean }},
		"an old label":     {said: func(clean string) string { return strings.ReplaceAll(clean, " CERTIFICATE-", " X509 CERTIFICATE-") }},
		"a key":            {said: func(clean string) string { return clean + key }, reason: "PEM block 2"},
		"a broken block":   {said: func(clean string) string { return clean + "-----BEGIN CERTIFICATE-----\nx\n" }, reason: "PEM block 2"},
		"soup":             {said: func(string) string { return "soup" }, reason: "no PEM block"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			r := w.next()
			w.sign(r)
			clean := string(r.Status.Certificate)
			r.Status.Certificate = []byte(tc.said(clean))
			w.settle()
			if tc.reason != "" {
				failed := w.condition(certmanagerv1.CertificateConditionIssuing)
				if failed.Reason != certmanagerv1.CertificateReasonInvalidCertificate || !strings.Contains(failed.Message, tc.reason) || w.stores > 0 {
					t.Fatalf("stored %d times, Issuing is %+v", w.stores, failed)
				}
				return
			}
			if got := string(w.secret.Data[cmmeta.TLSCertKey]); got != clean {
				t.Errorf("stored:\n%s", got)
			}
			if ready := w.condition(certmanagerv1.CertificateConditionReady); ready.Status != cmmeta.ConditionTrue {
				t.Errorf("Ready is %+v", ready)
			}
		})
	}
}

// What is said of a request that cannot be made is the same at each try, though its
// signature is not: a condition that changes is written, and a write is a reason to try.
func TestRefusalIsTheSameEachTime(t *testing.T) {
	w := newWorld(t)
	w.crt.Spec.OtherNames = []certmanagerv1.OtherName{{OID: "1.2.3", UTF8Value: strings.Repeat("x", 100_000)}}
	key, said := newKey(t, facts.KeySpecOf(&w.crt.Spec)), map[string]bool{}
	for range 32 {
		_, err := NewRequest(w.crt, Action{Name: "web-1", Revision: 1, Key: "k"}, key, nil)
		said[fmt.Sprint(err)] = true
	}
	if len(said) != 1 || said["<nil>"] {
		t.Errorf("said in turn: %v", said)
	}
}

func TestHistoryLimitOutOfBounds(t *testing.T) {
	w := issued(t)
	for _, revision := range []int{math.MinInt, math.MaxInt, 0, 7} {
		r := w.requests[0].DeepCopy()
		r.Name = "web-" + strconv.Itoa(revision)
		r.Annotations[certmanagerv1.CertificateRevisionAnnotation] = strconv.Itoa(revision)
		w.requests = append(w.requests, r)
	}
	for limit, kept := range map[int32]int{-1: 1, 0: 1, 1: 1, 3: 3, math.MaxInt32: 5} {
		w.crt.Spec.RevisionHistoryLimit = &limit
		a := Decide(w.state(), w.now)
		if got := len(w.requests) - len(a.Names); got != kept {
			t.Errorf("limit %d keeps %d, want %d (deletes %q)", limit, got, kept, a.Names)
		}
		if slices.Contains(a.Names, "web-"+strconv.Itoa(math.MaxInt)) {
			t.Errorf("limit %d deletes the newest: %q", limit, a.Names)
		}
	}
}

// TestSurplusHoldsUpNothing: while old requests cannot be deleted, the issuer is asked when to renew, and the deletion
// is tried again.
func TestSurplusHoldsUpNothing(t *testing.T) {
	w := issued(t)
	asks(w)
	w.now = w.now.Add(24 * time.Hour)
	for _, revision := range []string{"-1", "0"} {
		r := w.requests[0].DeepCopy()
		r.Name, r.Annotations[certmanagerv1.CertificateRevisionAnnotation] = "web-"+revision, revision
		w.requests = append(w.requests, r)
	}
	w.crt.Spec.RevisionHistoryLimit = new(int32(1))
	if a := Decide(w.state(), w.now); a.Step != StepDropSurplus || len(a.Names) != 2 {
		t.Fatalf("%s %q", a.Step, a.Names)
	}
	w.postponed = []Postponed{{Step: StepDropSurplus, Until: w.now.Add(time.Minute), News: "forbidden"}}
	a := Decide(w.state(), w.now)
	if a.Step != StepAskRenewalInfo || !a.Wake.Equal(w.postponed[0].Until) {
		t.Errorf("%s, wakes at %s", a.Step, a.Wake)
	}
	if want := (Event{true, certmanagerv1.CertificateEventRequestFailed, "forbidden"}); len(a.Events) != 1 || a.Events[0] != want {
		t.Errorf("says %+v", a.Events)
	}
	w.now = w.postponed[0].Until
	if a := Decide(w.state(), w.now); a.Step != StepDropSurplus {
		t.Errorf("then %s", a.Step)
	}
}

func TestNamesAreValid(t *testing.T) {
	for length := 1; length <= 253; length++ {
		for _, unit := range []string{"a", "a.", "a-", "ab.", "a--b."} {
			certificate := strings.Repeat(unit, 253)[:length]
			if len(validation.IsDNS1123Subdomain(certificate)) > 0 {
				continue
			}
			crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: certificate, UID: "uid"}}
			for what, name := range map[string]string{"request": RequestName(certificate, math.MaxInt), "key": keyName(crt, math.MaxInt)} {
				if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
					t.Fatalf("%s for a name of %d bytes: %q is invalid: %s", what, length, name, wrong)
				}
			}
		}
	}
}

// Two lists that differ only in their order must not lead to two decisions.
func TestOrderOfListsDoesNotMatter(t *testing.T) {
	for name, w := range map[string]*world{"in order": issued(t), "issuing": issuing(t)} {
		twin := w.next().DeepCopy()
		twin.Name, twin.UID = "twin", "twin"
		twin.Spec.Usages = []certmanagerv1.KeyUsage{certmanagerv1.UsageAny}
		if name == "issuing" {
			twin.Spec.Usages = w.next().Spec.Usages
		}
		w.requests = append(w.requests, twin)
		one := Decide(w.state(), w.now)
		slices.Reverse(w.requests)
		two := Decide(w.state(), w.now)
		if one.Step != two.Step || !slices.Equal(one.Names, two.Names) || (one.Status == nil) != (two.Status == nil) {
			t.Errorf("%s: %s %q, or the other way round %s %q", name, one.Step, one.Names, two.Step, two.Names)
		}
	}
}
