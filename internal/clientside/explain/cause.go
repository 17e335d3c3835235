package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/order"
)

// unseen is how long a controller may take to look at a new Certificate before that is worth a word.
const unseen = 30 * time.Second

// maxNames is how many Certificates are named that name one Secret.
const maxNames = 10

// found is a cause with the objects around it.
type found struct{ cause.Scene }

// trouble is a cause in words.
func (f *found) trouble(now time.Time) Trouble {
	if f.Cause == nil {
		return Trouble{}
	}
	kind := acme.CodeOf(f.Cause.ProblemType)
	if f.Cause.Class == string(fault.ClassPaused) { // whose problem type is that of a limit
		kind = ""
	}
	t := Trouble{
		Class: cmp.Or(string(kind), f.Cause.Class), Cause: terminal.Line(cause.Sentence(f.Cause)), WhatToDo: f.Cure(), Command: f.Command(),
		NextTry: nextBy(cause.Class(f.Cause.Class)), subject: f.Cause.Subject,
	}
	if t.Cause == "" { // another controller has told nothing
		return Trouble{}
	}
	if f.Cause.NextTry != nil {
		t.NextTry = clock(f.Cause.NextTry, now)
	}
	return t
}

// nextBy is when the next try is of what waits for an event, or is tried again and again.
func nextBy(class cause.Class) string {
	switch class {
	case cause.IssuerMissing:
		return "as soon as it exists"
	case cause.IssuerNotReady:
		return "as soon as the issuer is ready"
	case cause.NoSolver:
		return "as soon as the issuer has changed"
	case cause.NotApproved:
		return "as soon as it is approved"
	case cause.SecretShared:
		return "as soon as the Secret belongs to this Certificate alone"
	case cause.Paused:
		return "as soon as the annotation is removed"
	case cause.NoController:
		return "as soon as a controller runs"
	case cause.UsageLeftOut:
		return "with the renewal"
	case cause.Class(fault.ClassRateLimited), cause.Class(fault.ClassPaused):
		return "as soon as the other side takes requests again"
	case cause.Class(fault.ClassSelfCheck):
		return "by itself, again and again"
	case cause.Class(fault.ClassUnavailable), cause.Class(fault.ClassSolver), cause.Class(fault.ClassCredential), cause.Class(fault.ClassConfiguration),
		cause.Class(fault.ClassNotFound),
		cause.Immutable, cause.Quota, cause.Admission, cause.Webhook, cause.Rights, cause.NamespaceTerminating, cause.TooLarge, cause.Invalid, cause.ServerError:
		return "within five minutes"
	default:
		return "as soon as that has changed"
	}
}

// troubleOf says what is in the way of a Certificate, given what is known of the CA above it.
func (w *Cluster) troubleOf(crt *certmanagerv1.Certificate, above *signed) Trouble {
	ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
	issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
	upToDate := ready != nil && ready.Status == cmmeta.ConditionTrue && ready.ObservedGeneration == crt.Generation
	own := func(class cause.Class, message string) Trouble {
		return (&found{Scene: w.sceneOf(crt, cause.New(class, "", "", message))}).trouble(w.now)
	}
	_, paused := crt.Annotations[cmmeta.PausedAnnotation]
	neglected := w.neglected(crt)
	switch {
	case paused && (!upToDate || neglected != nil):
		return own(cause.Paused, "the Certificate is paused by the annotation "+cmmeta.PausedAnnotation)
	case ready == nil && issuing == nil && w.now.Sub(crt.CreationTimestamp.Time) < unseen:
		return Trouble{}
	case ready == nil && issuing == nil:
		return own(cause.NoController, "no controller has looked at the Certificate yet")
	case neglected != nil && issuing == nil && isMild(crt.Status.Cause):
		return own(cause.Class(neglected.Class), neglected.Message)
	case upToDate && issuing == nil && isMild(crt.Status.Cause):
		return cmp.Or(w.ofAuthority(crt, above), (&found{Scene: w.sceneOf(crt, crt.Status.Cause)}).trouble(w.now))
	case ready != nil && ready.Reason == certmanagerv1.CertificateReasonIncorrectCertificate && w.shared[secretOf(crt)] != "":
		t := own(cause.SecretShared, ready.Message)
		t.WhatToDo = "Give one of the Certificates another spec.secretName: " + w.shared[secretOf(crt)]
		return t
	case ready != nil && ready.Reason == stub.Reason:
		return own(cause.ObjectTooLarge, ready.Message)
	}
	return w.ofIssuance(crt, issuing, neglected)
}

// ofIssuance says what is in the way of the issuance under way, or of the next one.
func (w *Cluster) ofIssuance(crt *certmanagerv1.Certificate, issuing *certmanagerv1.CertificateCondition, neglected *cmmeta.Cause) Trouble {
	underWay := issuing != nil && issuing.Status == cmmeta.ConditionTrue
	f := w.ofLatest(crt, underWay)
	known := crt.Status.Cause
	switch {
	case f.Cause != nil && (underWay || known == nil) && (!f.Cause.SameAs(known) || f.Cause.Class == string(cause.IssuerNotReady)):
		// The issuer itself has the newest words: the Certificate is not written for other words alone.
	case known != nil:
		f.Scene.Cause = known
	case neglected != nil && f.Cause == nil:
		f.Scene.Cause = neglected
	case issuing != nil && (!underWay || crt.Status.LastFailureTime != nil):
		f.Scene.Cause = cause.New(cause.Other, "", "", issuing.Message) // by a controller that tells no cause
	}
	f.Namespace, f.Certificate, f.Owner = crt.Namespace, crt.Name, cause.OwnerOf(crt)
	t := f.trouble(w.now)
	if at := crt.Status.NextTry; at != nil && (f.Cause == known || !underWay) && t.Cause != "" {
		orAtOnce := map[bool]string{false: ", or at once after a change of the Certificate or the issuer"}
		t.NextTry = clock(at, w.now) + orAtOnce[underWay]
	}
	return t
}

// neglected says why a certificate has expired, where a controller has not said it; nil if a controller may be at work.
func (w *Cluster) neglected(crt *certmanagerv1.Certificate) *cmmeta.Cause {
	ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
	renewal := crt.Spec.Renewal
	switch {
	case crt.Status.NotAfter == nil, w.now.Sub(crt.Status.NotAfter.Time) < unseen, crt.DeletionTimestamp != nil:
		return nil
	case renewal != nil && renewal.Policy == certmanagerv1.RenewalPolicyDisabled:
		return cause.New(cause.Other, "", "", "the certificate has expired, and spec.renewal.policy is Disabled: nothing renews it")
	case ready != nil && ready.Status == cmmeta.ConditionTrue: // a controller would have changed it
		return cause.New(cause.NoController, "", "", "the certificate has expired, and no controller has looked at it since")
	default:
		return nil
	}
}

// isMild reports whether every other trouble comes before a cause.
func isMild(c *cmmeta.Cause) bool { return c == nil || c.Class == string(cause.UsageLeftOut) }

// sceneOf is a cause with the Certificate and its issuer.
func (w *Cluster) sceneOf(crt *certmanagerv1.Certificate, c *cmmeta.Cause) cause.Scene {
	issuer, _ := w.issuer(crt.Spec.IssuerRef, crt.Namespace)
	return cause.Scene{Cause: c, Namespace: crt.Namespace, Certificate: crt.Name, Owner: cause.OwnerOf(crt), Issuer: issuer}
}

// ofLatest says what is in the way of the request under way, or of the last one that failed.
func (w *Cluster) ofLatest(crt *certmanagerv1.Certificate, underWay bool) found {
	issuer, missing := w.issuer(crt.Spec.IssuerRef, crt.Namespace)
	request := w.requestOf(crt)
	stale := request != nil && underWay && Describe(request).Outcome != Waiting
	if request != nil && !stale {
		return w.ofRequest(request)
	}
	if missing || signsNot(issuer) != nil {
		return w.ofIssuer(w.issuerNode(crt.Spec.IssuerRef, crt.Namespace), issuer)
	}
	return found{Scene: w.sceneOf(crt, nil)}
}

// ofRequest says what is in the way of a CertificateRequest.
func (w *Cluster) ofRequest(cr *certmanagerv1.CertificateRequest) found {
	find := func(t certmanagerv1.CertificateRequestConditionType) *certmanagerv1.CertificateRequestCondition {
		return certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, t)
	}
	ready, denied := find(certmanagerv1.CertificateRequestConditionReady), find(certmanagerv1.CertificateRequestConditionDenied)
	issuer, missing := w.issuer(cr.Spec.IssuerRef, cr.Namespace)
	order := w.orderOf(cr)
	d := Describe(cr)
	f := found{Scene: cause.Scene{Namespace: cr.Namespace, Certificate: cr.Annotations[certmanagerv1.CertificateNameAnnotation], Request: cr, Issuer: issuer}}
	switch {
	case d.Outcome == Issued:
	case denied != nil:
		f.Cause = cause.New(cause.Denied, "", "", denied.Reason+": "+denied.Message)
	case (d.Outcome != Failed || order != nil && order.Status.State.IsFailure()) && order != nil && !missing && signsNot(issuer) == nil,
		d.Outcome == Failed && order != nil && order.Status.State.IsFailure():
		w.ofOrder(&f, order)
	case d.Outcome == Failed && cr.Status.Cause != nil:
		f.Cause = cr.Status.Cause
	case d.Outcome == Failed:
		class := cause.Other
		if c := find(certmanagerv1.CertificateRequestConditionFailureClass); c != nil {
			class = cause.Class(c.Reason)
		}
		f.Cause = cause.New(class, "", "", d.Reason)
	case missing || signsNot(issuer) != nil:
		return w.ofIssuer(w.issuerNode(cr.Spec.IssuerRef, cr.Namespace), issuer)
	case find(certmanagerv1.CertificateRequestConditionApproved) == nil && ready == nil:
		if w.now.Sub(cr.CreationTimestamp.Time) >= unseen/3 {
			f.Cause = cause.New(cause.NotApproved, "", "", Name("CertificateRequest", "", cr.Name))
		}
	case cr.Status.Cause != nil:
		f.Cause = cr.Status.Cause
	case ready == nil && cr.Spec.IssuerRef.IsExternal():
		if w.now.Sub(cr.CreationTimestamp.Time) >= unseen/3 {
			f.Cause = cause.New(cause.NoController, "", "", cause.Unanswered(cr.Name, cr.Spec.IssuerRef))
		}
	case ready != nil && ready.Message != "":
		f.Cause = cause.New(cause.Other, "", "", ready.Message)
	}
	return f
}

// orderOf is the Order of a request; nil if there is none.
func (w *Cluster) orderOf(cr metav1.Object) *acmev1.Order {
	for _, child := range w.below(cr) {
		if order, is := child.(*acmev1.Order); is {
			return order
		}
	}
	return nil
}

// ofOrder says what is in the way of an Order: what one of its Challenges waits for or has failed with, or else what
// the Order says itself.
func (w *Cluster) ofOrder(f *found, o *acmev1.Order) {
	var challenges []*acmev1.Challenge
	for _, child := range w.below(o) {
		if c, is := child.(*acmev1.Challenge); is {
			challenges = append(challenges, c)
			if c.Status.State.IsFailure() && f.Challenge == nil {
				f.Challenge = c
			}
		}
	}
	f.Order = o
	s := o.Status
	class, problem, subject, said, end := fault.Class(s.FailureClass), order.Problem(s), "", s.Reason, s.ReasonEnd
	switch c := order.FirstCause(challenges, s.Cause); {
	case s.State.IsFailure():
		class = order.Class(s)
	case c != nil:
		f.Challenge, subject, said, end = c, challengeHost(c), c.Status.Reason, c.Status.ReasonEnd
		class, problem = fault.Class(c.Status.FailureClass), acme.CodeOf(c.Status.ProblemType)
	case class == "":
		f.Cause = s.Cause // the API server refuses a Challenge
		return
	}
	if known := s.Cause; known != nil && (s.State.IsFailure() || f.Challenge == nil) {
		f.Cause = known
		return
	}
	problemType := ""
	if problem != "" {
		problemType = problem.Type()
	}
	f.Cause = cause.New(cause.Class(class), problemType, subject, terminal.Line(acmeflow.Said(said, end)))
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

// signsNot is why an issuer that exists signs no requests: it is not ready, or signs for Pods only; nil otherwise.
func signsNot(issuer certmanagerv1.GenericIssuer) *certmanagerv1.IssuerCondition {
	if issuer != nil && notReady(issuer) == nil && certmanagerv1.ForPodsOnly(issuer) {
		return &certmanagerv1.IssuerCondition{Message: cause.ForPodsOnly}
	}
	return notReady(issuer)
}

// ofIssuer is an issuer that does not exist or is not ready.
func (w *Cluster) ofIssuer(n Node, issuer certmanagerv1.GenericIssuer) found {
	name := Name(n.Kind, n.Namespace, n.Name)
	f := found{Scene: cause.Scene{Issuer: issuer}}
	if issuer == nil {
		hint := ""
		if other := Name(cmmeta.ClusterIssuerKind, "", n.Name); n.Kind == cmmeta.DefaultIssuerKind && w.issuers[other] != nil {
			f.OtherKind, hint = cmmeta.ClusterIssuerKind, "a ClusterIssuer has that name: name the kind in issuerRef"
		}
		f.Cause = cause.New(cause.IssuerMissing, "", name, hint)
		return f
	}
	f.Cause = cause.New(cause.IssuerNotReady, "", name, terminal.Line(signsNot(issuer).Message))
	return f
}

// challengeHost is the name that a Challenge proves.
func challengeHost(c *acmev1.Challenge) string {
	if c.Spec.Wildcard {
		return "*." + c.Spec.DNSName
	}
	return c.Spec.DNSName
}

// secretOf is the Secret that a Certificate keeps.
func secretOf(crt *certmanagerv1.Certificate) types.NamespacedName {
	return types.NamespacedName{Namespace: crt.Namespace, Name: crt.Spec.SecretName}
}

func names(certificates []*certmanagerv1.Certificate) string {
	var all []string
	for _, crt := range certificates {
		all = append(all, crt.Name)
	}
	slices.Sort(all) // watches give the Certificates in no fixed order
	if more := len(all) - maxNames; more > 1 {
		return fmt.Sprintf("%s and %d others", strings.Join(all[:maxNames], ", "), more)
	}
	return strings.Join(all, ", ")
}

// namesOf are the names that a Certificate asks for.
func namesOf(crt *certmanagerv1.Certificate) []string {
	s := crt.Spec
	all := slices.Concat([]string{s.CommonName}, s.DNSNames, s.IPAddresses, s.URIs, s.EmailAddresses)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool { return name == "" })
}
