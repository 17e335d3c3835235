// Package issuer decides the content of the status of an Issuer or ClusterIssuer, and when to check the issuer again.
//
// Each type of issuer has its own check, which comes to Facts or a fault: the signer.Prober of the type makes it, or,
// for ACME, internal/machine/account decides it. The consequences are the same for all types, and this package decides
// them. The package is pure: the controller of issuers carries out its decisions.
package issuer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// Facts are what a look at an issuer has found.
type Facts struct {
	// Ready says whether the issuer can sign.
	Ready bool
	// Reason and Message are those of the condition Ready. Reason is not empty.
	Reason, Message string
	// LeftOut says what of a CA bundle in a Secret is not used (pki.LeftOut); empty if all is.
	LeftOut string
	// ACME is the account of an ACME issuer, without SolverTest; nil leaves the account in the status as it is.
	ACME *acmev1.ACMEIssuerStatus
	// Authority names the CA that can sign for the issuer, as CAIssuerStatus does; empty leaves the CA in the status as
	// it is.
	Authority string
	// NotBefore and NotAfter are those of the CA's certificate that expires first, if Authority is not empty.
	NotBefore, NotAfter time.Time
	// OlderRoots are those of the status, if Authority is not empty.
	OlderRoots []certmanagerv1.OlderRoot
	// Until is when the issuer is to be looked at again, because something ends; zero for never.
	Until time.Time
}

// State is what can be observed of an issuer. Facts and Failure are those of the last look with the present spec and
// the present Secrets.
type State struct {
	// Issuer as it is. It is not changed.
	Issuer certmanagerv1.GenericIssuer
	// Managed says that the issuer has a type that the controller has a Signer for.
	Managed bool
	// Facts are what the look has found; nil if it has found nothing, or has not come back.
	Facts *Facts
	// Failure is why the look has found nothing, or why something is still to be done that Facts tell of; nil if it has
	// not failed.
	Failure error
	// Again is when the issuer is looked at again after Failure; zero if that waits for an event.
	Again time.Time
	// Unanswered is why nobody would answer the HTTP-01 challenges of the issuer; nil if somebody would, or if the
	// issuer has no solver for HTTP-01.
	Unanswered *fault.Fault
	// Testing says that the test of a solver that the status calls Running is under way.
	Testing bool
	// Tested is how that test has ended; nil while it has not.
	Tested *Tested
}

// Action is what to do for an issuer.
type Action struct {
	// Status is to be written; nil if there is nothing new.
	Status *certmanagerv1.IssuerStatus
	// Warn is the condition that an event is to warn of; nil if there is nothing new to warn of.
	Warn *certmanagerv1.IssuerCondition
	// Test is the test of a solver that is to be started once Status is written; nil for none.
	Test *Test
	// Ended is a test that has ended with Status, for an event; nil for none.
	Ended *acmev1.ACMESolverTest
	// Wake is when to decide again without an event; zero for never.
	Wake time.Time
}

// Decide returns what to do for an issuer now.
func Decide(s State, now time.Time) Action {
	if s.Issuer.GetDeletionTimestamp() != nil || !s.Managed { // whoever manages its type says how the issuer is
		return Action{}
	}
	return s.test(s.look(now), now)
}

// look returns what follows from the look at the issuer.
func (s *State) look(now time.Time) Action {
	failure := fault.Of(s.Failure)
	switch {
	case s.Facts != nil:
		return s.say(*s.Facts, now)
	case failure == nil, failure.Reason == "":
		return Action{Wake: s.Again} // there is no news: what was true stays
	case s.ready() && (failure.Class == fault.ClassUnavailable || failure.Class == fault.ClassRateLimited):
		// A server that is away, or busy, says nothing about an issuer that it has served in this generation.
		return Action{Wake: s.Again}
	default:
		return s.say(Facts{Reason: failure.Reason, Message: failure.Error()}, now)
	}
}

// say returns the action that makes the status say what was found.
func (s *State) say(f Facts, now time.Time) Action {
	old := s.Issuer.GetStatus()
	// With the carrier, the API's own rules of lastTransitionTime and observedGeneration apply, whichever kind the
	// issuer is.
	carrier := &certmanagerv1.Issuer{Status: *old.DeepCopy()}
	carrier.Generation = s.Issuer.GetGeneration()
	ready := certmanagerv1.IssuerCondition{
		Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionFalse, Reason: f.Reason, Message: f.Message,
	}
	if f.Ready {
		ready.Status = cmmeta.ConditionTrue
	}
	for _, field := range leftOut(s.Issuer.GetSpec(), f.Message) {
		ready.Message += "; " + field
	}
	if f.LeftOut != "" {
		ready.Message += "; " + f.LeftOut
	}
	certmanagerv1.SetIssuerCondition(carrier, ready, now)
	s.sayUnanswered(carrier, now)
	if f.ACME != nil {
		account := *f.ACME
		if was := carrier.Status.ACME; was != nil {
			account.SolverTest = was.SolverTest
		}
		carrier.Status.ACME = &account
	}
	if f.Authority != "" {
		carrier.Status.CA = seen(carrier.Status.CA, f, now)
	}
	a := Action{Wake: s.Again}
	if s.Failure == nil {
		a.Wake = f.Until
	}
	if cmmeta.Equal(*old, carrier.Status) {
		return a
	}
	a.Status = &carrier.Status
	was := certmanagerv1.FindIssuerCondition(old.Conditions, certmanagerv1.IssuerConditionReady)
	if !f.Ready && (was == nil || was.Reason != f.Reason || was.Message != f.Message) {
		a.Warn = certmanagerv1.FindIssuerCondition(carrier.Status.Conditions, certmanagerv1.IssuerConditionReady)
	}
	if a.Warn == nil && certmanagerv1.FindIssuerCondition(old.Conditions, certmanagerv1.IssuerConditionHTTP01Ready) == nil {
		a.Warn = certmanagerv1.FindIssuerCondition(carrier.Status.Conditions, certmanagerv1.IssuerConditionHTTP01Ready)
	}
	return a
}

// leftOut says which parts of the CA bundles in a spec are not used, unless a message, which may be one that is said
// again, says so already.
func leftOut(spec *certmanagerv1.IssuerSpec, message string) (said []string) {
	read := func(field string, bundle []byte) {
		if text := pki.LeftOut(field, bundle); text != "" && !strings.Contains(message, text) {
			said = append(said, text)
		}
	}
	if spec.Vault != nil {
		read("spec.vault.caBundle", spec.Vault.CABundle)
	}
	if spec.Venafi != nil && spec.Venafi.TPP != nil {
		read("spec.venafi.tpp.caBundle", spec.Venafi.TPP.CABundle)
	}
	if spec.ACME != nil {
		read("spec.acme.caBundle", spec.ACME.CABundle)
		for i, s := range spec.ACME.Solvers {
			if s.DNS01 != nil && s.DNS01.Webhook != nil {
				read(fmt.Sprintf("spec.acme.solvers[%d].dns01.webhook.caBundle", i), s.DNS01.Webhook.CABundle)
			}
		}
	}
	return said
}

// sayUnanswered makes the condition HTTP01Ready say that nobody would answer, or takes it away.
func (s *State) sayUnanswered(carrier *certmanagerv1.Issuer, now time.Time) {
	if s.Unanswered != nil {
		certmanagerv1.SetIssuerCondition(carrier, certmanagerv1.IssuerCondition{
			Type: certmanagerv1.IssuerConditionHTTP01Ready, Status: cmmeta.ConditionFalse,
			Reason: s.Unanswered.Reason, Message: s.Unanswered.Error(),
		}, now)
		return
	}
	carrier.Status.Conditions = slices.DeleteFunc(carrier.Status.Conditions, func(c certmanagerv1.IssuerCondition) bool {
		return c.Type == certmanagerv1.IssuerConditionHTTP01Ready
	})
}

// seen says since when a CA has been the issuer's, and until when. A time in the future was written by a clock that was
// wrong.
func seen(was *certmanagerv1.CAIssuerStatus, f Facts, now time.Time) *certmanagerv1.CAIssuerStatus {
	is := &certmanagerv1.CAIssuerStatus{Authority: f.Authority, FirstSeen: metav1.NewTime(now.Truncate(time.Second))}
	if was != nil {
		is.Replaced = was.Replaced || was.Authority != f.Authority
	}
	if was != nil && was.Authority == f.Authority && !was.FirstSeen.After(now) {
		is.FirstSeen = was.FirstSeen
	}
	if !f.NotAfter.IsZero() {
		from, until := metav1.NewTime(f.NotBefore), metav1.NewTime(f.NotAfter)
		is.NotBefore, is.NotAfter = &from, &until
	}
	is.OlderRoots = f.OlderRoots
	return is
}

// ready reports whether the issuer is said to be ready in its present generation.
func (s *State) ready() bool {
	c := certmanagerv1.FindIssuerCondition(s.Issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	return c != nil && c.Status == cmmeta.ConditionTrue && c.ObservedGeneration == s.Issuer.GetGeneration()
}
