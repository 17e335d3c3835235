// Package preflight judges before an issuance whether the issuance can succeed. It judges the issuer, the choice of the
// solver, CAA records, the delegation of the zone, and what the CA accepts.
//
// The package is pure: its callers ask the API server, DNS and the CA, send test requests over the HTTP-01 routes, and
// print the findings.
package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/selection"
	"chancery.dev/internal/pki"
)

// Outcome is the result of a check.
type Outcome string

// The outcomes.
const (
	OK         Outcome = "ok"
	Warning    Outcome = "warning"
	Failed     Outcome = "failed"
	NotChecked Outcome = "not checked"
)

// Finding is what one check has found.
type Finding struct {
	// Check names what was checked, and Subject the DNS name, zone or object if there are several.
	Check   string `json:"check"`
	Subject string `json:"subject,omitempty"`
	// Outcome is the result, and Message says why.
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message"`
	// WhatToDo says what helps.
	WhatToDo string `json:"whatToDo,omitempty"`
}

// Report is what was found about one Certificate.
type Report struct {
	Certificate string    `json:"certificate"`
	Namespace   string    `json:"namespace"`
	Findings    []Finding `json:"findings"`
}

// Failed reports whether a check has failed.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Outcome == Failed })
}

// Issuer judges an issuer by its status.
func Issuer(name string, issuer certmanagerv1.GenericIssuer) Finding {
	f := Finding{Check: "issuer", Outcome: OK, Message: name + " is ready"}
	ready := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	_, paused := issuer.GetAnnotations()[cmmeta.PausedAnnotation]
	switch {
	case paused:
		f.Outcome, f.Message = Warning, name+" is paused by the annotation "+cmmeta.PausedAnnotation
		f.WhatToDo = "Remove the annotation"
	case ready == nil:
		f.Outcome, f.Message = Failed, name+" has no status yet"
		f.WhatToDo = Cure(cause.NoController)
	case ready.Status != cmmeta.ConditionTrue:
		f.Outcome, f.Message = Failed, fmt.Sprintf("%s is not ready (%s): %s", name, ready.Reason, ready.Message)
		f.WhatToDo = (&cause.Scene{Cause: cause.New(cause.IssuerNotReady, "", name, ""), Issuer: issuer}).Cure()
	case certmanagerv1.ForPodsOnly(issuer):
		f.Outcome, f.Message = Failed, name+" signs for Pods only, by its annotation "+certmanagerv1.PodCertificatesAnnotation
		f.WhatToDo = "Take another issuer"
	}
	return f
}

// Cure says what helps against a cause of which only the class is known.
func Cure(class cause.Class) string {
	return (&cause.Scene{Cause: cause.New(class, "", "", "")}).Cure()
}

// Unproved says what helps if the CA would not find the answer to a challenge of a type.
func Unproved(name string, by acmev1.ACMEChallengeType) string {
	c := &acmev1.Challenge{Spec: acmev1.ChallengeSpec{DNSName: name, Type: by}}
	return (&cause.Scene{Cause: cause.New(cause.Class(fault.ClassSelfCheck), "", name, ""), Challenge: c}).Cure()
}

// Proof is the way in which a name is to be proved to the CA.
type Proof struct {
	// Name is the DNS name without "*.", or the IP address.
	Name string
	// Wildcard and Address say which kind of name it is.
	Wildcard, Address bool
	// Type is the challenge's type, empty if there is no solver. Solver solves it, and Why names the solver for people.
	Type   acmev1.ACMEChallengeType
	Solver acmev1.ACMEChallengeSolver
	Why    string
}

// Display is the name as the Certificate has it.
func (p Proof) Display() string {
	if p.Wildcard {
		return "*." + p.Name
	}
	return p.Name
}

// Proofs chooses a solver of an ACME issuer for each name of a Certificate, as the controller does. Only the answer to
// an order tells which types of challenge the CA offers: Proofs assumes all types that are defined for such a name.
func Proofs(crt *certmanagerv1.Certificate, issuer *acmev1.ACMEIssuer) (proofs []Proof, findings []Finding) {
	solvers := selection.For(crt.Labels, issuer.Solvers)
	for i, name := range slices.Concat(crt.Spec.DNSNames, crt.Spec.IPAddresses) {
		p := Proof{Name: name, Address: i >= len(crt.Spec.DNSNames)}
		if bare, is := strings.CutPrefix(name, "*."); is {
			p.Name, p.Wildcard = bare, true
		}
		f := Finding{Check: "solver", Subject: name, Outcome: OK}
		selected, err := solvers.Select(p.authorization())
		if err == nil {
			order := &acmev1.Order{}
			order.Namespace, order.Annotations = crt.Namespace, crt.Annotations
			p.Solver, err = selection.ApplyOverrides(order, selected.Solver)
		}
		switch letsEncrypt, _ := OfLetsEncrypt(issuer.Server); {
		case err != nil && len(issuer.Solvers) == 0 && !letsEncrypt:
			f.Outcome, f.Message, f.WhatToDo = Warning, "the issuer has no solvers: this works only if the CA asks for no proof of the name", cause.NoSolvers
		case err != nil && len(issuer.Solvers) == 0:
			f.Outcome, f.Message, f.WhatToDo = Failed, err.Error(), "Add a solver to spec.acme.solvers of the issuer"
		case err != nil:
			f.Outcome, f.Message, f.WhatToDo = Failed, err.Error(), cause.SolverFor(p.Display())
		default:
			p.Type, p.Why = selected.Type, selected.Why
			f.Message = string(p.Type) + " by " + p.Why
		}
		proofs, findings = append(proofs, p), append(findings, f)
	}
	return proofs, findings
}

func (p Proof) authorization() acmev1.ACMEAuthorization {
	a := acmev1.ACMEAuthorization{Identifier: p.Name, Wildcard: &p.Wildcard}
	types := []acmev1.ACMEChallengeType{acmev1.ChallengeTypeDNS01, acmev1.ChallengeTypeDNSAccount01, acmev1.ChallengeTypeDNSPersist01}
	direct := []acmev1.ACMEChallengeType{acmev1.ChallengeTypeHTTP01, acmev1.ChallengeTypeTLSALPN01}
	switch {
	case p.Address:
		types = direct
	case !p.Wildcard:
		types = append(types, direct...)
	}
	for _, t := range types {
		a.Challenges = append(a.Challenges, acmev1.ACMEChallenge{Type: strings.ToLower(string(t))})
	}
	return a
}

// Profile is the profile that the Order of a Certificate asks for.
func Profile(crt *certmanagerv1.Certificate, issuer *acmev1.ACMEIssuer) string {
	if profile, set := crt.Annotations[acmev1.ProfileAnnotation]; set {
		return profile
	}
	return issuer.Profile
}

// unnamed are the fields of a spec that ACME has no identifiers for.
func unnamed(spec *certmanagerv1.CertificateSpec) []string {
	var fields []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"emailAddresses", len(spec.EmailAddresses) > 0}, {"uris", len(spec.URIs) > 0}, {"otherNames", len(spec.OtherNames) > 0}, {"isCA", spec.IsCA},
	} {
		if f.set {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// Names judges the names and the kind of a Certificate for an ACME issuer.
func Names(spec *certmanagerv1.CertificateSpec) Finding {
	f := Finding{Check: "names", Outcome: OK, Message: "ACME has proofs for all names"}
	var wrong error
	for _, n := range spec.DNSNames {
		wrong = cmp.Or(wrong, pki.CheckDNSName(n))
	}
	switch fields := unnamed(spec); {
	case len(spec.DNSNames)+len(spec.IPAddresses) == 0:
		f.Outcome, f.Message, f.WhatToDo = Failed, "no dnsNames and no ipAddresses", "Set spec.dnsNames: an ACME server proves only DNS names and IP addresses"
	case spec.CommonName != "" && !slices.Contains(slices.Concat(spec.DNSNames, spec.IPAddresses), spec.CommonName):
		f.Outcome = Failed
		f.Message = fmt.Sprintf("commonName %q is in neither dnsNames nor ipAddresses", spec.CommonName)
		f.WhatToDo = "Add the common name to spec.dnsNames, or remove it"
	case wrong != nil:
		f.Outcome, f.Message, f.WhatToDo = Failed, wrong.Error(), "Correct spec.dnsNames"
	case len(fields) > 0:
		f.Outcome = Warning
		f.Message = "ACME servers refuse or leave out " + strings.Join(fields, ", ")
		f.WhatToDo = "Remove them, or take an issuer that is not ACME"
	}
	return f
}

// Orders judges whether the CA has refused other orders of the issuer because of its limits.
func Orders(orders []acmev1.Order, issuer cmmeta.IssuerReference) Finding {
	f := Finding{Check: "account", Outcome: OK, Message: "no Order that can be seen waits for a rate limit of the CA"}
	for i := range orders {
		o := &orders[i]
		if !o.Spec.IssuerRef.Equivalent(issuer) || o.Status.State == acmev1.Valid {
			continue
		}
		switch fault.Class(o.Status.FailureClass) {
		case fault.ClassRateLimited:
			f.Outcome = Warning
			f.Message = fmt.Sprintf("Order %s/%s was refused because of a limit: %s", o.Namespace, o.Name, o.Status.Reason)
			f.WhatToDo = Cure(cause.Class(fault.ClassRateLimited))
		case fault.ClassPaused:
			f.Outcome = Warning
			f.Message = fmt.Sprintf("Order %s/%s was refused because the CA has paused its names: %s", o.Namespace, o.Name, o.Status.Reason)
			f.WhatToDo = Cure(cause.Class(fault.ClassPaused))
		default: // nothing that other orders wait for, too
		}
	}
	return f
}

// Delegation has the name servers of a zone, as the parent of the zone and the zone itself name them.
type Delegation struct {
	// Zone is the zone, and Parent the zone above it; no parent is asked about a top-level domain.
	Zone, Parent string
	// AtParent and AtZone are the names of the name servers according to the two.
	AtParent, AtZone []string
	// Silent are the servers that did not answer, and Lame those that answered without authority, each with the reason.
	Silent, Lame []string
	// Answered is how many servers answered with authority.
	Answered int
}

// Judge judges whether the name servers of a zone are those that its parent names, and whether each serves the zone.
// DNS-01 fails if one does not: without a quorum, all servers have to show the record before the CA is asked.
func (d Delegation) Judge(byDNS bool) Finding {
	f := Finding{Check: "delegation", Subject: d.Zone, Outcome: OK, Message: "served by " + strings.Join(d.AtZone, ", ")}
	f.WhatToDo = "Correct the NS records at the registrar, or have the server serve the zone"
	outcome := Warning
	if byDNS {
		outcome = Failed
	}
	switch {
	case d.Answered == 0 && len(d.Lame) == 0:
		f.Outcome = NotChecked
		f.Message = "no name server of the zone answers this machine: " + strings.Join(d.Silent, ", ")
		f.WhatToDo = "See whether a firewall keeps this machine from port 53 of other networks"
	case d.Answered == 0:
		f.Outcome, f.Message = Failed, "no name server serves the zone: "+strings.Join(slices.Concat(d.Lame, d.Silent), ", ")
	case len(d.Lame) > 0:
		f.Outcome, f.Message = outcome, "these name servers do not serve the zone: "+strings.Join(d.Lame, ", ")
	case len(d.Silent) > 0:
		f.Outcome, f.Message = Warning, "these name servers do not answer this machine: "+strings.Join(d.Silent, ", ")
	case d.Parent != "" && !slices.Equal(d.AtParent, d.AtZone):
		f.Outcome = Warning
		f.Message = fmt.Sprintf("%s names the servers %s, and the zone itself %s", d.Parent, strings.Join(d.AtParent, ", "), strings.Join(d.AtZone, ", "))
	default:
		f.WhatToDo = ""
	}
	return f
}
