// Package calendar has what public CAs have announced, with dates and sources: how long a certificate lasts, how long a
// validation of a name is used again, and from when on certificates are for servers only.
//
// The package is data, for whoever judges a Certificate before a date comes. It judges only the directories that are
// listed: what another CA does is not known here. docs/ca-calendar.md shows the table.
package calendar

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// Terms are what holds for certificates that are issued from a date on.
type Terms struct {
	// From is the date; zero for what holds so far.
	From time.Time
	// Lifetime is how long a certificate lasts at most. Reuse is how long a validation is used again at most; zero if
	// that is not announced.
	Lifetime, Reuse time.Duration
	// Source is where it is announced.
	Source string
}

// Profile is a kind of certificates that a CA offers (draft-ietf-acme-profiles).
type Profile struct {
	// Name is that of the profile; the first profile of a CA is the one without a wish.
	Name string
	// Terms are in the order of their dates.
	Terms []Terms
	// ServersOnly is from when on the certificates are not good for clients; Source is where that is announced. Refuses
	// says that the CA refuses a request for such a one; else it leaves the usage out.
	ServersOnly time.Time
	Source      string
	Refuses     bool
}

// CA is a public CA.
type CA struct {
	Name string
	// Host is that of its directory, for production.
	Host     string
	Profiles []Profile
}

const (
	day        = 24 * time.Hour
	lifetimes  = "https://letsencrypt.org/2025/12/02/from-90-to-45"
	clientAuth = "https://letsencrypt.org/2025/05/14/ending-tls-client-authentication"
	profiles   = "https://letsencrypt.org/docs/profiles"
	baseline   = "CA/Browser Forum, ballot SC-081v3"
)

// last are the terms of the last date that the forum has announced.
var last = Terms{time.Date(2029, time.March, 15, 0, 0, 0, 0, time.UTC), 47 * day, 10 * day, baseline}

// cas are made once: whoever reads metrics has each Certificate looked up.
var cas = []CA{
	{"Let's Encrypt", "acme-v02.api.letsencrypt.org", []Profile{
		{"classic", []Terms{
			{time.Time{}, 90 * day, 30 * day, lifetimes},
			{time.Date(2027, time.February, 10, 0, 0, 0, 0, time.UTC), 64 * day, 10 * day, lifetimes},
			{time.Date(2028, time.February, 16, 0, 0, 0, 0, time.UTC), 45 * day, 7 * time.Hour, lifetimes},
		}, time.Date(2026, time.February, 11, 0, 0, 0, 0, time.UTC), clientAuth, false},
		{"tlsserver", []Terms{{time.Date(2026, time.May, 13, 0, 0, 0, 0, time.UTC), 45 * day, 0, lifetimes}}, time.Time{}, clientAuth, false},
		{"shortlived", []Terms{{time.Time{}, 160 * time.Hour, 0, profiles}}, time.Time{}, clientAuth, false},
	}},
	{"Google Trust Services", "dv.acme-v02.api.pki.goog", []Profile{{
		Terms: []Terms{
			{time.Time{}, 90 * day, 0, "https://developers.google.com/public-key-infrastructure/faq/get-short-lived-certificates"}, last,
		},
		ServersOnly: time.Date(2026, time.April, 13, 0, 0, 0, 0, time.UTC), Refuses: true,
		Source: "https://developers.google.com/public-key-infrastructure/updates/may2025-clientauth",
	}}},
	{"DigiCert", "acme.digicert.com", []Profile{{
		Terms: []Terms{
			{time.Date(2026, time.March, 15, 0, 0, 0, 0, time.UTC), 200 * day, 200 * day, baseline},
			{time.Date(2027, time.March, 15, 0, 0, 0, 0, time.UTC), 100 * day, 100 * day, baseline},
			last,
		},
		ServersOnly: time.Date(2027, time.March, 1, 0, 0, 0, 0, time.UTC),
		Source:      "https://knowledge.digicert.com/alerts/sunsetting-client-authentication-eku-from-digicert-public-tls-certificates",
	}}},
}

// CAs are all that are listed. Nobody may write to them.
func CAs() []CA { return cas }

// Of returns the CA with a directory; false if it is not listed.
func Of(directory string) (CA, bool) {
	u, err := url.Parse(directory)
	i := slices.IndexFunc(cas, func(c CA) bool { return err == nil && strings.EqualFold(c.Host, u.Hostname()) })
	if i < 0 {
		return CA{}, false
	}
	return cas[i], true
}

// Profile returns a profile by its name; empty for that without a wish. A CA of which no profiles are listed has the
// same terms for all. False if the profile is not listed.
func (c CA) Profile(name string) (Profile, bool) {
	i := slices.IndexFunc(c.Profiles, func(p Profile) bool { return p.Name == name })
	if len(c.Profiles) > 0 && (name == "" || c.Profiles[0].Name == "") {
		i = 0
	}
	if i < 0 {
		return Profile{}, false
	}
	return c.Profiles[i], true
}

// Known are the terms that hold at a time, and those that begin within the time given, in the order of their dates.
func (p Profile) Known(now time.Time, ahead time.Duration) (known []Terms) {
	for _, t := range p.Terms {
		switch {
		case !t.From.After(now):
			known = []Terms{t}
		case !t.From.After(now.Add(ahead)):
			known = append(known, t)
		}
	}
	return known
}
