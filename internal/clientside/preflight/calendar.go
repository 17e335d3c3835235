package preflight

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/calendar"
	"chancery.dev/internal/machine/renewal"
)

const (
	// ahead is how long before its date a change is said.
	ahead = 90 * 24 * time.Hour
	// weeks is for how many weeks windows are looked at.
	weeks = 52
)

// Announced is a field of a Certificate that cannot work as its CA has announced it.
type Announced struct {
	// Field is the field of the spec.
	Field string `json:"field"`
	// From is the date; zero for what has always held.
	From time.Time `json:"from,omitzero"`
	// Message says what is announced, and WhatToDo what to change.
	Message  string `json:"message"`
	WhatToDo string `json:"whatToDo"`
	// refused says that the CA refuses the request from the date on.
	refused bool
}

// OfCalendar judges a Certificate by what the CA of its issuer has announced, up to 90 days before it holds. There is
// nothing of a CA that is not listed. Whether each of the windows of a year can be met takes a while: it is looked at
// only if withWindows is set.
func OfCalendar(crt *certmanagerv1.Certificate, issuer *acmev1.ACMEIssuer, now time.Time, withWindows bool) (all []Announced) {
	ca, listed := calendar.Of(issuer.Server)
	profile, known := ca.Profile(Profile(crt, issuer))
	if !listed || !known {
		return nil
	}
	j := judge{ca: ca, spec: &crt.Spec, now: now, most: certmanagerv1.DefaultCertificateDuration, windows: withWindows}
	if issuer.EnableDurationFeature {
		j.most = 0
	}
	if slices.Contains(j.spec.Usages, certmanagerv1.UsageClientAuth) && !profile.ServersOnly.After(now.Add(ahead)) {
		does := "leaves client auth out of certificates "
		if profile.Refuses {
			does = "refuses requests with client auth "
		}
		all = append(all, Announced{
			Field: "usages", From: profile.ServersOnly, Message: ca.Name + " " + does + since(profile.ServersOnly, now), refused: profile.Refuses,
			WhatToDo: `Remove "client auth" from spec.usages. For clients, take an issuer of your own CA`,
		})
	}
	terms := profile.Known(now, ahead)
	for i, t := range terms {
		end := now.AddDate(0, 0, 7*weeks)
		if i+1 < len(terms) {
			end = terms[i+1].From
		}
		for _, a := range j.lasting(t, end) {
			if !slices.ContainsFunc(all, func(said Announced) bool { return said.Field == a.Field }) {
				all = append(all, a)
			}
		}
	}
	return all
}

// calendar are the findings for a Certificate.
func (l Limits) calendar(crt *certmanagerv1.Certificate, issuer *acmev1.ACMEIssuer) (findings []Finding) {
	for _, a := range OfCalendar(crt, issuer, l.Now, true) {
		f := Finding{Check: "calendar", Subject: a.Field, Outcome: Warning, Message: a.Message, WhatToDo: a.WhatToDo}
		if a.refused && !a.From.After(l.Now) {
			f.Outcome = Failed
		}
		findings = append(findings, f)
	}
	return findings
}

// judge judges the spec of a Certificate.
type judge struct {
	ca   calendar.CA
	spec *certmanagerv1.CertificateSpec
	now  time.Time
	// most is the longest duration that is good in any case: the default where the field is not sent to the CA.
	most    time.Duration
	windows bool
}

// lasting says which fields cannot work for certificates by these terms that are issued before an end.
func (j judge) lasting(t calendar.Terms, end time.Time) (all []Announced) {
	add := func(field, what, do string) {
		all = append(all, Announced{Field: field, From: t.From, WhatToDo: do,
			Message: fmt.Sprintf("a certificate of %s lasts %s at most %s: %s", j.ca.Name, duration.HumanDuration(t.Lifetime), since(t.From, j.now), what)})
	}
	if d := j.spec.Duration; d != nil && d.Duration > max(j.most, t.Lifetime) {
		do := "Remove spec.duration"
		if before := j.spec.RenewBefore; before != nil && before.Duration >= certmanagerv1.DefaultCertificateDuration {
			do += " and spec.renewBefore"
		}
		add("duration", "spec.duration is "+duration.HumanDuration(d.Duration), do)
	}
	r := j.spec.Renewal
	if r != nil && r.Policy == certmanagerv1.RenewalPolicyDisabled {
		if t.From.After(j.now) {
			add("renewal", "spec.renewal.policy is Disabled, and nothing renews it", "Renew it earlier yourself, or remove spec.renewal.policy")
		}
		return all
	}
	asked := certmanagerv1.Certificate{Spec: *j.spec}
	if !j.windows || r == nil || len(r.Windows) == 0 {
		asked.Spec.Renewal, end = nil, time.Time{}
	} else if err := renewal.CheckWindows(r); err != nil {
		return all // the API server says it
	}
	// Windows may fit the certificate of one week, and not that of another.
	first := j.now.Add(max(t.From.Sub(j.now), 0))
	for begin := first; begin.Equal(first) || begin.Before(end); begin = begin.AddDate(0, 0, 7) {
		expires := begin.Add(t.Lifetime)
		due := renewal.Of(&asked, begin, expires, begin)
		if due.Ignored != "" {
			add("renewBefore", "spec.renewBefore or renewBeforePercentage leaves no time before the renewal, and does not count", "Set spec.renewBeforePercentage: 33, and no spec.renewBefore")
			return all
		}
		if due.Problem != "" {
			add("windows", fmt.Sprintf("one that is issued on %s is to be renewed from %s on, and no window opens before it expires",
				begin.Format(time.DateOnly), due.At.Format(time.DateOnly)), "Let a window of spec.renewal.windows open at least every "+duration.HumanDuration(expires.Sub(due.At)))
			return all
		}
	}
	return all
}

// since says from when on something holds.
func since(from, now time.Time) string {
	switch {
	case from.IsZero():
		return "now"
	case from.After(now):
		return "from " + from.Format(time.DateOnly) + " on"
	default:
		return "since " + from.Format(time.DateOnly)
	}
}
