package explain

import (
	"fmt"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/printable"
)

// unseen is how long a controller may take to look at a new Certificate before that is worth a word.
const unseen = 30 * time.Second

// troubleOf says what is in the way of a Certificate.
func (w *World) troubleOf(crt *certmanagerv1.Certificate) Trouble {
	ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
	issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
	underWay := issuing != nil && issuing.Status == cmmeta.ConditionTrue
	upToDate := ready != nil && ready.Status == cmmeta.ConditionTrue && ready.ObservedGeneration == crt.Generation
	claims := w.claims(crt)
	switch {
	case ready == nil && issuing == nil && w.now.Sub(crt.CreationTimestamp.Time) < unseen:
		return Trouble{}
	case ready == nil && issuing == nil:
		return Trouble{
			Class: "no controller", Cause: "no controller has looked at the Certificate yet", NextTry: "as soon as a controller runs",
			WhatToDo: "See whether the controller runs, and what it logs: kubectl get pods -n cert-manager",
		}
	case upToDate && issuing == nil:
		return w.ofAuthority(crt)
	case ready != nil && ready.Reason == certmanagerv1.CertificateReasonIncorrectCertificate && len(claims) > 1:
		return Trouble{
			Class: "Secret shared", Cause: ready.Message, NextTry: "as soon as the Secret belongs to this Certificate alone",
			WhatToDo: "Give one of the Certificates another spec.secretName: " + names(claims),
		}
	}
	if _, paused := crt.Annotations[cmmeta.PausedAnnotation]; paused {
		return Trouble{
			Class: "paused", Cause: "the Certificate is paused by the annotation " + cmmeta.PausedAnnotation, NextTry: "as soon as the annotation is removed",
			WhatToDo: fmt.Sprintf("kubectl annotate certificate -n %s %s %s-", crt.Namespace, crt.Name, cmmeta.PausedAnnotation),
		}
	}
	t := w.ofLatest(crt, underWay)
	if t.Cause == "" && issuing != nil && (!underWay || crt.Status.LastFailureTime != nil) {
		t.Cause = issuing.Message
	}
	if !underWay && t.Cause != "" {
		t.NextTry = w.again(crt, t.NextTry)
	}
	if t.Cause != "" && t.WhatToDo == "" {
		t.WhatToDo = cureOfCertificate(issuing)
	}
	t.Cause = printable.Line(t.Cause)
	return t
}

// ofLatest says what is in the way of the request under way, or of the last one that failed.
func (w *World) ofLatest(crt *certmanagerv1.Certificate, underWay bool) Trouble {
	issuer, missing := w.issuer(crt.Spec.IssuerRef, crt.Namespace)
	request := w.requestOf(crt)
	stale := request != nil && underWay && Describe(request).Outcome != Waiting
	if request != nil && !stale {
		return w.ofRequest(request)
	}
	if missing || notReady(issuer) != nil {
		return ofIssuer(w.issuerNode(crt.Spec.IssuerRef, crt.Namespace), issuer)
	}
	return Trouble{}
}

// again is when a failed issuance is tried again by itself.
func (w *World) again(crt *certmanagerv1.Certificate, otherwise string) string {
	next := certificate.NextTry(crt, w.requests(crt), certificate.DefaultBackoff(), w.now)
	switch {
	case !next.IsZero():
		return next.UTC().Format(time.RFC3339) + ", or at once after a change of the Certificate or the issuer"
	case otherwise != "":
		return otherwise
	default:
		return "now"
	}
}

// claims are the Certificates that name the same Secret.
func (w *World) claims(crt *certmanagerv1.Certificate) []*certmanagerv1.Certificate {
	return w.secrets[secretOf(crt)]
}

// ofRequest says what is in the way of a CertificateRequest.
func (w *World) ofRequest(cr *certmanagerv1.CertificateRequest) Trouble {
	find := func(t certmanagerv1.CertificateRequestConditionType) *certmanagerv1.CertificateRequestCondition {
		return certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, t)
	}
	ready, denied := find(certmanagerv1.CertificateRequestConditionReady), find(certmanagerv1.CertificateRequestConditionDenied)
	issuer, missing := w.issuer(cr.Spec.IssuerRef, cr.Namespace)
	order := w.orderOf(cr)
	d := Describe(cr)
	name := Name("CertificateRequest", cr.Namespace, cr.Name)
	switch {
	case d.Outcome == Issued:
		return Trouble{}
	case denied != nil:
		return Trouble{
			Class:    "denied",
			Cause:    fmt.Sprintf("%s was denied (%s): %s", name, denied.Reason, denied.Message),
			WhatToDo: "Ask the approver who denied it, or have the Certificate ask for what the approver allows",
		}
	case d.Outcome == Failed && order != nil && order.Status.State.IsFailure():
		return w.ofOrder(order, issuer)
	case d.Outcome == Failed:
		why := failure{cause: d.Reason, request: cr, issuer: issuer}
		if class := find(certmanagerv1.CertificateRequestConditionFailureClass); class != nil {
			why.class = fault.Class(class.Reason)
		}
		return Trouble{Class: why.kind(), Cause: d.Reason, WhatToDo: why.cure()}
	case missing || notReady(issuer) != nil:
		return ofIssuer(w.issuerNode(cr.Spec.IssuerRef, cr.Namespace), issuer)
	case order != nil:
		return w.ofOrder(order, issuer)
	case find(certmanagerv1.CertificateRequestConditionApproved) == nil && ready == nil:
		return w.unapproved(cr, name)
	case ready != nil && ready.Message != "":
		return Trouble{Cause: ready.Message, NextTry: "as soon as that has changed", WhatToDo: (&failure{issuer: issuer, request: cr}).cure()}
	default:
		return Trouble{}
	}
}

// unapproved is a request that nobody has approved or denied.
func (w *World) unapproved(cr *certmanagerv1.CertificateRequest, name string) Trouble {
	if w.now.Sub(cr.CreationTimestamp.Time) < unseen/3 {
		return Trouble{}
	}
	return Trouble{
		Class: "not approved", Cause: name + " is neither approved nor denied", NextTry: "as soon as it is approved",
		WhatToDo: fmt.Sprintf("Approve it, if you may: kubectl chancery approve -n %s %s", cr.Namespace, cr.Name),
	}
}

// orderOf is the Order of a request; nil if there is none.
func (w *World) orderOf(cr *certmanagerv1.CertificateRequest) *acmev1.Order {
	for _, child := range w.below(cr) {
		if order, is := child.(*acmev1.Order); is {
			return order
		}
	}
	return nil
}

// ofOrder says what is in the way of an Order: what one of its Challenges waits for or has failed with, or else what
// the Order says itself.
func (w *World) ofOrder(order *acmev1.Order, issuer certmanagerv1.GenericIssuer) Trouble {
	var challenges, ended []*acmev1.Challenge
	for _, child := range w.below(order) {
		if c, is := child.(*acmev1.Challenge); is {
			challenges = append(challenges, c)
			if c.Status.State.IsFailure() {
				ended = append(ended, c)
			}
		}
	}
	why := failure{cause: order.Status.Reason, class: fault.Class(order.Status.FailureClass), problem: acmeflow.OrderProblem(order.Status), order: order, issuer: issuer}
	if order.Status.State.IsFailure() {
		why.class = acmeflow.OrderClass(order.Status)
		if len(ended) > 0 {
			why.challenge = ended[0]
		}
	} else if c := acmeflow.FirstCause(challenges); c != nil {
		why.cause = Name("Challenge", "", c.Name) + " for " + c.Spec.DNSName + ": " + c.Status.Reason
		why.class, why.problem, why.challenge = fault.Class(c.Status.FailureClass), acme.CodeOf(c.Status.ProblemType), c
	}
	if why.class == "" && !order.Status.State.IsFailure() {
		return Trouble{}
	}
	cause, next := nextTry(why.cause)
	return Trouble{Class: why.kind(), Cause: cause, NextTry: next, WhatToDo: why.cure()}
}

// nextTry cuts off the end of a reason, which says when the next try is.
func nextTry(reason string) (what, next string) {
	what, next = acmeflow.NextTry(printable.Line(reason))
	if next == "with back-off" {
		next = "within five minutes, with back-off"
	}
	return what, next
}

// notReady is the condition Ready of an issuer that is known not to be; nil otherwise.
func notReady(issuer certmanagerv1.GenericIssuer) *certmanagerv1.IssuerCondition {
	if issuer == nil {
		return nil
	}
	ready := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	if ready == nil {
		return &certmanagerv1.IssuerCondition{Message: "no controller has looked at it yet"}
	}
	if ready.Status == cmmeta.ConditionTrue {
		return nil
	}
	return ready
}

// ofIssuer is an issuer that does not exist or is not ready.
func ofIssuer(n Node, issuer certmanagerv1.GenericIssuer) Trouble {
	name := Name(n.Kind, n.Namespace, n.Name)
	if issuer == nil {
		return Trouble{
			Class: "issuer missing", Cause: name + " does not exist", NextTry: "as soon as it exists",
			WhatToDo: "Create the " + n.Kind + ", or correct spec.issuerRef of the Certificate (name, kind, group)",
		}
	}
	ready := notReady(issuer)
	said, next := nextTry(ready.Message)
	if next == "" {
		next = "as soon as the " + n.Kind + " is ready"
	}
	return Trouble{
		Class: "issuer not ready", Cause: fmt.Sprintf("%s is not ready: %s", name, said), NextTry: next,
		WhatToDo: cureOfIssuer(name, issuer, ready.Reason),
	}
}
