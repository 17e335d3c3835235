package renewal

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// january is the begin of the certificates below: a Thursday.
func january() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func asking(uid string, change func(*certmanagerv1.CertificateSpec)) *certmanagerv1.Certificate {
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	change(&crt.Spec)
	return crt
}

// TestRenewalByTheLetter is the rule of spec §2.1 in whole seconds; what the user says
// is kept exactly.
func TestRenewalByTheLetter(t *testing.T) {
	h := time.Hour
	for _, c := range []struct {
		name     string
		lifetime time.Duration
		before   time.Duration
		percent  int32
		want     time.Duration
		explicit bool
	}{
		{"a third by default", 900 * h, 0, 0, 600 * h, false},
		{"whole seconds", 100 * time.Second, 0, 0, 66 * time.Second, false},
		{"renewBefore", 90 * h, 10 * h, 0, 80 * h, true},
		{"renewBefore wins", 90 * h, 10 * h, 50, 80 * h, true},
		{"renewBefore of the whole lifetime", 90 * h, 90 * h, 0, 60 * h, false},
		{"renewBefore of more, and a percentage", 90 * h, 91 * h, 50, 45 * h, true},
		{"negative renewBefore", 90 * h, -h, 0, 60 * h, false},
		{"renewBefore in fractions of a second", 90 * h, 1500 * time.Millisecond, 0, 90*h - 2*time.Second, true},
		{"percentage", 100 * h, 0, 25, 75 * h, true},
		{"percentage of 1", 100 * h, 0, 1, 99 * h, true},
		{"percentage of 99", 100 * h, 0, 99, h, true},
		{"percentage of 100", 90 * h, 0, 100, 60 * h, false},
		{"percentage below", 90 * h, 0, -1, 60 * h, false},
		{"percentage of a century", 100 * 8760 * h, 0, 99, 8760 * h, true},
		{"percentage of almost three centuries", 292 * 8760 * h, 0, 50, 146 * 8760 * h, true},
		{"ends before it begins", -h, 0, 0, -h, false},
	} {
		crt := asking("u", func(s *certmanagerv1.CertificateSpec) {
			if c.before != 0 {
				s.RenewBefore = &metav1.Duration{Duration: c.before}
			}
			if c.percent != 0 {
				s.RenewBeforePercentage = &c.percent
			}
		})
		got := Of(crt, january(), january().Add(c.lifetime), time.Time{})
		if !got.Plain.Equal(january().Add(c.want)) || got.At.Nanosecond() != 0 || got.Problem != "" {
			t.Errorf("%s: due %s after the begin, want %s", c.name, got.Plain.Sub(january()), c.want)
		}
		if c.explicit && !got.At.Equal(got.Plain) {
			t.Errorf("%s: due %s, not as asked for", c.name, got.At.Sub(january()))
		}
	}
	disabled := Of(asking("u", func(s *certmanagerv1.CertificateSpec) {
		s.Renewal = &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyDisabled}
	}), january(), january().Add(h), time.Time{})
	if disabled != (Time{}) {
		t.Errorf("disabled: %+v", disabled)
	}
	never := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) // RFC 5280 §4.1.2.5
	if got := Of(&certmanagerv1.Certificate{}, january(), never, time.Time{}); got.At.Before(january()) || got.At.After(never) {
		t.Errorf("without end: due %s", got.At)
	}
}

// Ten thousand Certificates that were made at once do not renew at once, and each of
// them always at the same time; none before a third of its lifetime is left (a half of
// a short one), and none when much less is.
func TestRenewalsAreSpread(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct{ lifetime, earliest, latest time.Duration }{
		{90 * day, 60 * day, 63 * day},
		{397 * day, 397 * day * 2 / 3, 397 * day * 7 / 10},
		{45 * day, 30 * day, 32 * day},
		{10 * day, 10 * day * 2 / 3, 10 * day * 7 / 10},
		{6 * day, 3 * day, 3*day + 8*time.Hour},
		{time.Hour, 30 * time.Minute, 33 * time.Minute},
	} {
		const certificates, slots = 10_000, 100
		width := (c.latest - c.earliest) / slots
		var inSlot [slots]int
		for i := range certificates {
			crt := asking(fmt.Sprintf("uid-%d", i), func(*certmanagerv1.CertificateSpec) {})
			r := Of(crt, january(), january().Add(c.lifetime), time.Time{})
			after := r.At.Sub(january())
			if after < c.earliest-time.Second || after > c.latest {
				t.Fatalf("a certificate of %s is renewed after %s", c.lifetime, after)
			}
			if again := Of(crt, january(), january().Add(c.lifetime), time.Time{}); again != r {
				t.Fatalf("first %+v, then %+v", r, again)
			}
			inSlot[min(max(after-c.earliest, 0)/width, slots-1)]++
		}
		for slot, n := range inSlot {
			if n > certificates/slots*2 {
				t.Errorf("%d of %d certificates of %s are renewed in one hundredth of the time, number %d", n, certificates, c.lifetime, slot)
			}
		}
	}
}

// TestFieldsAreJudgedByWhatWasIssued: the CA may give less than was asked for, or a certificate that began before. What
// would renew it within five minutes of its issuance does not count, is named, and the default decides. Both
// fields go by one formula.
func TestFieldsAreJudgedByWhatWasIssued(t *testing.T) {
	h, m := time.Hour, time.Minute
	for _, c := range []struct {
		name             string
		lifetime, before time.Duration
		percent          int32
		backdated        time.Duration
		ignored          string
	}{
		{"all but half a minute of six days", 144 * h, 144*h - 30*time.Second, 0, 0, "spec.renewBefore (143h59m30s)"},
		{"all of six days", 144 * h, 144 * h, 0, 0, "spec.renewBefore (144h0m0s)"},
		{"more than six days", 144 * h, 720 * h, 0, 0, "lasts 144h0m0s"},
		{"all but four minutes", 144 * h, 144*h - 4*m, 0, 0, "spec.renewBefore"},
		{"all but five minutes", 144 * h, 144*h - 5*m, 0, 0, ""},
		{"all but an hour, of a certificate that began an hour ago", 144 * h, 143 * h, 0, h, "spec.renewBefore (143h0m0s)"},
		{"all but two hours, of a certificate that began an hour ago", 144 * h, 142 * h, 0, h, ""},
		{"57 minutes of an hour", h, 57 * m, 0, 0, "within 5m0s of its issuance"},
		{"55 minutes of an hour", h, 55 * m, 0, 0, ""},
		{"55 minutes of an hour, by a CA whose clock is late", h, 55 * m, 0, time.Second, ""},
		{"95 percent of an hour", h, 0, 95, 0, "spec.renewBeforePercentage (95)"},
		{"91 percent of an hour", h, 0, 91, 0, ""},
		{"99 percent of six days", 144 * h, 0, 99, 0, ""},
		{"99 percent of six days that began two hours ago", 144 * h, 0, 99, 2 * h, "spec.renewBeforePercentage (99)"},
		{"5 percent of an hour", h, 0, 5, 0, ""},
	} {
		crt := asking("u", func(s *certmanagerv1.CertificateSpec) {
			if c.before != 0 {
				s.RenewBefore = &metav1.Duration{Duration: c.before}
			}
			if c.percent != 0 {
				s.RenewBeforePercentage = &c.percent
			}
		})
		notBefore, issued := january(), january().Add(c.backdated)
		notAfter := notBefore.Add(c.lifetime)
		got := Of(crt, notBefore, notAfter, issued)
		if got.At.Before(issued.Add(5*m - 30*time.Second)) {
			t.Errorf("%s: due %s after the issuance", c.name, got.At.Sub(issued))
		}
		if c.ignored == "" {
			lead := max(c.before, c.lifetime/100*time.Duration(c.percent))
			if got.Ignored != "" || !got.At.Equal(notAfter.Add(-lead)) {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		byDefault := Of(asking("u", func(*certmanagerv1.CertificateSpec) {}), notBefore, notAfter, issued)
		if !strings.Contains(got.Ignored, c.ignored) || !got.At.Equal(byDefault.At) || got.Source != certmanagerv1.RenewalTimeByDefault {
			t.Errorf("%s: %+v", c.name, got)
		}
		if got.Serves(notAfter.Add(-c.before), crt) {
			t.Errorf("%s: a time that was said by what does not count stays", c.name)
		}
	}
}

func openAt(windows ...certmanagerv1.CertificateRenewalWindow) func(*certmanagerv1.CertificateSpec) {
	return func(s *certmanagerv1.CertificateSpec) {
		s.RenewBefore = &metav1.Duration{Duration: 30 * 24 * time.Hour} // of 90 days: due on March 2, a Monday
		s.Renewal = &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyRenewBefore, Windows: windows}
	}
}

func opens(cron string, length time.Duration, zone string) certmanagerv1.CertificateRenewalWindow {
	return certmanagerv1.CertificateRenewalWindow{Cron: cron, WindowDuration: metav1.Duration{Duration: length}, Timezone: zone}
}

// TestRenewalWindows holds the rule of spec §2.1 about windows.
func TestRenewalWindows(t *testing.T) {
	h := time.Hour
	for _, c := range []struct {
		name    string
		windows []certmanagerv1.CertificateRenewalWindow
		want    string // when, or the problem
	}{
		{"inside", []certmanagerv1.CertificateRenewalWindow{opens("0 22 * * 0", 4*h, "")}, "2026-03-02T00:00:00Z"},
		{"at its begin", []certmanagerv1.CertificateRenewalWindow{opens("0 0 * * *", h, "")}, "2026-03-02T00:00:00Z"},
		{"at its end", []certmanagerv1.CertificateRenewalWindow{opens("0 22 * * *", 2*h, "")}, "2026-03-02T22:00:00Z"},
		{"the next one", []certmanagerv1.CertificateRenewalWindow{opens("30 2 * * 6", h, "")}, "2026-03-07T02:30:00Z"},
		{"the earliest of several", []certmanagerv1.CertificateRenewalWindow{opens("0 2 * * 6", h, ""), opens("0 3 * * 3", h, ""), opens("0 4 * * 5", h, "")}, "2026-03-04T03:00:00Z"},
		{"in a zone", []certmanagerv1.CertificateRenewalWindow{opens("0 2 * * 6", h, "America/New_York")}, "2026-03-07T07:00:00Z"},
		{"in a zone with summer time, which begins that day", []certmanagerv1.CertificateRenewalWindow{opens("0 3 8 3 *", h, "America/New_York")}, "2026-03-08T07:00:00Z"},
		{"in a zone of half hours", []certmanagerv1.CertificateRenewalWindow{opens("0 6 * * *", h, "Asia/Kolkata")}, "2026-03-02T00:30:00Z"},
		{"in the zone of cron", []certmanagerv1.CertificateRenewalWindow{opens("TZ=Asia/Tokyo 0 12 * * *", h, "")}, "2026-03-02T03:00:00Z"},
		{"a word", []certmanagerv1.CertificateRenewalWindow{opens("@weekly", h, "")}, "2026-03-08T00:00:00Z"},
		{"windows that overlap themselves", []certmanagerv1.CertificateRenewalWindow{opens("0 * * * *", 48*h, "")}, "2026-03-02T00:00:00Z"},
		{"none before the end", []certmanagerv1.CertificateRenewalWindow{opens("0 0 1 6 *", h, "")}, "no window of spec.renewal.windows opens"},
		{"none ever", []certmanagerv1.CertificateRenewalWindow{opens("0 0 30 2 *", h, "")}, "no window of spec.renewal.windows opens"},
		{"no cron", []certmanagerv1.CertificateRenewalWindow{opens("0 2 * * 6", h, ""), opens("0 2 * * 8", h, "")}, "spec.renewal.windows[1]: cron"},
		{"an unknown word", []certmanagerv1.CertificateRenewalWindow{opens("@never", h, "")}, "spec.renewal.windows[0]: cron"},
		{"a word without begin", []certmanagerv1.CertificateRenewalWindow{opens("@every 1h", h, "")}, "name the hours"},
		{"a zone alone", []certmanagerv1.CertificateRenewalWindow{opens("TZ=UTC", h, "")}, "nothing after the time zone"},
		{"a zone and a tab", []certmanagerv1.CertificateRenewalWindow{opens("TZ=UTC\t0 2 * * *", h, "")}, "2026-03-02T02:00:00Z"},
		{"an unknown zone", []certmanagerv1.CertificateRenewalWindow{opens("0 2 * * *", h, "Middle/Earth")}, `timezone: "Middle/Earth"`},
		{"the zone of wherever we run", []certmanagerv1.CertificateRenewalWindow{opens("0 2 * * *", h, "Local")}, `timezone: "Local"`},
		{"the zone of wherever we run, in cron", []certmanagerv1.CertificateRenewalWindow{opens("CRON_TZ=Local 0 2 * * *", h, "")}, "Local is not"},
		{"no length", []certmanagerv1.CertificateRenewalWindow{opens("0 2 * * *", 0, "")}, "windowDuration"},
	} {
		got := Of(asking("u", openAt(c.windows...)), january(), january().Add(90*24*h), time.Time{})
		if strings.HasPrefix(c.want, "2026") {
			if got.Problem != "" || got.At.Format(time.RFC3339) != c.want {
				t.Errorf("%s: %s %s, want %s", c.name, got.At, got.Problem, c.want)
			}
			continue
		}
		if !strings.Contains(got.Problem, c.want) || got.At.Format(time.RFC3339) != "2026-03-02T00:00:00Z" {
			t.Errorf("%s: %s %q, want %q, and renewal when it is due", c.name, got.At, got.Problem, c.want)
		}
	}
}
