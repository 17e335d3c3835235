package dashboard

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
)

// crowded is a cluster with 10,000 Certificates, of which 31 fail for one cause, one for a second and one for a third.
// They are the last to expire.
func crowded() []client.Object {
	all := []client.Object{clusterIssuer("letsencrypt", cmmeta.ConditionTrue, "ACMEAccountRegistered", "good")}
	add := func(i int, why *cmmeta.Cause) {
		crt := certificate(fmt.Sprintf("team-%02d", i%40), fmt.Sprintf("service-%04d", i), "letsencrypt", 31+i%58)
		if why != nil {
			why.Subject = crt.Spec.DNSNames[0]
			crt = failed(crt, time.Duration(i%60+1)*time.Minute, why)
		}
		all = append(all, crt)
	}
	for i := range 9967 {
		add(i, nil)
	}
	for i := range 31 {
		add(9967+i, cause.New(cause.Class(fault.ClassSelfCheck), "", "", fmt.Sprintf("http://service-%04d.example.com/.well-known/acme-challenge/… answers 404", 9967+i)))
	}
	add(9998, cause.New(cause.Class(fault.ClassValidation), acme.CodeCAA.Type(), "", "CAA record for example.com prevents issuance"))
	add(9999, cause.New(cause.Class(fault.ClassCredential), "", "", "192.0.2.53:53 refuses the update of example.com.: BADSIG"))
	return all
}

// rowsOf are the texts of the rows of a page's table, without tags.
func rowsOf(text string) (rows []string) {
	for _, row := range regexp.MustCompile(`(?s)<tr class.*?</tr>`).FindAllString(text, -1) {
		row = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(row, " ")
		rows = append(rows, strings.Join(strings.Fields(html.UnescapeString(row)), " "))
	}
	return rows
}

// certificatesOf is how many Certificates the rows of a page stand for.
func certificatesOf(text string) (n int) {
	for _, row := range rowsOf(text) {
		many := 1
		if found := regexp.MustCompile(`^[A-Za-z ]*(\d+) Certificates`).FindStringSubmatch(row); found != nil {
			many, _ = strconv.Atoi(found[1])
		}
		n += many
	}
	return n
}

// TestCausesAtFirstSight: three causes among 10,000 Certificates are the first three rows, and the row for many leads
// to each of them.
func TestCausesAtFirstSight(t *testing.T) {
	t.Parallel()
	s := pages(t, crowded()...)
	_, text := get(t, s, "/")
	rows := rowsOf(text)
	for _, want := range []string{"CAA record for example.com prevents issuance", "refuses the update of example.com.: BADSIG", "31 Certificates", "answers 404"} {
		if strings.Count(strings.Join(rows[:3], "\n"), want) != 1 || strings.Contains(strings.Join(rows[3:], "\n"), want) {
			t.Errorf("%q is not in one of the first three rows alone: %q", want, rows[:5])
		}
	}
	to := regexp.MustCompile(`<a href="([^"]+)">31 Certificates`).FindStringSubmatch(text)
	if to == nil {
		t.Fatal("the row for 31 leads nowhere")
	}
	_, text = get(t, s, html.UnescapeString(to[1]))
	if rows := rowsOf(text); len(rows) != 31 || !strings.Contains(text, "31 of 10000 Certificates") || strings.Contains(rows[0], "31 Certificates") {
		t.Errorf("%s leads to %d rows: %q", to[1], len(rows), rows)
	}
}

// TestGroupsOfAList: what makes one row of several Certificates, and what the row says.
func TestGroupsOfAList(t *testing.T) {
	t.Parallel()
	selfcheck := func(host, said string) *cmmeta.Cause {
		return cause.New(cause.Class(fault.ClassSelfCheck), "", host, said)
	}
	in := func(namespace, name string, days int, said string) client.Object {
		return failed(certificate(namespace, name, "ca", days), time.Hour, selfcheck(name+".example.com", strings.ReplaceAll(said, "HOST", name+".example.com")))
	}
	by := func(issuer string, crt client.Object) client.Object {
		crt.(*certmanagerv1.Certificate).Spec.IssuerRef.Name = issuer
		return crt
	}
	elsewhere := failed(certificate("shop", "own", "ca", 9), time.Hour, selfcheck("own.example.com", "no route"))
	elsewhere.Spec.IssuerRef.Kind = cmmeta.DefaultIssuerKind
	for name, c := range map[string]struct {
		objects []client.Object
		search  string
		want    []string
	}{
		"one alone": {[]client.Object{in("shop", "a", 9, "HOST: no route")}, "", []string{"failing shop/a"}},
		"own names and times are no other words": {
			[]client.Object{in("shop", "a", 9, "HOST at 2026-01-02T03:04:05Z: no route, order 123456789"), in("bank", "b", 8, "HOST at 2026-01-03T03:04:05Z: no route, order 987654321")}, "",
			[]string{"failing 2 Certificates by ClusterIssuer/ca: SelfCheck For example: b.example.com: the self check does not see the answer: b.example.com at 2026-01-03T03:04:05Z: no route, order 987654321 What to do for bank/b: The CA has to"},
		},
		"other words of one kind are said": {
			[]client.Object{in("shop", "a", 9, "no route"), in("shop", "b", 8, "404"), in("shop", "c", 7, "no route"), in("shop", "d", 6, "301"), in("shop", "e", 5, "502"), in("shop", "f", 5, "503")}, "",
			[]string{"failing 6 Certificates by ClusterIssuer/ca: SelfCheck For example: c.example.com: the self check does not see the answer: no route 1 of them: e.example.com: the self check does not see the answer: 502 1 of them: f.example.com: the self check does not see the answer: 503 and 2 other messages"},
		},
		"another issuer": {[]client.Object{in("shop", "a", 9, "no route"), in("shop", "b", 8, "no route"), elsewhere}, "namespace:shop",
			[]string{"failing 2 Certificates", "failing shop/own"}},
		"the worst is told": {[]client.Object{in("shop", "a", 9, "no route"), in("shop", "b", -8, "no route")}, "issuer:ca", []string{"expired 2 Certificates by ClusterIssuer/ca: SelfCheck 1 expired, 1 failing"}},
		"a state":           {[]client.Object{in("shop", "a", 9, "no route"), in("shop", "b", -8, "no route")}, "state:failing", []string{"failing shop/a"}},
		"a name finds each": {[]client.Object{in("shop", "a", 9, "no route"), in("shop", "b", 8, "no route")}, "example.com", []string{"failing shop/b", "failing shop/a"}},
		"no certificate yet": {
			append(ordered(certificate("shop", "b", "ca", 0), "no"), authority("ca", 99),
				failed(certificate("shop", "a", "ca", 9), time.Hour, cause.New(cause.Class(fault.ClassCredential), "", "a", "no"))), "",
			[]string{"failing 2 Certificates … first in 8d … 1 without a certificate next try in 59m"},
		},
		"an issuer that no search finds": {[]client.Object{by("my ca", in("shop", "a", 9, "no route")), by("my ca", in("shop", "b", 8, "no route"))}, "", []string{"failing shop/b", "failing shop/a"}},
		"an issuer with a slash":         {[]client.Object{by("a/b", in("shop", "a", 9, "no route")), by("a/b", in("shop", "b", 8, "no route")), by("b", in("a", "c", 5, "no route"))}, "", []string{"failing a/c", "failing 2 Certificates"}},
		"an issuer in capitals":          {[]client.Object{in("shop", "a", 9, "no route"), in("shop", "b", 8, "no route")}, "state:FAILING", []string{"failing 2 Certificates"}},
		"nothing is wrong":               {[]client.Object{certificate("shop", "a", "ca", 80), certificate("shop", "b", "ca", 81)}, "", []string{"healthy shop/a", "healthy shop/b"}},
	} {
		s := pages(t, c.objects...)
		_, text := get(t, s, find(c.search))
		rows := rowsOf(strings.ReplaceAll(text, "<wbr>", ""))
		if len(rows) != len(c.want) {
			t.Errorf("%s: %q", name, rows)
			continue
		}
		for i, want := range c.want {
			begin, rest, _ := strings.Cut(want, " … ")
			if at := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(rest), " … ", ".*")); !strings.HasPrefix(rows[i], begin) || !at.MatchString(rows[i]) {
				t.Errorf("%s: %q, want %q", name, rows[i], want)
			}
		}
		for _, to := range regexp.MustCompile(`<a href="([^"]+)">(\d+) Certificates<`).FindAllStringSubmatch(text, -1) {
			if _, text := get(t, s, html.UnescapeString(to[1])); strconv.Itoa(len(rowsOf(text))) != to[2] {
				t.Errorf("%s: %s leads to %q", name, to[1], rowsOf(text))
			}
		}
	}
}
