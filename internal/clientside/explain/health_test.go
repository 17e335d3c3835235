package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
)

func in(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }

// good is a Certificate that is ready, by a CA issuer.
func good(name string, ends time.Duration, hosts ...string) *certmanagerv1.Certificate {
	crt := &certmanagerv1.Certificate{ObjectMeta: object(name, "")}
	crt.Spec.SecretName, crt.Spec.DNSNames, crt.Spec.IssuerRef = name, hosts, cmmeta.IssuerReference{Name: "ca"}
	crt.Status.NotBefore, crt.Status.NotAfter, crt.Status.RenewalTime = in(-time.Hour), in(ends), in(ends/2)
	crt.Status.Conditions = []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue}}
	return crt
}

// authority is a CA issuer whose CA ends.
func authority(ends time.Duration) *certmanagerv1.Issuer {
	i := &certmanagerv1.Issuer{ObjectMeta: object("ca", "")}
	i.UID = "issuer"
	i.Spec.CA = &certmanagerv1.CAIssuer{SecretName: "ca"}
	i.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}}
	i.Status.CA = &certmanagerv1.CAIssuerStatus{NotBefore: in(-time.Hour), NotAfter: in(ends)}
	return i
}

// TestHealth: each Certificate has one health, which its status and its issuer's are enough for.
func TestHealth(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	failed := func(ends, next time.Duration) *certmanagerv1.Certificate {
		crt := good("web", ends)
		crt.Status.Cause, crt.Status.NextTry = cause.New(cause.Class(fault.ClassRateLimited), "", "", "not before Monday"), in(next)
		crt.Status.LastFailureTime = in(-time.Minute)
		crt.Status.Conditions = append(crt.Status.Conditions, certmanagerv1.CertificateCondition{
			Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionFalse, Reason: "Failed", Message: "not before Monday",
		})
		return crt
	}
	windows := good("web", day)
	windows.Status.Cause = cause.New(cause.RenewalWindows, "", "", "no window opens in time")
	shortened := good("web", day)
	shortened.Spec.Duration = &metav1.Duration{Duration: 90 * day}
	for name, c := range map[string]struct {
		crt  *certmanagerv1.Certificate
		ca   time.Duration
		want Health
	}{
		"all is good":                      {good("web", day), 2 * day, Healthy},
		"expired":                          {good("web", -time.Second), 2 * day, Expired},
		"expired this second":              {good("web", 0), 2 * day, Expired},
		"its CA has expired":               {good("web", day), -time.Second, Expired},
		"its CA expires first":             {good("web", 2*day), day, Late},
		"shortened to the end of its CA":   {shortened, day, Late},
		"no window opens in time":          {windows, 2 * day, Late},
		"tried again before it expires":    {failed(day, time.Hour), 2 * day, Failing},
		"tried again as it expires":        {failed(day, day), 2 * day, Late},
		"failed, and the CA has expired":   {failed(day, time.Hour), -time.Hour, Expired},
		"no certificate, and nothing else": {unready("DoesNotExist", cmmeta.ConditionTrue), 2 * day, Issuing},
	} {
		known := unready("", "").Spec.IssuerRef
		acme := issuer(cmmeta.ConditionTrue, "")
		acme.Name = known.Name
		w := NewCluster([]metav1.Object{c.crt, authority(c.ca), acme}, nil, now)
		if got, reported := w.Health(c.crt), w.Certificate(c.crt); got != c.want || reported.Health != c.want {
			t.Errorf("%s: %s, and %s in the report: %+v", name, got, reported.Health, reported.Trouble)
		}
	}
}

// TestNeglected: a certificate that has expired says why nobody has renewed it, unless a controller may be at work.
func TestNeglected(t *testing.T) {
	t.Parallel()
	const nobody, disabled = "no controller has looked at it since", "spec.renewal.policy is Disabled"
	issuing := func(crt *certmanagerv1.Certificate) {
		crt.Status.Conditions = append(crt.Status.Conditions, certmanagerv1.CertificateCondition{
			Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "Renewing", Message: "renewing",
		})
	}
	pause := func(crt *certmanagerv1.Certificate) { crt.Annotations = map[string]string{cmmeta.PausedAnnotation: ""} }
	off := func(crt *certmanagerv1.Certificate) {
		crt.Spec.Renewal = &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyDisabled}
	}
	for name, c := range map[string]struct {
		ago  time.Duration
		with []func(*certmanagerv1.Certificate)
		want string
	}{
		"a second ago":            {time.Second, nil, ""},
		"an hour ago":             {time.Hour, nil, nobody},
		"amid a renewal":          {time.Hour, []func(*certmanagerv1.Certificate){issuing}, nobody},
		"after a change":          {time.Hour, []func(*certmanagerv1.Certificate){func(crt *certmanagerv1.Certificate) { crt.Generation = 2 }}, nobody},
		"paused":                  {time.Hour, []func(*certmanagerv1.Certificate){pause}, "paused by the annotation"},
		"paused amid a renewal":   {time.Hour, []func(*certmanagerv1.Certificate){pause, issuing}, "paused by the annotation"},
		"not to be renewed":       {time.Hour, []func(*certmanagerv1.Certificate){off}, disabled},
		"not to be renewed, seen": {time.Hour, []func(*certmanagerv1.Certificate){off, func(crt *certmanagerv1.Certificate) { crt.Status.Conditions[0].Status = cmmeta.ConditionFalse }}, disabled},
		"being deleted":           {time.Hour, []func(*certmanagerv1.Certificate){func(crt *certmanagerv1.Certificate) { crt.DeletionTimestamp = in(-time.Minute) }}, ""},
		"a known failure": {time.Hour, []func(*certmanagerv1.Certificate){func(crt *certmanagerv1.Certificate) {
			crt.Status.Cause = cause.New(cause.Class(fault.ClassCredential), "", "", "wrong password")
		}}, "wrong password"},
	} {
		crt := good("web", -c.ago)
		for _, change := range c.with {
			change(crt)
		}
		report := NewCluster([]metav1.Object{crt, authority(time.Hour)}, nil, now).Certificate(crt)
		if !strings.Contains(report.Cause, c.want) || c.want == "" && report.Cause != "" || report.Health != Expired {
			t.Errorf("%s: %s %q, want %q", name, report.Health, report.Cause, c.want)
		}
	}
}

// TestLateAdvice: nobody is told to wait for a try that comes after the expiry.
func TestLateAdvice(t *testing.T) {
	t.Parallel()
	for class, want := range map[fault.Class]string{fault.ClassRateLimited: "Another issuer can help sooner", fault.ClassCredential: "Correct the credential"} {
		for next, late := range map[time.Duration]bool{time.Hour: false, 3 * time.Hour: true} {
			crt := good("web", 2*time.Hour)
			crt.Status.Cause, crt.Status.NextTry = cause.New(cause.Class(class), "", "", "no"), in(next)
			got := NewCluster([]metav1.Object{crt, authority(9 * time.Hour)}, nil, now).Certificate(crt).WhatToDo
			if strings.HasPrefix(got, "Do not wait: the certificate expires before the next try. ") != late || !strings.Contains(got, want) || late && strings.Contains(got, " Wait") {
				t.Errorf("%s, next try in %s: %q", class, next, got)
			}
		}
	}
}

// TestSearch: a host finds the wildcard that covers it, and each word has to fit.
func TestSearch(t *testing.T) {
	t.Parallel()
	all := []metav1.Object{
		good("web", time.Hour, "www.example.com", "example.com"), good("all", 2*time.Hour, "*.example.com"), good("mail", -time.Hour, "mail.example.org"),
	}
	other := good("other", time.Hour, "a.b.example.com")
	other.Namespace, other.UID, other.Status.Conditions = "bank", types.UID("other"), nil
	w := NewCluster(append(all, other, authority(9*time.Hour)), nil, now)
	var reports []Report
	for _, o := range append(all, other) {
		reports = append(reports, w.Certificate(o.(*certmanagerv1.Certificate)))
	}
	for text, want := range map[string]string{
		"":                         "mail other web all",
		"state:failing":            "other",
		"WWW.example.com":          "web all",
		"example.com":              "other web all",
		"x.example.com":            "all",
		"b.example.com":            "other all",
		"*.example.com":            "all",
		"com":                      "other web all",
		"shop/":                    "mail web all",
		"issuer/ca":                "mail other web all",
		"issuer:Issuer/CA":         "mail other web all",
		"issuer:c":                 "",
		"state:expired":            "mail",
		"state:healthy namespace:": "",
		"namespace:shop x.":        "",
		"namespace:shop mail":      "mail",
		"ready all":                "all",
		"nocontroller":             "mail other", // the class of their trouble
		"cause:nocontroller other": "other",
		"cause:nocontrol":          "",
	} {
		var got []string
		for _, row := range WorstFirst(NewSearch(text).Find(reports), now) {
			got = append(got, row.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q finds %q, not %q", text, strings.Join(got, " "), want)
		}
	}
	if counts := Count(reports); counts[Healthy] != 2 || counts[Expired] != 1 || counts[Failing] != 1 {
		t.Error(counts)
	}
}
