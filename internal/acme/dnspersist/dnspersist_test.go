package dnspersist

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const account = "https://ca.example/acct/123"

func TestParse(t *testing.T) {
	until := time.Unix(1767225600, 0).UTC()
	plain := Record{Issuer: "authority.example", AccountURI: account}
	for text, want := range map[string]any{
		// The examples of draft §4.1, §10.
		"authority.example; accounturi=" + account:                                                plain,
		"authority.example; accounturi=" + account + "; policy=wildcard":                          Record{plain.Issuer, account, true, time.Time{}},
		"authority.example; accounturi=" + account + "; persistUntil=1767225600":                  Record{plain.Issuer, account, false, until},
		"authority.example; accounturi=" + account + "; policy=wildcard; persistUntil=1767225600": Record{plain.Issuer, account, true, until},

		"authority.example;accounturi=" + account:                                  plain,
		" \tauthority.example\t; ACCOUNTURI = " + account + " ; Policy=WildCard ":  Record{plain.Issuer, account, true, time.Time{}},
		"authority.example; accounturi=" + account + "; policy=other":              plain,
		"authority.example; accounturi=" + account + "; policy=":                   plain,
		"authority.example; accounturi=" + account + "; future=1=2":                plain,
		"authority.example; accounturi=" + account + "; persistUntil=-62135596800": Record{plain.Issuer, account, false, time.Unix(0, 0)},

		"authority.example; accounturi=" + account + "; persistUntil=9223372036854775807": Record{plain.Issuer, account, false, time.Unix(lastSecond, 0)},

		"":                                                         "issuer domain name",
		"an authority; accounturi=x":                               "issuer domain name",
		"-authority.example; accounturi=x":                         "issuer domain name",
		"authority..example; accounturi=x":                         "issuer domain name",
		"authority.example; a b=c; accounturi=x":                   `"a b=c" is not tag=value`,
		"authority.example; ä=c; accounturi=x":                     "is not tag=value",
		"; accounturi=x":                                           "issuer domain name",
		"authority.example":                                        "no accounturi",
		"authority.example; accounturi=":                           "no accounturi",
		"authority.example; policy=wildcard":                       "no accounturi",
		"authority.example; accounturi=" + account + ";":           "empty parameter",
		"authority.example;; accounturi=" + account:                "empty parameter",
		"authority.example; " + account:                            `"https://ca.example/acct/123" is not tag=value`,
		"authority.example; =x":                                    "is not tag=value",
		"authority.example; accounturi=a; AccountURI=b":            `two parameters "accounturi"`,
		"authority.example; accounturi=a b":                        "has a space",
		"authority.example; accounturi=ä":                          "not ASCII",
		"authority.example; accounturi=a; persistUntil=2026-01-01": `persistUntil "2026-01-01" is not a number`,
		"authority.example; accounturi=a; persistUntil=":           "is not a number",
		"authority.example; accounturi=a; persistUntil=" + strings.Repeat("9", 600): `9\u2026" is not a number`,
	} {
		got, err := Parse(text)
		if why, bad := want.(string); bad {
			if err == nil || !strings.Contains(err.Error(), why) || len(err.Error()) > 600 {
				t.Errorf("%q: %v, want an error with %q", text, err, why)
			}
			continue
		}
		if r, ok := want.(Record); !ok || err != nil || got.String() != r.String() || !got.Until.Equal(r.Until) {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("%q: its own text %q is read as %+v, %v", text, got, again, err)
		}
	}
}

func TestFind(t *testing.T) {
	now := time.Unix(1767225600, 0)
	at := func(d time.Duration) string { return fmt.Sprintf("; persistUntil=%d", now.Add(d).Unix()) }
	const mine, other = "ca.example; accounturi=" + account, "ca.example; accounturi=https://ca.example/acct/9"
	for name, c := range map[string]struct {
		texts    []string
		wildcard bool
		problem  string
		until    time.Duration // after now; 0 for none
	}{
		"the record":                     {texts: []string{mine}},
		"among others":                   {texts: []string{"v=spf1 -all", "ca.example", other, "other.example; accounturi=x", mine}},
		"one for wildcards too":          {texts: []string{mine + "; policy=wildcard"}},
		"for the wildcard":               {texts: []string{mine + "; policy=WILDCARD"}, wildcard: true},
		"not for the wildcard":           {texts: []string{mine}, wildcard: true, problem: "the record of the account lacks policy=wildcard"},
		"another account":                {texts: []string{other}, problem: `of another account, "https://ca.example/acct/9"`},
		"an account in other letters":    {texts: []string{strings.Replace(mine, "acct", "ACCT", 1)}, problem: "of another account"},
		"another CA":                     {texts: []string{"other.example; accounturi=" + account, "x"}, problem: "2 TXT values that do not begin with ca.example"},
		"malformed":                      {texts: []string{mine + ";"}, problem: "a record for ca.example is malformed: it has an empty parameter"},
		"holds until":                    {texts: []string{mine + at(time.Hour)}, until: time.Hour},
		"to the last second":             {texts: []string{mine + at(0)}, until: 1},
		"expired":                        {texts: []string{mine + at(-time.Second)}, problem: "expired: its persistUntil was 2025-12-31T23:59:59Z"},
		"the later of two":               {texts: []string{mine + at(time.Hour), mine + at(2*time.Hour), mine + at(-time.Hour)}, until: 2 * time.Hour},
		"one that holds for ever":        {texts: []string{mine + at(time.Hour), mine}},
		"all that is wrong, but bounded": {texts: slices.Repeat([]string{other}, 9), problem: "6 more like these"},
	} {
		t.Run(name, func(t *testing.T) {
			want := Record{Issuer: "ca.example", AccountURI: account, Wildcard: c.wildcard}
			until, problem := want.Find(c.texts, now)
			if (c.problem == "") != (problem == "") || !strings.Contains(problem, c.problem) {
				t.Errorf("problem %q, want %q", problem, c.problem)
			}
			if got := until.Sub(now); until.IsZero() != (c.until == 0) || (c.until != 0 && got != c.until.Truncate(time.Second)) {
				t.Errorf("it holds until %v, want %v after %v", until, c.until, now)
			}
			slices.Reverse(c.texts)
			if _, again := want.Find(c.texts, now); again != problem {
				t.Errorf("in another order it says %q, not %q", again, problem)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		listed []string
		wanted string
		want   string
		why    string
	}{
		{listed: []string{"a.example", "b.example"}, want: "a.example"},
		{listed: []string{"a.example", "b.example"}, wanted: "b.example", want: "b.example"},
		{listed: []string{"a.example", "b.example"}, wanted: "c.example", why: `issuerDomainName "c.example" is not one of those that the ACME server lists: a.example, b.example`},
		{why: "lists 0 issuer domain names"},
		{listed: slices.Repeat([]string{"a.example"}, 11), why: "lists 11 issuer domain names"},
		{listed: []string{"a.example", "a.example; policy=wildcard"}, why: "which is none"},
		{listed: []string{""}, why: "which is none"},
	} {
		got, err := Choose(c.listed, c.wanted)
		if got != c.want || (c.why == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%q of %v: %q, %v", c.wanted, c.listed, got, err)
		}
	}
}

func TestName(t *testing.T) {
	if got := Name("WWW.example.com"); got != "_validation-persist.www.example.com." {
		t.Error(got)
	}
}
