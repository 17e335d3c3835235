package notice

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/revocation"
)

// TestDecide: one row for each thing that may have happened, told and not told.
func TestDecide(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: began.Add(d)} }
	const day = 24 * time.Hour
	issued := func(revision int, from, until time.Duration) certmanagerv1.CertificateStatus {
		return certmanagerv1.CertificateStatus{
			Revision: &revision, NotBefore: at(from), NotAfter: at(until), RenewalTime: at(from + (until-from)*2/3),
		}
	}
	failed := issued(3, -70*day, 20*day)
	failed.LastFailureTime, failed.FailedIssuanceAttempts = at(time.Hour), new(2)
	failed.Conditions = []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionIssuing, Reason: "Failed", Message: "no"}}
	told := func(s certmanagerv1.CertificateStatus, t certmanagerv1.CertificateTold) certmanagerv1.CertificateStatus {
		s.Told = &t
		return s
	}
	record := func(age time.Duration, outcome revocation.Outcome) map[string]string {
		r := revocation.Record{Serial: "0a", Reason: revocation.KeyCompromise, Time: began.Add(age), Outcome: outcome}
		return map[string]string{revocation.RecordAnnotation: r.String()}
	}
	for name, c := range map[string]struct {
		status      certmanagerv1.CertificateStatus
		annotations map[string]string
		after       time.Duration // of the decision
		want        Type
		told        certmanagerv1.CertificateTold
		wake        time.Duration
		late        bool
	}{
		"new":               {},
		"old, never told":   {status: issued(3, -30*day, 60*day), wake: 31 * day},
		"fresh, never told": {status: issued(1, -time.Hour, 90*day), want: Issued, told: certmanagerv1.CertificateTold{Revision: new(1)}},
		"renewed":           {status: told(issued(4, -time.Hour, 90*day), certmanagerv1.CertificateTold{Revision: new(3)}), want: Issued, told: certmanagerv1.CertificateTold{Revision: new(4)}},
		"renewed late": {
			status: told(issued(4, -time.Hour, 90*day), certmanagerv1.CertificateTold{Revision: new(3), Late: new(3)}),
			want:   Issued, told: certmanagerv1.CertificateTold{Revision: new(4)}, late: true,
		},
		"told":              {status: told(issued(4, 0, 90*day), certmanagerv1.CertificateTold{Revision: new(4)}), wake: 61 * day},
		"late":              {status: issued(3, -60*day, 30*day), after: day, want: Late, told: certmanagerv1.CertificateTold{Revision: new(3), Late: new(3)}},
		"late, and told":    {status: told(issued(3, -60*day, 30*day), certmanagerv1.CertificateTold{Revision: new(3), Late: new(3)}), after: day},
		"short life":        {status: told(issued(1, 0, time.Hour), certmanagerv1.CertificateTold{Revision: new(1)}), after: 42 * time.Minute, wake: 43 * time.Minute},
		"short life, late":  {status: told(issued(1, 0, time.Hour), certmanagerv1.CertificateTold{Revision: new(1)}), after: 43 * time.Minute, want: Late, told: certmanagerv1.CertificateTold{Revision: new(1), Late: new(1)}},
		"failed":            {status: failed, after: time.Hour, want: Failed, told: certmanagerv1.CertificateTold{Revision: new(3), FailureTime: at(time.Hour)}},
		"failed, and told":  {status: told(failed, certmanagerv1.CertificateTold{Revision: new(3), Late: new(3), FailureTime: at(time.Hour)}), after: 2 * time.Hour},
		"revoked":           {status: issued(3, -30*day, 60*day), annotations: record(0, revocation.Revoked), want: Revoked, told: certmanagerv1.CertificateTold{Revision: new(3), Revoked: "0a"}},
		"revoked long ago":  {status: issued(3, -30*day, 60*day), annotations: record(-day, revocation.Revoked), wake: 31 * day},
		"cannot be revoked": {status: issued(3, -30*day, 60*day), annotations: record(0, revocation.Unsupported), wake: 31 * day},
	} {
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Annotations: c.annotations}, Status: c.status}
		a := Decide(State{Certificate: crt, Began: began}, began.Add(c.after))
		if c.want == "" {
			want := time.Time{}
			if c.wake != 0 {
				want = began.Add(c.wake)
			}
			if a.Event != nil || !a.Wake.Equal(want) {
				t.Errorf("%s: %+v, wake at %s; want none, and %s", name, a.Event, a.Wake, want)
			}
			continue
		}
		if a.Event == nil || a.Event.Type != c.want || a.Event.Data.RenewedLate != c.late {
			t.Errorf("%s: %+v, want %s", name, a.Event, c.want)
			continue
		}
		if got := *a.Event.Told; !same(got.Revision, c.told.Revision) || !same(got.Late, c.told.Late) || got.Revoked != c.told.Revoked || !got.FailureTime.Equal(c.told.FailureTime) {
			t.Errorf("%s: told %+v, want %+v", name, got, c.told)
		}
		// Once it is told, it is not told again.
		crt.Status.Told = a.Event.Told
		if again := Decide(State{Certificate: crt, Began: began}, began.Add(c.after)); again.Event != nil && again.Event.ID == a.Event.ID {
			t.Errorf("%s is told twice", name)
		}
	}
	gone := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: at(0)}, Status: failed}
	if a := Decide(State{Certificate: gone, Began: began}, began); a.Event != nil {
		t.Errorf("of a Certificate that is being deleted: %+v", a.Event)
	}
}
