package preflight_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/clientside/preflight"
)

// want holds a finding to an outcome and a part of its message.
func want(t *testing.T, f preflight.Finding, outcome preflight.Outcome, part string) {
	t.Helper()
	if f.Outcome != outcome || !strings.Contains(f.Message, part) {
		t.Errorf("%+v, want %s: …%s…", f, outcome, part)
	}
	if f.Outcome == preflight.Failed && f.WhatToDo == "" {
		t.Errorf("%+v does not say what to do", f)
	}
}

func issue(values ...string) (records []preflight.CAARecord) {
	for _, v := range values {
		tag, value, _ := strings.Cut(v, " ")
		records = append(records, preflight.CAARecord{Tag: tag, Value: value})
	}
	return records
}

func TestCAA(t *testing.T) {
	t.Parallel()
	const account = "https://ca.example/acct/1"
	ca := preflight.Authority{Identities: []string{"ca.example"}, Account: account}
	byDNS := preflight.Proof{Name: "www.example.com", Type: acmev1.ChallengeTypeDNS01}
	wild := preflight.Proof{Name: "example.com", Wildcard: true, Type: acmev1.ChallengeTypeDNS01}
	for name, c := range map[string]struct {
		proof   preflight.Proof
		records []preflight.CAARecord
		ca      preflight.Authority
		outcome preflight.Outcome
		part    string
	}{
		"none":                     {byDNS, nil, ca, preflight.OK, "every CA"},
		"the CA":                   {byDNS, issue("issue CA.example"), ca, preflight.OK, "CA.example"},
		"the tag's case":           {byDNS, issue("ISSUE ca.example"), ca, preflight.OK, "ca.example"},
		"another CA":               {byDNS, issue("issue other.example"), ca, preflight.Failed, "none of them"},
		"one of two":               {byDNS, issue("issue other.example", "issue ca.example"), ca, preflight.OK, "ca.example"},
		"no value of a parameter":  {byDNS, issue("issue ca.example; a"), ca, preflight.Failed, "none of them"},
		"a parameter too few":      {byDNS, issue("issue ca.example; a=b;"), ca, preflight.Failed, "none of them"},
		"an odd parameter":         {byDNS, issue("issue ca.example; a b=c"), ca, preflight.Failed, "none of them"},
		"no parameters":            {byDNS, issue("issue ca.example ; "), ca, preflight.OK, "ca.example"},
		"nobody":                   {byDNS, issue("issue ;"), ca, preflight.Failed, "none of them"},
		"only mail":                {byDNS, issue("issuemail ;", "iodef mailto:a@example.com"), ca, preflight.OK, "restrict nobody"},
		"issuewild is for wild":    {byDNS, issue("issuewild ;"), ca, preflight.OK, "restrict nobody"},
		"issuewild forbids":        {wild, issue("issue ca.example", "issuewild ;"), ca, preflight.Failed, "none of them"},
		"issuewild allows":         {wild, issue("issue ;", "issuewild ca.example"), ca, preflight.OK, "ca.example"},
		"issue is for wild, too":   {wild, issue("issue other.example"), ca, preflight.Failed, "none of them"},
		"an unknown critical one":  {byDNS, []preflight.CAARecord{{Flag: 128, Tag: "future"}, {Tag: "issue", Value: "ca.example"}}, ca, preflight.Failed, "future"},
		"an unknown one":           {byDNS, []preflight.CAARecord{{Tag: "future"}, {Tag: "issue", Value: "ca.example"}}, ca, preflight.OK, "ca.example"},
		"the account":              {byDNS, issue("issue ca.example; accounturi=" + account), ca, preflight.OK, account},
		"another account":          {byDNS, issue("issue ca.example; accounturi=https://ca.example/acct/2"), ca, preflight.Failed, "acct/2"},
		"two accounts exclude all": {byDNS, issue("issue ca.example; accounturi=" + account + "; accounturi=" + account), ca, preflight.Failed, "accounturi"},
		"no account yet":           {byDNS, issue("issue ca.example; accounturi=" + account), preflight.Authority{Identities: ca.Identities}, preflight.NotChecked, "no account yet"},
		"the method":               {byDNS, issue("issue ca.example ; validationmethods = http-01,dns-01"), ca, preflight.OK, "dns-01"},
		"another method":           {byDNS, issue("issue ca.example;validationmethods=http-01"), ca, preflight.Failed, "proves it by dns-01"},
		"a CA without a name":      {byDNS, issue("issue other.example"), preflight.Authority{}, preflight.NotChecked, "other.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want(t, preflight.CAA(c.proof, "example.com.", c.records, c.ca), c.outcome, c.part)
		})
	}
}

func TestDelegation(t *testing.T) {
	t.Parallel()
	sane := preflight.Delegation{Zone: "example.com.", Parent: "com.", AtParent: []string{"ns1."}, AtZone: []string{"ns1."}, Answered: 1}
	other, lame, silent, unserved, walled := sane, sane, sane, sane, sane
	other.AtParent = []string{"ns2."}
	lame.Lame = []string{"ns2. (REFUSED)"}
	silent.Silent = []string{"ns2. (no answer in time)"}
	unserved.Answered, unserved.Lame = 0, lame.Lame
	walled.Answered, walled.Silent = 0, silent.Silent
	want(t, sane.Judge(true), preflight.OK, "ns1.")
	want(t, other.Judge(true), preflight.Warning, "com. names the servers ns2., and the zone itself ns1.")
	want(t, lame.Judge(true), preflight.Failed, "REFUSED")
	want(t, lame.Judge(false), preflight.Warning, "REFUSED")
	want(t, silent.Judge(true), preflight.Warning, "no answer in time")
	want(t, unserved.Judge(false), preflight.Failed, "no name server serves")
	want(t, walled.Judge(true), preflight.NotChecked, "answers this machine")
}

func TestLimits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	issuer := &acmev1.ACMEIssuer{Server: "https://acme-v02.api.letsencrypt.org/directory"}
	l := preflight.Limits{Now: now, Registered: func(string) string { return "example.com" }}
	judge := func(l preflight.Limits, spec certmanagerv1.CertificateSpec) preflight.Finding {
		findings := l.Judge(&certmanagerv1.Certificate{Spec: spec}, issuer)
		i := slices.IndexFunc(findings, func(f preflight.Finding) bool { return f.Outcome != preflight.OK })
		return findings[max(i, 0)]
	}
	issued := func(n int, age time.Duration, name string) (all []preflight.Issued) {
		for i := range n {
			all = append(all, preflight.Issued{Names: []string{strings.ReplaceAll(name, "#", fmt.Sprint(i))}, At: now.Add(-age)})
		}
		return all
	}
	names := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("n%d.example.com", i))
		}
		return all
	}
	one := certmanagerv1.CertificateSpec{DNSNames: []string{"www.example.com"}}
	want(t, judge(l, one), preflight.OK, "1 of the 100")
	want(t, judge(l, certmanagerv1.CertificateSpec{DNSNames: names(101)}), preflight.Failed, "101 names")
	issuer.Profile = "tlsserver"
	want(t, judge(l, certmanagerv1.CertificateSpec{DNSNames: names(26)}), preflight.Failed, "takes 25")
	issuer.Profile = ""
	want(t, judge(l, certmanagerv1.CertificateSpec{IPAddresses: []string{"192.0.2.1"}}), preflight.Failed, "shortlived")
	long := one
	long.Duration = &metav1.Duration{Duration: 8760 * time.Hour}
	want(t, judge(l, long), preflight.Warning, "365d")
	for _, c := range []struct {
		key     certmanagerv1.CertificatePrivateKey
		outcome preflight.Outcome
	}{
		{certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm, Size: 384}, preflight.OK},
		{certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm, Size: 521}, preflight.Failed},
		{certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.Ed25519KeyAlgorithm}, preflight.Failed},
		{certmanagerv1.CertificatePrivateKey{Size: 8192}, preflight.Failed},
	} {
		spec := one
		spec.PrivateKey = &c.key
		want(t, judge(l, spec), c.outcome, "")
	}
	full := l
	full.Issued = issued(5, time.Hour, "WWW.example.com")
	want(t, judge(full, one), preflight.Failed, "at least 5 of 5")
	full.Issued = issued(4, time.Hour, "www.example.com")
	want(t, judge(full, one), preflight.Warning, "at least 4 of 5")
	full.Issued = issued(50, time.Hour, "n#.example.com")
	want(t, judge(full, one), preflight.Failed, "at least 50 certificates for example.com")
	full.Issued = issued(50, 7*24*time.Hour, "n#.example.com")
	want(t, judge(full, one), preflight.OK, "")
	full.Issued = issued(5, time.Hour, "www.example.com")
	issuer.Server = "https://acme-staging-v02.api.letsencrypt.org/directory"
	want(t, judge(full, one), preflight.OK, "")
	issuer.Server = "https://ca.example/directory"
	want(t, judge(full, one), preflight.NotChecked, "not known here")
}

func TestNames(t *testing.T) {
	t.Parallel()
	dns := []string{"www.example.com"}
	for _, c := range []struct {
		spec    certmanagerv1.CertificateSpec
		outcome preflight.Outcome
		part    string
	}{
		{certmanagerv1.CertificateSpec{DNSNames: dns, CommonName: "www.example.com"}, preflight.OK, ""},
		{certmanagerv1.CertificateSpec{IPAddresses: []string{"192.0.2.1"}, CommonName: "192.0.2.1"}, preflight.OK, ""},
		{certmanagerv1.CertificateSpec{CommonName: "x"}, preflight.Failed, "no dnsNames"},
		{certmanagerv1.CertificateSpec{DNSNames: dns, CommonName: "x"}, preflight.Failed, `"x" is in neither`},
		{certmanagerv1.CertificateSpec{DNSNames: []string{strings.Repeat("a", 64) + ".example.com"}}, preflight.Failed, "63"},
		{certmanagerv1.CertificateSpec{DNSNames: dns, IsCA: true, EmailAddresses: []string{"a@example.com"}}, preflight.Warning, "emailAddresses, isCA"},
	} {
		want(t, preflight.Names(&c.spec), c.outcome, c.part)
	}
}

func TestIssuerAndOrders(t *testing.T) {
	t.Parallel()
	issuer := &certmanagerv1.Issuer{}
	want(t, preflight.Issuer("Issuer a/b", issuer), preflight.Failed, "no status yet")
	certmanagerv1.SetIssuerCondition(issuer, certmanagerv1.IssuerCondition{
		Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionFalse, Reason: "No", Message: "because",
	}, time.Now())
	want(t, preflight.Issuer("Issuer a/b", issuer), preflight.Failed, "not ready (No): because")
	certmanagerv1.SetIssuerCondition(issuer, certmanagerv1.IssuerCondition{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}, time.Now())
	want(t, preflight.Issuer("Issuer a/b", issuer), preflight.OK, "")
	issuer.Annotations = map[string]string{certmanagerv1.PodCertificatesAnnotation: "example.com"}
	want(t, preflight.Issuer("Issuer a/b", issuer), preflight.Failed, "for Pods only")
	issuer.Annotations[certmanagerv1.PodCertificatesSharedAnnotation] = "true"
	want(t, preflight.Issuer("Issuer a/b", issuer), preflight.OK, "")
	issuer.Annotations = map[string]string{cmmeta.PausedAnnotation: ""}
	want(t, preflight.Issuer("Issuer a/b", issuer), preflight.Warning, "paused")

	order := acmev1.Order{Spec: acmev1.OrderSpec{IssuerRef: cmmeta.IssuerReference{Name: "b", Kind: "Issuer"}}}
	want(t, preflight.Orders([]acmev1.Order{order}, cmmeta.IssuerReference{Name: "b"}), preflight.OK, "")
	order.Status.FailureClass, order.Status.Reason = "RateLimited", "too many"
	want(t, preflight.Orders([]acmev1.Order{order}, cmmeta.IssuerReference{Name: "b"}), preflight.Warning, "too many")
	want(t, preflight.Orders([]acmev1.Order{order}, cmmeta.IssuerReference{Name: "other"}), preflight.OK, "")
	want(t, preflight.Orders([]acmev1.Order{order}, cmmeta.IssuerReference{Name: "b", Group: "example.com"}), preflight.OK, "")
	if f := preflight.Orders([]acmev1.Order{order}, cmmeta.IssuerReference{Name: "b"}); f.WhatToDo != preflight.Cure("RateLimited") {
		t.Errorf("a limit: %s", f.WhatToDo)
	}
}

// TestCures: what helps is what status says of the same cause, from the one table.
func TestCures(t *testing.T) {
	t.Parallel()
	issuer := &certmanagerv1.Issuer{Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}}
	said := []string{preflight.Issuer("Issuer a/b", issuer).WhatToDo}
	certmanagerv1.SetIssuerCondition(issuer, certmanagerv1.IssuerCondition{
		Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionFalse, Reason: certmanagerv1.IssuerReasonErrGetKeyPair, Message: "no",
	}, time.Now())
	said = append(said, preflight.Issuer("Issuer a/b", issuer).WhatToDo, preflight.Unproved("www.example.com", acmev1.ChallengeTypeHTTP01),
		preflight.Unproved("www.example.com", acmev1.ChallengeTypeTLSALPN01), preflight.Cure(cause.SecretShared))
	for i, want := range []string{
		"kubectl get pods -n cert-manager", "Put the CA's certificate (tls.crt) and the private key that belongs to it (tls.key) into the Secret",
		"Make http://www.example.com, port 80, lead to this cluster", "port 443", "another spec.secretName",
	} {
		if !strings.Contains(said[i], want) {
			t.Errorf("%q, want %q", said[i], want)
		}
	}
}

// TestProofs: an address needs HTTP-01 or TLS-ALPN-01, a wildcard DNS, and each of the two is told so.
func TestProofs(t *testing.T) {
	t.Parallel()
	crt := &certmanagerv1.Certificate{Spec: certmanagerv1.CertificateSpec{DNSNames: []string{"*.example.com"}, IPAddresses: []string{"192.0.2.1"}}}
	byHTTP := acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}}
	proofs, findings := preflight.Proofs(crt, &acmev1.ACMEIssuer{Solvers: []acmev1.ACMEChallengeSolver{byHTTP}})
	want(t, findings[0], preflight.Failed, "none of the issuer's solvers is of such a type")
	want(t, findings[1], preflight.OK, "HTTP-01 by solvers[0]")
	if proofs[0].Type != "" || proofs[0].Display() != "*.example.com" || !strings.Contains(findings[0].WhatToDo, "dns01") {
		t.Errorf("%+v %+v", proofs, findings)
	}
	_, findings = preflight.Proofs(crt, &acmev1.ACMEIssuer{Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{}}}})
	want(t, findings[0], preflight.OK, "DNS-01")
	if want(t, findings[1], preflight.Failed, ""); !strings.Contains(findings[1].WhatToDo, "http01") {
		t.Errorf("%+v", findings)
	}
	_, findings = preflight.Proofs(crt, &acmev1.ACMEIssuer{Server: "https://ca.example.com/dir"})
	want(t, findings[0], preflight.Warning, "only if the CA asks for no proof")
	_, findings = preflight.Proofs(crt, &acmev1.ACMEIssuer{Server: "https://acme-v02.api.letsencrypt.org/directory"})
	want(t, findings[0], preflight.Failed, "the issuer has no solvers")
	if got := preflight.Profile(crt, &acmev1.ACMEIssuer{Profile: "a"}); got != "a" {
		t.Error(got)
	}
	crt.Annotations = map[string]string{acmev1.ProfileAnnotation: "b"}
	if got := preflight.Profile(crt, &acmev1.ACMEIssuer{Profile: "a"}); got != "b" {
		t.Error(got)
	}
}
