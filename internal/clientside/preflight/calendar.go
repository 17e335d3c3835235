package preflight

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

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

// calendar judges a Certificate by what its CA has announced, up to 90 days before it holds. There is no finding for a
// CA that is not listed.
func (l Limits) calendar(spec *certmanagerv1.CertificateSpec) (findings []Finding) {
	ca, listed := calendar.Of(l.Server)
	profile, known := ca.Profile(l.Profile)
	if !listed || !known {
		return nil
	}
	if slices.Contains(spec.Usages, certmanagerv1.UsageClientAuth) && !profile.ServersOnly.After(l.Now.Add(ahead)) {
		f := Finding{Check: "calendar", Subject: "usages", Outcome: Warning, WhatToDo: `Remove "client auth" from spec.usages. For clients, take an issuer of your own CA`}
		f.Message = fmt.Sprintf("%s leaves client auth out of certificates %s", ca.Name, since(profile.ServersOnly, l.Now))
		if profile.Refuses {
			f.Message = fmt.Sprintf("%s refuses requests with client auth %s", ca.Name, since(profile.ServersOnly, l.Now))
		}
		if profile.Refuses && !profile.ServersOnly.After(l.Now) {
			f.Outcome = Failed
		}
		findings = append(findings, f)
	}
	terms := profile.Known(l.Now, ahead)
	for i, t := range terms {
		end := l.Now.AddDate(0, 0, 7*weeks)
		if i+1 < len(terms) {
			end = terms[i+1].From
		}
		for _, f := range l.lasting(ca, t, end, spec) {
			if !slices.ContainsFunc(findings, func(said Finding) bool { return said.Subject == f.Subject }) {
				findings = append(findings, f)
			}
		}
	}
	return findings
}

// lasting says which fields cannot work for certificates that last so long and are issued before the end of the terms.
func (l Limits) lasting(ca calendar.CA, t calendar.Terms, end time.Time, spec *certmanagerv1.CertificateSpec) (findings []Finding) {
	add := func(field, what, do string) {
		findings = append(findings, Finding{Check: "calendar", Subject: field, Outcome: Warning, WhatToDo: do,
			Message: fmt.Sprintf("a certificate of %s lasts %s at most %s: %s", ca.Name, duration.HumanDuration(t.Lifetime), since(t.From, l.Now), what)})
	}
	most := t.Lifetime
	if !l.SendsDuration { // the field is not sent, and the default is 90 days
		most = max(most, certmanagerv1.DefaultCertificateDuration)
	}
	if d := spec.Duration; d != nil && d.Duration > most {
		do := "Remove spec.duration"
		if before := spec.RenewBefore; before != nil && before.Duration >= certmanagerv1.DefaultCertificateDuration {
			do += " and spec.renewBefore"
		}
		add("duration", "spec.duration is "+duration.HumanDuration(d.Duration), do)
	}
	first := l.Now.Add(max(t.From.Sub(l.Now), 0))
	if r := spec.Renewal; r != nil && r.Policy == certmanagerv1.RenewalPolicyDisabled {
		if t.From.After(l.Now) {
			add("renewal", "spec.renewal.policy is Disabled, and nothing renews it", "Renew it earlier yourself, or remove spec.renewal.policy")
		}
		return findings
	}
	if err := renewal.CheckWindows(spec.Renewal); err != nil {
		return findings // the API server says it
	}
	// Windows may fit the certificate of one week, and not that of another.
	for begin := first; begin.Equal(first) || begin.Before(end); begin = begin.AddDate(0, 0, 7) {
		expires := begin.Add(t.Lifetime)
		due := renewal.Of(&certmanagerv1.Certificate{Spec: *spec}, begin, expires, begin)
		if due.Ignored != "" {
			add("renewBefore", "spec.renewBefore or renewBeforePercentage leaves no time before the renewal, and does not count", "Set spec.renewBeforePercentage: 33, and no spec.renewBefore")
			return findings
		}
		if due.Problem != "" {
			add("windows", fmt.Sprintf("one that is issued on %s is to be renewed from %s on, and no window opens before it expires",
				begin.Format(time.DateOnly), due.At.Format(time.DateOnly)), "Let a window of spec.renewal.windows open at least every "+duration.HumanDuration(expires.Sub(due.At)))
			return findings
		}
	}
	return findings
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
