package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func object(name, owner string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
	if owner != "" {
		m.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: new(true)}}
	}
	return m
}

// unready is a Certificate that is not ready, and is being issued or not.
func unready(reason string, issuing cmmeta.ConditionStatus) *certmanagerv1.Certificate {
	crt := &certmanagerv1.Certificate{ObjectMeta: object("web", "")}
	crt.Spec.SecretName, crt.Spec.IssuerRef = "web-tls", cmmeta.IssuerReference{Name: "acme", Kind: cmmeta.ClusterIssuerKind}
	crt.Status.Conditions = []certmanagerv1.CertificateCondition{
		{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionFalse, Reason: reason, Message: "not yet"},
		{Type: certmanagerv1.CertificateConditionIssuing, Status: issuing, Reason: "IssuanceBudgetExceeded", Message: "too often"},
	}
	return crt
}

func request(conditions ...certmanagerv1.CertificateRequestCondition) *certmanagerv1.CertificateRequest {
	cr := &certmanagerv1.CertificateRequest{ObjectMeta: object("web-1", "web")}
	cr.Spec.IssuerRef = cmmeta.IssuerReference{Name: "acme", Kind: cmmeta.ClusterIssuerKind}
	cr.Status.Conditions = conditions
	return cr
}

func pending(message string) certmanagerv1.CertificateRequestCondition {
	return certmanagerv1.CertificateRequestCondition{
		Type: certmanagerv1.CertificateRequestConditionReady, Status: cmmeta.ConditionFalse, Reason: "Pending", Message: message,
	}
}

func issuer(ready cmmeta.ConditionStatus, reason string) *certmanagerv1.ClusterIssuer {
	i := &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "acme"}}
	i.Spec.ACME = &acmev1.ACMEIssuer{}
	i.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: ready, Reason: reason, Message: "no account; retrying with back-off"}}
	return i
}

// said is a part of each text of a Trouble.
type said struct{ Class, Cause, NextTry, WhatToDo string }

// TestTrouble: what no real controller is needed for.
func TestTrouble(t *testing.T) {
	t.Parallel()
	approved := certmanagerv1.CertificateRequestCondition{Type: certmanagerv1.CertificateRequestConditionApproved, Status: cmmeta.ConditionTrue}
	twin := unready(certmanagerv1.CertificateReasonIncorrectCertificate, cmmeta.ConditionFalse)
	twin.Name, twin.UID = "twin", "twin"
	told := unready("DoesNotExist", cmmeta.ConditionTrue) // before the issuer had another error
	told.Status.Cause = &cmmeta.Cause{Class: "IssuerNotReady", Subject: "ClusterIssuer acme", Message: "an error that was corrected"}
	paused := unready("DoesNotExist", cmmeta.ConditionTrue)
	paused.Annotations = map[string]string{cmmeta.PausedAnnotation: ""}
	fresh, old := &certmanagerv1.Certificate{ObjectMeta: object("web", "")}, &certmanagerv1.Certificate{ObjectMeta: object("web", "")}
	fresh.CreationTimestamp = metav1.NewTime(now)
	ready := unready("Ready", "")
	ready.Status.Conditions = ready.Status.Conditions[:1]
	ready.Status.Conditions[0].Status = cmmeta.ConditionTrue
	foreign := request(approved)
	foreign.Spec.IssuerRef = cmmeta.IssuerReference{Name: "root", Kind: "AWSPCAIssuer", Group: "awspca.cert-manager.io"}
	order := &acmev1.Order{ObjectMeta: object("web-1-1", "web-1")}
	order.Spec.DNSNames = []string{"*.example.com"}
	order.Status = acmev1.OrderStatus{State: acmev1.Errored, FailureClass: "Permanent", Reason: "Failed to create Order: no", ProblemType: acme.CodeRejectedIdentifier.Type()}
	words := order.DeepCopy()
	words.Status.Reason, words.Status.ProblemType = "Failed to create Order: 400 "+acme.CodeRejectedIdentifier.Type(), ""
	stopped := order.DeepCopy()
	stopped.Status = acmev1.OrderStatus{State: acmev1.Pending, FailureClass: "Paused", ProblemType: acme.CodeRateLimited.Type(), Reason: "Failed to create Order: 429 " +
		acme.CodeRateLimited.Type() + ": Please visit: https://portal.example/sfe/v1/unpause?jwt=a.b.c; retrying at 2026-01-02T04:00:00Z", ReasonEnd: "retrying at 2026-01-02T04:00:00Z"}
	stopped.Status.Cause = &cmmeta.Cause{Class: "Paused", ProblemType: stopped.Status.ProblemType, Message: stopped.Status.Reason, NextTry: &metav1.Time{Time: now.Add(time.Hour)}}
	unsolved := order.DeepCopy()
	unsolved.Status = acmev1.OrderStatus{State: acmev1.Pending, FailureClass: "Configuration", Cause: &cmmeta.Cause{Class: "NoSolver", Subject: "*.example.com", Message: "none"}}
	failed := request(approved, certmanagerv1.CertificateRequestCondition{
		Type: certmanagerv1.CertificateRequestConditionReady, Status: cmmeta.ConditionFalse, Reason: "Failed", Message: "failed",
	})
	over := unready("DoesNotExist", cmmeta.ConditionFalse)
	over.Status.LastFailureTime, over.Status.NextTry = &metav1.Time{Time: now.Add(-10 * time.Minute)}, &metav1.Time{Time: now.Add(50 * time.Minute)}

	for name, c := range map[string]struct {
		crt    *certmanagerv1.Certificate
		others []metav1.Object
		unread bool
		want   said
	}{
		"ready":       {crt: ready, others: []metav1.Object{issuer(cmmeta.ConditionTrue, "")}},
		"just made":   {crt: fresh},
		"not seen":    {crt: old, want: said{"NoController", "no controller has looked", "a controller runs", "kubectl get pods"}},
		"paused":      {crt: paused, want: said{"PausedByAnnotation", "paused by the annotation", "removed", "kubectl annotate certificate -n shop web chancery.dev/paused-"}},
		"one Secret":  {crt: unready(certmanagerv1.CertificateReasonIncorrectCertificate, cmmeta.ConditionFalse), others: []metav1.Object{twin}, want: said{"SecretShared", "not yet", "alone", "twin"}},
		"budget":      {crt: unready("DoesNotExist", cmmeta.ConditionFalse), others: []metav1.Object{issuer(cmmeta.ConditionTrue, "")}, want: said{"Other", "too often", "changed", "Correct what the cause names"}},
		"under way":   {crt: unready("DoesNotExist", cmmeta.ConditionTrue), others: []metav1.Object{issuer(cmmeta.ConditionTrue, ""), request(approved)}},
		"unapproved":  {crt: unready("DoesNotExist", cmmeta.ConditionTrue), others: []metav1.Object{issuer(cmmeta.ConditionTrue, ""), request()}, want: said{"NotApproved", "nobody has approved or denied", "approved", "kubectl chancery approve -n shop web-1"}},
		"silent":      {crt: unready("DoesNotExist", cmmeta.ConditionTrue), others: []metav1.Object{foreign}, want: said{"NoController", `of the group "awspca.cert-manager.io"`, "a controller runs", "is installed and runs"}},
		"other words": {crt: told, others: []metav1.Object{issuer(cmmeta.ConditionFalse, certmanagerv1.IssuerReasonErrRegisterACMEAccount), request(approved)}, want: said{"IssuerNotReady", "ClusterIssuer acme is not ready: no account", "as soon as the issuer is ready", "Check spec.acme of ClusterIssuer acme"}},
		"no account":  {crt: unready("DoesNotExist", cmmeta.ConditionTrue), others: []metav1.Object{issuer(cmmeta.ConditionFalse, certmanagerv1.IssuerReasonErrRegisterACMEAccount), request(approved)}, want: said{"IssuerNotReady", "ClusterIssuer acme is not ready: no account", "as soon as the issuer is ready", "Check spec.acme of ClusterIssuer acme"}},
		"unread":      {crt: unready("DoesNotExist", cmmeta.ConditionTrue), others: []metav1.Object{request(approved, pending("Referenced ClusterIssuer does not exist"))}, unread: true, want: said{"Other", "Referenced ClusterIssuer does not exist", "has changed", "may not read"}},
		"no request":  {crt: unready("DoesNotExist", cmmeta.ConditionTrue), want: said{"IssuerMissing", "ClusterIssuer acme does not exist", "exists", "Create the issuer"}},
		"refused":     {crt: over, others: []metav1.Object{issuer(cmmeta.ConditionTrue, ""), failed, order}, want: said{"rejectedIdentifier", "no", "2026-01-02T03:54:05Z (in 50m), or at once", "take the name out"}},
		"only words":  {crt: over, others: []metav1.Object{issuer(cmmeta.ConditionTrue, ""), failed, words}, want: said{"Permanent", "rejectedIdentifier", "2026-01-02T03:54:05Z (in 50m), or at once", "would be refused again"}},
		"by the CA":   {crt: unready("DoesNotExist", cmmeta.ConditionTrue), others: []metav1.Object{issuer(cmmeta.ConditionTrue, ""), request(approved), stopped}, want: said{"Paused", "Please visit: https://portal.example/sfe/v1/unpause?jwt=a.b.c", "(in 60m)", "lift the pause there"}},
		"no solver":   {crt: unready("DoesNotExist", cmmeta.ConditionTrue), others: []metav1.Object{issuer(cmmeta.ConditionTrue, ""), request(approved), unsolved}, want: said{"NoSolver", "no solver of the issuer is for it", "as soon as the issuer has changed", "Add a solver"}},
		"issued once": {crt: unready("DoesNotExist", cmmeta.ConditionTrue), others: []metav1.Object{issuer(cmmeta.ConditionTrue, ""), failed, order}},
	} {
		got := NewCluster(append(c.others, c.crt), map[string]bool{cmmeta.ClusterIssuerKind: c.unread}, now).Certificate(c.crt).Trouble
		for _, pair := range [][2]string{{got.Class, c.want.Class}, {got.Cause, c.want.Cause}, {got.NextTry, c.want.NextTry}, {got.WhatToDo, c.want.WhatToDo}} {
			if (pair[0] == "") != (pair[1] == "") || !strings.Contains(pair[0], pair[1]) {
				t.Errorf("%s: %+v\nwant %+v", name, got, c.want)
				break
			}
		}
	}
}

// TestRequest: a CertificateRequest of no Certificate has a cause of its own.
func TestRequest(t *testing.T) {
	t.Parallel()
	cr := request()
	got := NewCluster([]metav1.Object{cr, issuer(cmmeta.ConditionTrue, "")}, nil, now).Request(cr)
	if got.Kind != "CertificateRequest" || got.Issuer.State != "ready" || got.Class != "NotApproved" || !strings.HasPrefix(got.StateAndCause(now), "new: nobody has approved or denied the request: CertificateRequest web-1") {
		t.Errorf("%s: %+v", got.StateAndCause(now), got)
	}
}

// TestSigningRequest: a CertificateSigningRequest that waits, one that has failed, and one that an Order is for.
func TestSigningRequest(t *testing.T) {
	t.Parallel()
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "agent"}}
	csr.Spec.SignerName = "issuers.cert-manager.io/shop.acme"
	mine := &certmanagerv1.Issuer{ObjectMeta: object("acme", ""), Status: issuer(cmmeta.ConditionTrue, "").Status}
	explain := func(objects ...metav1.Object) Report { return NewCluster(objects, nil, now).SigningRequest(csr) }
	if got := explain(); got.Cause != "Issuer shop/acme does not exist" || got.Issuer.State != "does not exist" {
		t.Errorf("without issuer: %+v", got)
	}
	if got := explain(mine); got.WhatToDo != "kubectl certificate approve agent" {
		t.Errorf("not approved: %+v", got)
	}
	order := &acmev1.Order{ObjectMeta: object("agent-1", "agent")}
	order.Status = acmev1.OrderStatus{State: acmev1.Pending, FailureClass: "RateLimited", Reason: "slow down; retrying at 2026-01-02T04:00:00Z", ReasonEnd: "retrying at 2026-01-02T04:00:00Z"}
	order.Status.Cause = &cmmeta.Cause{Class: "RateLimited", Message: "slow down", NextTry: &metav1.Time{Time: now.Add(time.Hour)}}
	if got := explain(mine, order); got.Cause != "the other side wants fewer requests: slow down" || !strings.HasSuffix(got.NextTry, "(in 60m)") || got.Children[0].Name != "agent-1" {
		t.Errorf("by an Order: %+v", got)
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateFailed, Reason: "R", Message: "m"}}
	if got := explain(mine); got.Cause != "failed: R: m" || !strings.HasPrefix(got.NextTry, "never") {
		t.Errorf("failed: %+v", got)
	}
}

// TestNamesInOrder: the words do not change with the order in which the Certificates were read.
func TestNamesInOrder(t *testing.T) {
	t.Parallel()
	named := func(name string) *certmanagerv1.Certificate {
		crt := &certmanagerv1.Certificate{}
		crt.Name = name
		return crt
	}
	if got := names([]*certmanagerv1.Certificate{named("web"), named("api")}); got != "api, web" {
		t.Error(got)
	}
	var many []*certmanagerv1.Certificate
	for i := range 100 {
		many = append(many, named(fmt.Sprintf("web-%02d", i)))
	}
	if got := names(many); !strings.HasSuffix(got, "web-08, web-09 and 90 others") {
		t.Error(got)
	}
}
