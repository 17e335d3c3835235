package preflight_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/clientside/preflight"
)

// TestCalendar: on both sides of each date, and of 90 days before it.
func TestCalendar(t *testing.T) {
	t.Parallel()
	const day, classic, google, digicert = 24 * time.Hour, "https://acme-v02.api.letsencrypt.org/directory", "https://DV.acme-v02.api.pki.goog/directory", "https://acme.digicert.com/v2/acme/directory"
	on := func(year int, month time.Month, d int) time.Time {
		return time.Date(year, month, d, 0, 0, 0, 0, time.UTC)
	}
	before := func(d time.Duration) (s certmanagerv1.CertificateSpec) {
		s.RenewBefore = &metav1.Duration{Duration: d}
		return s
	}
	client := certmanagerv1.CertificateSpec{Usages: []certmanagerv1.KeyUsage{certmanagerv1.UsageServerAuth, certmanagerv1.UsageClientAuth}}
	lasting := certmanagerv1.CertificateSpec{Duration: &metav1.Duration{Duration: 90 * day}}
	quarterly := before(20 * day)
	quarterly.Renewal = &certmanagerv1.CertificateRenewal{Windows: []certmanagerv1.CertificateRenewalWindow{{Cron: "0 3 1 */3 *", WindowDuration: metav1.Duration{Duration: time.Hour}}}}
	for name, c := range map[string]struct {
		server, profile string
		spec            certmanagerv1.CertificateSpec
		date            time.Time
		// early is how long before the date it is said; late is what is said from the date on, beside which message.
		early time.Duration
		late  preflight.Outcome
		says  string
	}{
		"64 days":           {classic, "", before(64 * day), on(2027, time.February, 10), 90 * day, preflight.Warning, "lasts 64d at most since 2027-02-10: spec.renewBefore"},
		"45 days":           {classic, "classic", before(50 * day), on(2028, time.February, 16), 90 * day, preflight.Warning, "lasts 45d at most since 2028-02-16"},
		"duration":          {classic, "", lasting, on(2027, time.February, 10), 90 * day, preflight.Warning, "lasts 64d at most since 2027-02-10: spec.duration is 90d"},
		"tlsserver":         {classic, "tlsserver", before(45 * day), on(2026, time.May, 13), 90 * day, preflight.Warning, "lasts 45d at most since 2026-05-13"},
		"clients":           {classic, "", client, on(2026, time.February, 11), 90 * day, preflight.Warning, "leaves client auth out of certificates since 2026-02-11"},
		"clients of Google": {google, "", client, on(2026, time.April, 13), 90 * day, preflight.Failed, "refuses requests with client auth since 2026-04-13"},
		"200 days":          {digicert, "any", before(200 * day), on(2026, time.March, 15), 90 * day, preflight.Warning, "lasts 200d at most since 2026-03-15"},
		"100 days":          {digicert, "", before(100 * day), on(2027, time.March, 15), 90 * day, preflight.Warning, "lasts 100d at most since 2027-03-15"},
		"47 days":           {google, "", before(47 * day), on(2029, time.March, 15), 90 * day, preflight.Warning, "lasts 47d at most since 2029-03-15"},
	} {
		l := preflight.Limits{Registered: func(string) string { return "" }}
		issuer := &acmev1.ACMEIssuer{Server: c.server, Profile: c.profile, EnableDurationFeature: true}
		judge := func(now time.Time) (out []preflight.Finding) {
			l.Now = now
			return slices.DeleteFunc(l.Judge(&certmanagerv1.Certificate{Spec: c.spec}, issuer), func(f preflight.Finding) bool { return f.Check != "calendar" })
		}
		if got := judge(c.date.Add(-c.early - time.Second)); len(got) != 0 {
			t.Errorf("%s, too early: %+v", name, got)
		}
		for _, now := range []time.Time{c.date.Add(-c.early), c.date.Add(-time.Second)} {
			if got := judge(now); len(got) != 1 || got[0].Outcome != preflight.Warning || !strings.Contains(got[0].Message, "from "+c.date.Format(time.DateOnly)+" on") || got[0].WhatToDo == "" {
				t.Errorf("%s at %s: %+v", name, now, got)
			}
		}
		if got := judge(c.date); len(got) != 1 || got[0].Outcome != c.late || !strings.Contains(got[0].Message, c.says) {
			t.Errorf("%s from the date on: %+v", name, got)
		}
	}
	l := preflight.Limits{Now: on(2028, time.March, 2), Registered: func(string) string { return "" }}
	issuer := &acmev1.ACMEIssuer{Server: classic}
	judge := func(s certmanagerv1.CertificateSpec) []preflight.Finding {
		return l.Judge(&certmanagerv1.Certificate{Spec: s}, issuer)
	}
	if got := judge(quarterly)[0]; got.Check != "calendar" || got.Subject != "windows" || !strings.HasSuffix(got.WhatToDo, "at least every 20d") {
		t.Errorf("windows: %+v", got)
	}
	disabled := certmanagerv1.CertificateSpec{Renewal: &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyDisabled}}
	l.Now = on(2027, time.January, 2)
	if got := judge(disabled)[0]; got.Subject != "renewal" || !strings.Contains(got.Message, "lasts 64d at most from 2027-02-10 on") {
		t.Errorf("disabled: %+v", got)
	}
	// What most Certificates say: nothing is said of it, on no day.
	usual := []certmanagerv1.CertificateSpec{{}, lasting, before(15 * day)}
	usual[2].Duration = lasting.Duration
	for _, server := range []string{classic, google, digicert, "https://ca.internal/acme/acme/directory"} {
		for i := range usual {
			for now := on(2026, time.January, 1); now.Year() < 2030; now = now.AddDate(0, 0, 11) {
				issuer.Server, l.Now = server, now
				if got := judge(usual[i])[0]; got.Check != "limits" {
					t.Errorf("%s on %s, %d: %+v", server, now, i, got)
				}
			}
		}
	}
	issuer.Server = "https://ca.internal/acme/acme/directory" // step-ca
	if got := judge(client); len(got) != 1 || got[0].Check != "limits" {
		t.Errorf("a CA that is not listed: %+v", got)
	}
}
