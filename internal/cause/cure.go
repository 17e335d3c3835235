package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// Scene is a cause with the objects around it, as far as they are known. They make the cure more exact.
type Scene struct {
	Cause *cmmeta.Cause
	// Namespace and Certificate name the Certificate. Owner is the kind and the name of the Ingress, Gateway or
	// ListenerSet that it is made for; empty if people have made it.
	Namespace, Certificate, Owner string
	Request                       *certmanagerv1.CertificateRequest
	Order                         *acmev1.Order
	Challenge                     *acmev1.Challenge
	Issuer                        certmanagerv1.GenericIssuer
	// OtherKind is the kind of another issuer that has the name of the missing one; empty for none.
	OtherKind string
}

// Cure is what helps. It goes by the problem that the CA named (RFC 8555 §6.7), then by the class.
func (s *Scene) Cure() string {
	if s.Cause == nil {
		return ""
	}
	if s.Cause.Class == string(fault.ClassPaused) { // whose problem type is that of a limit
		return helps(Class(s.Cause.Class))
	}
	return cmp.Or(s.byProblem(), s.byClass(), helps(Class(s.Cause.Class))) + s.ofOwner()
}

// OwnerOf is the Owner of a Scene with a Certificate.
func OwnerOf(crt *certmanagerv1.Certificate) string {
	owner := metav1.GetControllerOf(crt)
	if owner == nil || !slices.Contains([]string{"Ingress", "Gateway", "ListenerSet"}, owner.Kind) {
		return ""
	}
	return owner.Kind + " " + owner.Name
}

// ofOwner ends a cure that may change the spec of the Certificate: the owner would change the spec back.
func (s *Scene) ofOwner() string {
	switch Class(s.Cause.Class) {
	case IssuerMissing, Class(fault.ClassPermanent), SecretShared, IssuedTooOften, KeyNotReplaced, PasswordMissing, NoRequest, RenewalWindows, NotApproved,
		UsageLeftOut,
		Denied, Class(fault.ClassPolicy), NamespaceTerminating, TooLarge, Invalid, Admission:
	default:
		return ""
	}
	switch {
	case s.Owner == "":
		return ""
	case Class(s.Cause.Class) == IssuerMissing:
		return fmt.Sprintf(". The Certificate is made for %[1]s: name the issuer in the annotation %[2]s of %[1]s", s.Owner, s.issuerAnnotation())
	default:
		return fmt.Sprintf(". The Certificate is made for %[1]s: what is to be changed of it, change by hosts and annotations of %[1]s", s.Owner)
	}
}

// issuerAnnotation is that of an Ingress or Gateway for the kind of the issuer.
func (s *Scene) issuerAnnotation() string {
	kind, _, _ := strings.Cut(s.Cause.Subject, " ")
	if cmp.Or(s.OtherKind, kind) == cmmeta.ClusterIssuerKind {
		return certmanagerv1.IngressClusterIssuerAnnotation
	}
	return certmanagerv1.IngressIssuerAnnotation
}

func (s *Scene) byProblem() string {
	if code := acme.CodeOf(s.Cause.ProblemType); unproved(Class(s.Cause.Class), code) {
		return s.unproved()
	}
	switch acme.CodeOf(s.Cause.ProblemType) {
	case acme.CodeCAA:
		return fmt.Sprintf("Let the CA issue for %[1]s: name the CA in the CAA record of %[1]s, or of the closest parent that has one, "+
			"or remove that record. The records: dig CAA %[1]s", s.host())
	case acme.CodeRateLimited:
		return patient
	case acme.CodeRejectedIdentifier, acme.CodeUnsupportedIdentifier:
		return "This CA does not issue for a name of the Certificate: take the name out, or choose another issuer"
	case acme.CodeInvalidProfile:
		return s.profile()
	case acme.CodeBadCSR, acme.CodeBadPublicKey:
		return "The CA refuses the key or the names of the request: change spec.privateKey or the names of the Certificate"
	case acme.CodeUserActionRequired:
		return "Visit the address that the CA names, and agree there"
	case acme.CodeExternalAccountRequired:
		return "Set spec.acme.externalAccountBinding of the issuer: the CA gives you a key ID and a MAC key"
	default:
		return ""
	}
}

func (s *Scene) byClass() string {
	switch class := Class(s.Cause.Class); class {
	case Class(fault.ClassValidation), Class(fault.ClassSelfCheck):
		return s.unproved()
	case Class(fault.ClassCredential):
		return s.credential()
	case Class(fault.ClassSolver):
		return s.unpresented()
	case Class(fault.ClassUnavailable):
		return s.unreached()
	case Class(fault.ClassConfiguration):
		return s.configuration()
	case Class(fault.ClassPermanent):
		if s.Order != nil && s.Order.Spec.Profile != "" && s.Order.Status.URL == "" {
			return s.profile()
		}
	case NoSolver:
		if s.Issuer != nil && s.Issuer.GetSpec().ACME != nil && len(s.Issuer.GetSpec().ACME.Solvers) == 0 {
			return NoSolvers
		}
		return SolverFor(s.Cause.Subject)
	case IssuerMissing:
		return s.issuerMissing()
	case IssuerNotReady:
		return s.issuerNotReady()
	case NotApproved:
		switch {
		case s.Request == nil:
		case s.Request.Spec.IssuerRef.IsExternal():
			return fmt.Sprintf("If %q is mistyped, correct spec.issuerRef.group of the Certificate: the annotation %s of an Ingress or Gateway. If it is right, "+
				"have somebody approve the request who may: kubectl chancery approve -n %s %s",
				s.Request.Spec.IssuerRef.Group, certmanagerv1.IssuerGroupAnnotation, s.Request.Namespace, s.Request.Name)
		default:
			return fmt.Sprintf("Approve it, if you may: kubectl chancery approve -n %s %s", s.Request.Namespace, s.Request.Name)
		}
	case Immutable, InTheWay:
		if kind, name, ok := strings.Cut(s.Cause.Subject, " "); ok && s.Namespace != "" {
			return fmt.Sprintf("Delete it, if nobody needs it: it is made anew at once. kubectl delete -n %s %s %s", s.Namespace, strings.ToLower(kind), name)
		}
	case Quota:
		if s.Namespace != "" {
			return quota + " -n " + s.Namespace
		}
	case Paused:
		return fmt.Sprintf("kubectl annotate certificate -n %s %s %s-", s.Namespace, s.Certificate, cmmeta.PausedAnnotation)
	case Denied, Class(fault.ClassPolicy):
		if s.Certificate != "" {
			return helps(class) + fmt.Sprintf(" -n %s %s", s.Namespace, s.Certificate)
		}
	case NoController:
		if group, is := s.external(); is {
			return fmt.Sprintf("See whether the controller of the group %q is installed and runs, and what it logs. If the group is mistyped, correct "+
				"spec.issuerRef.group of the Certificate", group)
		}
	case CAExpired, Other:
		return s.byIssuer()
	default:
	}
	return ""
}

// byIssuer is for failures of no known class: what there is to look at is the issuer's.
func (s *Scene) byIssuer() string {
	switch {
	case s.Issuer == nil:
		return "Correct what the cause names. If it is about an issuer that you may not read, ask whoever runs it"
	case s.Issuer.GetSpec().CA != nil:
		return fmt.Sprintf("Put a CA certificate that is good, and its key, into the Secret %s of the issuer. "+
			"Then have the Certificate issued at once: kubectl chancery renew -n %s %s",
			secretName(s.Issuer, s.Issuer.GetSpec().CA.SecretName), cmp.Or(s.Namespace, "NAMESPACE"), cmp.Or(s.Certificate, "CERTIFICATE"))
	default:
		return correct
	}
}

// NoSolvers is what helps if an ACME issuer has no solvers at all.
const NoSolvers = "Add a solver to spec.acme.solvers of the issuer; or, if this CA should need no proof, ask its operator to allow the name for the ACME account"

// SolverFor returns what helps if no solver of the issuer is for a name: a host, a wildcard or an IP address.
func SolverFor(name string) string {
	switch {
	case strings.HasPrefix(name, "*."):
		return "Add a solver of the type dns01 or dnsPersist01 that selects the name: a wildcard cannot be proved otherwise"
	case strings.Trim(name, "0123456789.") == "" || strings.Contains(name, ":"):
		return "Add a solver of the type http01 or tlsALPN01 that selects the address: an IP address cannot be proved otherwise"
	default:
		return "Change the selectors of spec.acme.solvers of the issuer, or add a solver for the name"
	}
}

func (s *Scene) host() string {
	switch {
	case s.Challenge != nil:
		return s.Challenge.Spec.DNSName
	case s.Cause.Subject != "":
		return strings.TrimPrefix(s.Cause.Subject, "*.")
	case s.Order != nil && len(s.Order.Spec.DNSNames) > 0:
		return strings.TrimPrefix(s.Order.Spec.DNSNames[0], "*.")
	default:
		return "the name"
	}
}

func (s *Scene) profile() string {
	const where = "in spec.acme.profile of the issuer, or in the annotation " + acmev1.ProfileAnnotation + " of the Certificate"
	if s.Order == nil {
		return "Choose a profile that the CA has: " + where
	}
	return fmt.Sprintf("Choose a profile that the CA has, in place of %q: %s", s.Order.Spec.Profile, where)
}

// unproved is for an answer that the CA, or our own check, does not find.
func (s *Scene) unproved() string {
	name := s.host()
	if s.Challenge == nil {
		return ""
	}
	switch s.Challenge.Spec.Type {
	case acmev1.ChallengeTypeHTTP01:
		return fmt.Sprintf("Make http://%[1]s, port 80, lead to this cluster from outside: check the address of %[1]s in DNS, the load balancer and "+
			"firewalls. Try it from outside: curl -v http://%[1]s/.well-known/acme-challenge/test", name)
	case acmev1.ChallengeTypeTLSALPN01:
		return fmt.Sprintf("Make %[1]s, port 443, lead TLS of the protocol acme-tls/1 to the responder, from outside: check DNS, the load balancer and firewalls", name)
	default:
		return fmt.Sprintf("Make the TXT record visible at all name servers of the zone: check that the parent delegates %[1]s to the servers "+
			"that the solver writes to, and that they all have the zone. Look with: dig +trace TXT _acme-challenge.%[1]s", name) + s.unfollowed()
	}
}

// unfollowed is for a solver that does not follow an alias.
func (s *Scene) unfollowed() string {
	if p := s.dns(); p == nil || p.CNAMEStrategy == acmev1.CNAMEStrategyFollow {
		return ""
	}
	return fmt.Sprintf(". If _acme-challenge.%s is an alias (CNAME), remove it, or set cnameStrategy: Follow in the issuer's solver", s.host())
}

// dns is the DNS provider of the Challenge's solver; nil if there is none.
func (s *Scene) dns() *acmev1.DNS01Solver {
	if s.Challenge == nil {
		return nil
	}
	return s.Challenge.Spec.Solver.DNS01
}

// credential is for a DNS provider that does not take the credential, or a webhook that does not let the controller in.
func (s *Scene) credential() string {
	p := s.dns()
	switch {
	case p == nil:
		return ""
	case p.RFC2136 != nil:
		return fmt.Sprintf("Put the secret of TSIG key %q, as the DNS server %s has it, into the Secret %s (key %q), or correct tsigKeyName and "+
			"tsigAlgorithm of the issuer's solver", p.RFC2136.TSIGKeyName, p.RFC2136.Nameserver,
			secretName(s.Issuer, p.RFC2136.TSIGSecretSecretRef.Name), p.RFC2136.TSIGSecretSecretRef.Key)
	case p.Webhook != nil && p.Webhook.URL == "":
		return fmt.Sprintf("Give the controller's service account the right to create %s in the API group %s: bind the ClusterRole of the webhook to it",
			p.Webhook.SolverName, p.Webhook.GroupName)
	case p.Webhook != nil:
		return "Have the server of the webhook let this controller in: check the client certificate that the solver names, and what the server trusts"
	default:
		return ""
	}
}

// unreached is for a server that does not answer.
func (s *Scene) unreached() string {
	p := s.dns()
	switch {
	case p == nil:
		return ""
	case p.RFC2136 != nil:
		return fmt.Sprintf("Check nameserver %s of the issuer's solver, that a DNS server listens there, and that firewalls and network policies let "+
			"the controller through", p.RFC2136.Nameserver)
	case p.Webhook != nil && p.Webhook.URL == "":
		return fmt.Sprintf("Check that the webhook is installed and its Pods run: kubectl get apiservice v1alpha1.%s", p.Webhook.GroupName)
	case p.Webhook != nil || p.AcmeDNS != nil:
		return ""
	default:
		return "Check that the program of the DNS provider, such as chancery-dns, is installed, runs, and reaches the provider: --dns01-provider-programs " +
			"of the controller says where it is looked for"
	}
}

// configuration is for a setting, or an object in the cluster, that is missing or wrong.
func (s *Scene) configuration() string {
	p := s.dns()
	if p == nil || s.Challenge.Spec.IssuerRef.KindOrDefault() != cmmeta.DefaultIssuerKind {
		return ""
	}
	const or = ", or have the operator start the controller with "
	switch {
	case p.Exec != nil:
		return "Move the solver to a ClusterIssuer: Issuers may not name a program" + or + "--dns01-exec-in-issuers"
	case p.Webhook != nil && p.Webhook.URL != "":
		return "Move the solver to a ClusterIssuer: Issuers may not name the address of a webhook" + or + "--dns01-webhook-urls-in-issuers"
	default:
		return ""
	}
}

// unpresented is for a solver that cannot present the answer.
func (s *Scene) unpresented() string {
	if s.dns() == nil {
		return ""
	}
	return fmt.Sprintf("Check that the provider of the issuer's solver serves the zone of %[1]s, and that the solver's credential may change it. "+
		"Who serves the zone: dig +trace NS %[1]s. For a zone elsewhere, give the issuer another solver with a selector", s.host())
}

// secretName is a Secret of an issuer, for people.
func secretName(issuer certmanagerv1.GenericIssuer, name string) string {
	if issuer != nil && issuer.GetNamespace() != "" {
		return issuer.GetNamespace() + "/" + name
	}
	return name + " (for a ClusterIssuer: in the cluster resource namespace, which is the controller's by default)"
}

// issuerMissing is for a reference that leads nowhere.
func (s *Scene) issuerMissing() string {
	if s.OtherKind == "" {
		return ""
	}
	switch {
	case s.Owner != "":
		return fmt.Sprintf("%s has that name, and is named by another annotation: %s", s.OtherKind, s.annotate())
	case s.Certificate == "":
		return "Set kind: " + s.OtherKind + " in the reference"
	}
	return fmt.Sprintf("Name the kind in the reference, %[1]s has that name: kubectl patch certificate -n %[2]s %[3]s --type merge -p "+
		`'{"spec":{"issuerRef":{"kind":"%[1]s"}}}'`, s.OtherKind, s.Namespace, s.Certificate)
}

// issuerNotReady goes by the reason of the issuer's condition Ready.
func (s *Scene) issuerNotReady() string {
	if s.Issuer == nil {
		return ""
	}
	spec, name := s.Issuer.GetSpec(), s.Cause.Subject
	reason := ""
	if ready := certmanagerv1.FindIssuerCondition(s.Issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady); ready != nil {
		reason = ready.Reason
		if certmanagerv1.ForPodsOnly(s.Issuer) && ready.Status == cmmeta.ConditionTrue {
			return "Take another issuer"
		}
	}
	switch reason {
	case certmanagerv1.IssuerReasonErrGetKeyPair, certmanagerv1.IssuerReasonErrInvalidKeyPair:
		if spec.CA == nil {
			return correct
		}
		return fmt.Sprintf("Put the CA's certificate (tls.crt) and the private key that belongs to it (tls.key) into the Secret %s, "+
			"or correct spec.ca.secretName of %s", secretName(s.Issuer, spec.CA.SecretName), name)
	case certmanagerv1.IssuerReasonErrRegisterACMEAccount, certmanagerv1.IssuerReasonErrVerifyACMEAccount, certmanagerv1.IssuerReasonErrUpdateACMEAccount:
		if spec.ACME == nil {
			return correct
		}
		return fmt.Sprintf("Check spec.acme of %s: server, caBundle, externalAccountBinding, and the key of its account in the Secret %s",
			name, secretName(s.Issuer, spec.ACME.PrivateKey.Name))
	case certmanagerv1.IssuerReasonInvalidSolver:
		return "Correct the solver in spec.acme.solvers of " + name + ", or the Secret that it names"
	case certmanagerv1.IssuerReasonVaultError:
		return "Check spec.vault of " + name + ": server, path, and the credential in auth, whose policy in Vault has to allow what the cause names"
	case "":
		return helps(NoController)
	default:
		return "Correct " + name + " as the cause says: the Certificate goes on by itself then"
	}
}
