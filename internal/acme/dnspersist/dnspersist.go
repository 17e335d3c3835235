// Package dnspersist composes and parses the text of the TXT record for a DNS-PERSIST-01 challenge
// (draft-ietf-acme-dns-persist-01), and judges whether an existing record is enough. The package asks no DNS server and
// no CA: internal/solver/dns01 asks the DNS servers, and internal/acme/accounts asks the CA.
package dnspersist

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"chancery.dev/internal/acme/caa"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// maxIssuers is how many names a CA may list (draft §3.1).
const maxIssuers = 10

// lastSecond is the last one of the year 9999: a later time cannot be written by RFC 3339, and one of many more digits
// would count as long past.
const lastSecond = 253402300799

// maxProblems bounds how many values in DNS a message quotes.
const maxProblems = 3

// Name is the name of the record for a domain, with the trailing dot (draft §4).
func Name(domain string) string {
	return "_validation-persist." + pki.DNSNameKey(domain) + "."
}

// Record is what a TXT record says (draft §4.1).
type Record struct {
	// Issuer is the issuer domain name, one of those that the CA lists.
	Issuer string
	// AccountURI names the ACME account.
	AccountURI string
	// Wildcard is policy=wildcard: it holds for the wildcard of the domain too.
	Wildcard bool
	// Until is persistUntil, after which it does not hold; zero if it always does.
	Until time.Time
}

// String is the text of the record.
func (r Record) String() string {
	text := r.Issuer + "; accounturi=" + r.AccountURI
	if r.Wildcard {
		text += "; policy=wildcard"
	}
	if !r.Until.IsZero() {
		text += "; persistUntil=" + strconv.FormatInt(r.Until.Unix(), 10)
	}
	return text
}

// Choose returns the issuer domain name for a record: the wanted one, or the first that
// the CA lists. The error says what is wrong with the list or the wish, for people.
func Choose(listed []string, wanted string) (string, error) {
	if len(listed) == 0 || len(listed) > maxIssuers {
		return "", fmt.Errorf("the ACME server's dns-persist-01 challenge lists %d issuer domain names, not 1 to %d: "+
			"it cannot be used (draft-ietf-acme-dns-persist §3.1); use another solver", len(listed), maxIssuers)
	}
	for _, name := range listed {
		if name == "" || len(name) > 253 || strings.ContainsFunc(name, notInName) {
			return "", fmt.Errorf("the ACME server's dns-persist-01 challenge lists the issuer domain name %s, which is none: "+
				"it cannot be used (draft-ietf-acme-dns-persist §3.1); use another solver", shown(name))
		}
	}
	switch {
	case wanted == "":
		return listed[0], nil
	case !slices.Contains(listed, wanted):
		return "", fmt.Errorf("dnsPersist01.issuerDomainName %q is not one of those that the ACME server lists: %s; "+
			"correct it in spec.acme.solvers", wanted, strings.Join(listed, ", "))
	}
	return wanted, nil
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
}

// Parse reads the text of a record: an issue-value of RFC 8659 §4.2 with an account.
// Unknown parameters are let be; a policy other than wildcard counts as none (draft §4.1).
func Parse(text string) (Record, error) {
	parts := strings.Split(text, ";")
	r := Record{Issuer: caa.Trim(parts[0])}
	if !isDomain(r.Issuer) {
		return Record{}, errors.New("it does not begin with an issuer domain name")
	}
	seen := map[string]bool{}
	for _, part := range parts[1:] {
		tag, value, ok := caa.Cut(part)
		switch {
		case caa.Trim(part) == "":
			return Record{}, errors.New("it has an empty parameter: two semicolons in a row, or one at the end")
		case !ok:
			return Record{}, fmt.Errorf("%s is not tag=value", shown(caa.Trim(part)))
		case seen[tag]:
			return Record{}, fmt.Errorf("it has two parameters %s", shown(tag))
		case !caa.IsValue(value):
			return Record{}, fmt.Errorf("the value of %s has a space or a character that is not ASCII", shown(tag))
		}
		seen[tag] = true
		switch tag {
		case "accounturi":
			r.AccountURI = value
		case "policy":
			r.Wildcard = strings.EqualFold(value, "wildcard")
		case "persistuntil":
			seconds, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return Record{}, fmt.Errorf("persistUntil %s is not a number of seconds since 1970", shown(value))
			}
			r.Until = time.Unix(min(max(seconds, 0), lastSecond), 0).UTC()
		}
	}
	if r.AccountURI == "" {
		return Record{}, errors.New("it has no accounturi")
	}
	return r, nil
}

// isDomain reports whether a text is labels with dots between them, which may have underscores, as in Choose.
func isDomain(s string) bool {
	return !slices.ContainsFunc(strings.Split(s, "."), func(label string) bool { return !caa.IsLabel(strings.ReplaceAll(label, "_", "u")) })
}

// Find looks among the texts at a name for one that a CA would take for r at a time (draft §4.3.2). The problem is
// empty if there is one, and until is then the latest end of those; zero for none. Otherwise the problem says what is
// there instead. Of records for other CAs it says how many there are, and no more.
func (r Record) Find(texts []string, now time.Time) (until time.Time, problem string) {
	var problems []string
	others, found := 0, false
	for _, text := range texts {
		issuer, _, _ := strings.Cut(text, ";")
		if caa.Trim(issuer) != r.Issuer {
			others++
			continue
		}
		got, err := Parse(text)
		switch {
		case err != nil:
			problems = append(problems, "a record for "+r.Issuer+" is malformed: "+err.Error())
		case got.AccountURI != r.AccountURI:
			problems = append(problems, "a record for "+r.Issuer+" is of another account, "+shown(got.AccountURI))
		case r.Wildcard && !got.Wildcard:
			problems = append(problems, "the record of the account lacks policy=wildcard")
		case !got.Until.IsZero() && now.After(got.Until):
			problems = append(problems, "the record of the account has expired: its persistUntil was "+got.Until.Format(time.RFC3339))
		case got.Until.IsZero():
			return time.Time{}, ""
		default:
			if found = true; got.Until.After(until) {
				until = got.Until
			}
		}
	}
	if found {
		return until, ""
	}
	slices.Sort(problems) // DNS has no order: the text stays the same from try to try
	if n := len(problems) - maxProblems; n > 0 {
		problems = append(problems[:maxProblems], fmt.Sprintf("%d more like these", n))
	}
	if others > 0 {
		problems = append(problems, fmt.Sprintf("%d TXT values that do not begin with %s", others, r.Issuer))
	}
	return time.Time{}, strings.Join(problems, ", ")
}

// shown quotes what comes from elsewhere.
func shown(s string) string { return strconv.QuoteToASCII(fault.Quote(s)) }
