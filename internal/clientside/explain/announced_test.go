package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/clientside/explain"
)

// TestAnnounced: what the CA of the issuer has announced is in the lines of a Certificate from 90 days before the date
// on, with what to change. Of a CA that is not listed, there is nothing.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	date := time.Date(2027, time.February, 10, 0, 0, 0, 0, time.UTC)
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: certmanagerv1.CertificateSpec{
		Duration: &metav1.Duration{Duration: 90 * 24 * time.Hour}, IssuerRef: cmmeta.IssuerReference{Name: "acme"},
	}, Status: certmanagerv1.CertificateStatus{Conditions: []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue}}}}
	for _, c := range []struct {
		server  string
		at      time.Time
		clients bool
		cause   *cmmeta.Cause
		want    string
	}{
		{"https://acme-v02.api.letsencrypt.org/directory", date.AddDate(0, 0, -91), false, nil, "[]"},
		{
			"https://acme-v02.api.letsencrypt.org/directory", date.AddDate(0, 0, -90), false, nil,
			"[{announced a certificate of Let's Encrypt lasts 64d at most from 2027-02-10 on: spec.duration is 90d} {what to do Remove spec.duration}]",
		},
		{
			"https://acme-v02.api.letsencrypt.org/directory", date, false, nil,
			"[{announced a certificate of Let's Encrypt lasts 64d at most since 2027-02-10: spec.duration is 90d} {what to do Remove spec.duration}]",
		},
		{
			"https://acme-v02.api.letsencrypt.org/directory", date.AddDate(0, 0, -91), true, nil,
			`[{announced Let's Encrypt leaves client auth out of certificates since 2026-02-11} {what to do Remove "client auth" from spec.usages. For clients, take an issuer of your own CA}]`,
		},
		{
			"https://acme-v02.api.letsencrypt.org/directory", date.AddDate(0, 0, -91), true, cause.OfUsages([]string{"client auth"}, nil),
			`[{announced Let's Encrypt leaves client auth out of certificates since 2026-02-11} {what to do Remove "client auth" from spec.usages. For clients, take an issuer of your own CA}]`,
		},
		{"https://ca.internal/acme/acme/directory", date, true, nil, "[]"},
	} {
		issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "acme"}}
		issuer.Spec.ACME = &acmev1.ACMEIssuer{Server: c.server, EnableDurationFeature: true}
		crt := crt.DeepCopy()
		if crt.Status.Cause = c.cause; c.clients {
			crt.Spec.Usages = []certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth}
		}
		w := explain.NewCluster([]metav1.Object{crt, issuer}, nil, c.at)
		r := w.Certificate(crt)
		r.Announced = w.Announced(crt, true)
		lines := r.Advice(c.at)
		for i, l := range lines {
			if l.Label == "announced" {
				lines = lines[i:]
				break
			}
		}
		if got := fmt.Sprint(lines); !strings.HasSuffix(got, c.want) && (len(r.Announced) > 0 || c.want != "[]") {
			t.Errorf("%s at %s: %s", c.server, c.at.Format(time.DateOnly), got)
		}
	}
	if got := explain.NewCluster([]metav1.Object{crt}, nil, date).Announced(crt, true); got != nil {
		t.Errorf("without the issuer: %+v", got)
	}
}

// TestUsageLeftOutComesLast: a CA above the certificate that expires before the certificate is worse than a usage that
// was left out.
func TestUsageLeftOutComesLast(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(days int) *metav1.Time { return &metav1.Time{Time: now.AddDate(0, 0, days)} }
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	crt.Spec.IssuerRef.Name = "ca"
	crt.Status = certmanagerv1.CertificateStatus{
		Conditions: []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue}},
		NotBefore:  at(-1), NotAfter: at(89), Cause: cause.OfUsages([]string{"client auth"}, nil),
	}
	issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ca"}}
	issuer.Spec.CA = &certmanagerv1.CAIssuer{SecretName: "ca"}
	for days, want := range map[int]struct {
		health explain.Health
		says   string
	}{900: {explain.Failing, "client auth"}, 30: {explain.Late, "the CA certificate of Issuer shop/ca"}} {
		issuer.Status.CA = &certmanagerv1.CAIssuerStatus{NotBefore: at(-900), NotAfter: at(days)}
		r := explain.NewCluster([]metav1.Object{crt, issuer}, nil, now).Certificate(crt)
		if r.Health != want.health || !strings.Contains(r.Cause, want.says) || r.WhatToDo == "" || r.Outcome != explain.Issued.String() {
			t.Errorf("a CA for %d days: %+v", days, r)
		}
		if days == 900 && r.NextTry != "with the renewal" {
			t.Errorf("next try %q", r.NextTry)
		}
	}
}
