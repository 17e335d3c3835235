package certificate

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/pki"
)

// TestUsageLeftOut: a certificate that is not for all that was asked for is good for the rest. The cause says what was
// left out, once, and nothing is issued again.
func TestUsageLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.crt.Spec.Usages = []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageServerAuth, certmanagerv1.UsageClientAuth}
	w.settle()
	w.sign(w.requests[0])
	w.settle()
	s := w.state()
	decide := func(uses pki.Uses) Action {
		t.Helper()
		s.Secret.Leaf.Uses = uses
		a := Decide(s, w.now)
		if !a.Rests() || a.Unsaid != nil || !a.Wake.Equal(s.Certificate.Status.RenewalTime.Time) {
			t.Fatalf("%+v", a)
		}
		if a.Status != nil {
			s.Certificate.Status = *a.Status
		}
		return a
	}
	oid, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 1}})
	if err != nil {
		t.Fatal(err)
	}
	servers := pki.UsesOf(&x509.Certificate{Extensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: oid}}})
	a := decide(servers)
	if a.Status == nil || len(a.Events) != 1 || !a.Events[0].Warning || a.Events[0].Reason != string(cause.UsageLeftOut) || !strings.Contains(a.Events[0].Message, `["client auth"]`) {
		t.Fatalf("%+v", a)
	}
	c := s.Certificate.Status.Cause
	if c == nil || c.Class != string(cause.UsageLeftOut) || !s.Certificate.Status.NextTry.Equal(s.Certificate.Status.RenewalTime) {
		t.Errorf("%+v", s.Certificate.Status)
	}
	w.crt = s.Certificate
	if ready := w.condition(certmanagerv1.CertificateConditionReady); ready.Status != "True" || !strings.Contains(ready.Message, "client auth") {
		t.Errorf("%+v", ready)
	}
	if a := decide(servers); a.Status != nil || len(a.Events) > 0 {
		t.Errorf("said again: %+v", a)
	}
	if a := decide(^pki.Uses(0)); a.Status == nil || s.Certificate.Status.Cause != nil || s.Certificate.Status.NextTry != nil || len(a.Events) > 0 {
		t.Errorf("with all usages: %+v", a)
	}
	usages := s.Certificate.Spec.Usages
	if got := pki.Lacking(servers, slices.Delete(slices.Clone(usages), 1, 3)); len(got) > 0 { // bits of the key usage are not looked at
		t.Errorf("lacking %q", got)
	}
	for name, change := range map[string]func(*State){
		"nobody was asked for it":           func(s *State) { s.Requests = nil },
		"the request does not say it":       func(s *State) { s.Certificate.Spec.EncodeUsagesInRequest = new(bool) },
		"the last issuance failed":          func(s *State) { s.Certificate.Status.LastFailureTime = at(w.now) },
		"the Secret is another Certificate": func(s *State) { s.SecretOwner = "other" },
		"the Secret is gone":                func(s *State) { s.Secret = nil },
		"a renewal is under way": func(s *State) {
			s.Certificate.Status.Conditions = append(s.Certificate.Status.Conditions, certmanagerv1.CertificateCondition{
				Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered",
			})
		},
		"no window can be met": func(s *State) {
			s.Certificate.Spec.Renewal = &certmanagerv1.CertificateRenewal{Windows: []certmanagerv1.CertificateRenewalWindow{
				{Cron: "0 0 30 2 *", WindowDuration: metav1.Duration{Duration: time.Hour}},
			}}
		},
	} {
		for _, before := range []*cmmeta.Cause{nil, c} {
			s := w.state()
			s.Certificate = s.Certificate.DeepCopy()
			s.Certificate.Status.Cause, s.Secret.Leaf.Uses = before, servers
			change(&s)
			a := Decide(s, w.now)
			if is := a.Status; is != nil && is.Cause != nil && is.Cause.Class == string(cause.UsageLeftOut) {
				t.Errorf("%s: %+v", name, is.Cause)
			}
			if name == "no window can be met" && (a.Status == nil || a.Status.Cause == nil || a.Status.Cause.Class != string(cause.RenewalWindows)) {
				t.Errorf("%s: %+v", name, a.Status)
			}
		}
	}
}
