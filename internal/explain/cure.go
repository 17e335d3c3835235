package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/certificate"
)

// failure is what is known of what went wrong. All but the cause may be unknown.
type failure struct {
	cause     string
	class     fault.Class
	problem   acme.Code
	request   *certmanagerv1.CertificateRequest
	order     *acmev1.Order
	challenge *acmev1.Challenge
	issuer    certmanagerv1.GenericIssuer
}

const (
	mend    = "Mend what the cause names; it goes on by itself then"
	unpause = "Mend first why the CA could not validate the names before. Then open the link in the cause, and lift the pause there. " +
		"The order is tried again by itself"
	patient = "Wait: it is tried again by itself. Do not delete the Certificate and make it anew: each order counts against the limit. Another issuer can help sooner"
)

// cure is what helps. It goes by the problem that the CA named (RFC 8555 §6.7), then by the class of the failure.
func (f *failure) cure() string {
	if f.class == fault.ClassPaused { // whose problem type is that of a limit
		return unpause
	}
	if c := f.byProblem(); c != "" {
		return c
	}
	return f.byClass()
}

// kind is the class of the trouble.
func (f *failure) kind() string {
	if f.class == fault.ClassPaused {
		return string(f.class)
	}
	return cmp.Or(string(f.problem), string(f.class))
}

func (f *failure) byProblem() string {
	switch f.problem {
	case acme.CodeCAA:
		return fmt.Sprintf("Let the CA issue for %[1]s: name the CA in the CAA record of %[1]s, or of the closest parent that has one, "+
			"or remove that record. The records: dig CAA %[1]s", f.domain())
	case acme.CodeConnection, acme.CodeTLS, acme.CodeDNS, acme.CodeUnauthorized, acme.CodeIncorrectResponse:
		return f.unproved()
	case acme.CodeRateLimited:
		return patient
	case acme.CodeRejectedIdentifier, acme.CodeUnsupportedIdentifier:
		return "This CA does not issue for a name of the Certificate: take the name out, or choose another issuer"
	case acme.CodeInvalidProfile:
		return f.profile()
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

func (f *failure) byClass() string {
	switch f.class {
	case fault.ClassValidation, fault.ClassSelfCheck:
		return f.unproved()
	case fault.ClassCredential:
		return f.credential()
	case fault.ClassSolver:
		return f.unpresented()
	case fault.ClassConfiguration:
		return mend
	case fault.ClassRateLimited:
		return patient
	case fault.ClassUnavailable:
		return "Nothing to change here: the other side is out of order or cannot be reached, and is tried again. If that lasts, " +
			"look at its status page, and at the network policies of the controller's namespace"
	case fault.ClassPolicy:
		return "Ask for what the CA's policy allows, or have its administrator allow what the Certificate asks for"
	case fault.ClassPermanent:
		if f.order != nil && f.order.Spec.Profile != "" && f.order.Status.URL == "" {
			return f.profile()
		}
		return "Change the Certificate or the issuer as the cause says: the same request would be refused again"
	default:
		return f.byIssuer()
	}
}

// byIssuer is for failures of no known class: what there is to look at is the issuer's.
func (f *failure) byIssuer() string {
	if f.issuer == nil {
		return "Mend what the cause names. If it is about an issuer that you may not read, ask whoever runs it"
	}
	switch spec := f.issuer.GetSpec(); {
	case spec.CA != nil && f.request != nil:
		return fmt.Sprintf("Put a CA certificate that is good, and its key, into the Secret %s of the issuer. "+
			"Then have the Certificate issued at once: kubectl chancery renew -n %s %s", secretName(f.issuer, spec.CA.SecretName), f.request.Namespace, f.certificate())
	default:
		return mend
	}
}

// certificate is the name of the Certificate that made the request.
func (f *failure) certificate() string {
	return cmp.Or(f.request.Annotations[certmanagerv1.CertificateNameAnnotation], "CERTIFICATE")
}

func (f *failure) domain() string {
	switch {
	case f.challenge != nil:
		return f.challenge.Spec.DNSName
	case f.order != nil && len(f.order.Spec.DNSNames) > 0:
		return strings.TrimPrefix(f.order.Spec.DNSNames[0], "*.")
	default:
		return "the name"
	}
}

func (f *failure) profile() string {
	return fmt.Sprintf("Choose a profile that the CA has, in place of %q: in spec.acme.profile of the issuer, or in the annotation %s of the Certificate",
		f.order.Spec.Profile, acmev1.ProfileAnnotation)
}

// unproved is for an answer that the CA, or our own check, does not find.
func (f *failure) unproved() string {
	name := f.domain()
	if f.challenge == nil {
		return "Make the proof that the cause names visible for the CA, from outside"
	}
	switch f.challenge.Spec.Type {
	case acmev1.ChallengeTypeHTTP01:
		return fmt.Sprintf("Make http://%[1]s, port 80, lead to this cluster from outside: check the address of %[1]s in DNS, the load balancer and "+
			"firewalls. Try it from outside: curl -v http://%[1]s/.well-known/acme-challenge/test", name)
	case acmev1.ChallengeTypeTLSALPN01:
		return fmt.Sprintf("Make %[1]s, port 443, lead TLS of the protocol acme-tls/1 to the responder, from outside: check DNS, the load balancer and firewalls", name)
	default:
		return fmt.Sprintf("Make the TXT record visible at all name servers of the zone: check that the parent delegates %[1]s to the servers "+
			"that the solver writes to, and that they all have the zone. Look with: dig +trace TXT _acme-challenge.%[1]s", name)
	}
}

// credential is for a DNS provider that does not take the credential.
func (f *failure) credential() string {
	if c := f.challenge; c != nil && c.Spec.Solver.DNS01 != nil && c.Spec.Solver.DNS01.RFC2136 != nil {
		p := c.Spec.Solver.DNS01.RFC2136
		return fmt.Sprintf("Put the secret of TSIG key %q, as the DNS server %s has it, into the Secret %s (key %q), or correct tsigKeyName and "+
			"tsigAlgorithm of the issuer's solver", p.TSIGKeyName, p.Nameserver, secretName(f.issuer, p.TSIGSecretSecretRef.Name), p.TSIGSecretSecretRef.Key)
	}
	return "Correct the credential in the Secret that the issuer's solver names: a changed Secret is tried at once"
}

// unpresented is for a solver that cannot present the answer.
func (f *failure) unpresented() string {
	if c := f.challenge; c != nil && c.Spec.Solver.DNS01 != nil {
		return fmt.Sprintf("Check that the provider of the issuer's solver serves the zone of %[1]s, and that the solver's credential may change it. "+
			"Who serves the zone: dig +trace NS %[1]s. For a zone elsewhere, give the issuer another solver with a selector", f.domain())
	}
	return "Mend what keeps the solver from presenting the answer: the cause names it"
}

// secretName is a Secret of an issuer, for people.
func secretName(issuer certmanagerv1.GenericIssuer, name string) string {
	if issuer != nil && issuer.GetNamespace() != "" {
		return issuer.GetNamespace() + "/" + name
	}
	return name + " (for a ClusterIssuer: in the namespace of the controller)"
}

// cureOfIssuer goes by the reason of the condition Ready.
func cureOfIssuer(name string, issuer certmanagerv1.GenericIssuer, reason string) string {
	spec := issuer.GetSpec()
	switch reason {
	case certmanagerv1.IssuerReasonErrGetKeyPair, certmanagerv1.IssuerReasonErrInvalidKeyPair:
		if spec.CA == nil {
			return mend
		}
		return fmt.Sprintf("Put the CA's certificate (tls.crt) and the private key that belongs to it (tls.key) into the Secret %s, "+
			"or correct spec.ca.secretName of %s", secretName(issuer, spec.CA.SecretName), name)
	case certmanagerv1.IssuerReasonErrRegisterACMEAccount, certmanagerv1.IssuerReasonErrVerifyACMEAccount, certmanagerv1.IssuerReasonErrUpdateACMEAccount:
		return "Check spec.acme of " + name + ": server, caBundle, externalAccountBinding, and the Secret of privateKeySecretRef"
	case certmanagerv1.IssuerReasonInvalidSolver:
		return "Correct the solver in spec.acme.solvers of " + name + ", or the Secret that it names"
	case certmanagerv1.IssuerReasonVaultError:
		return "Check spec.vault of " + name + ": server, path, and the credential in auth"
	case "":
		return "See whether the controller runs, and what it logs: kubectl get pods -n cert-manager"
	default:
		return "Correct " + name + " as the cause says; the Certificate goes on by itself then"
	}
}

// cureOfCertificate is for a Certificate that has no request to blame.
func cureOfCertificate(issuing *certmanagerv1.CertificateCondition) string {
	if issuing != nil && issuing.Reason == certificate.ReasonOverBudget {
		return "Have whoever changes or deletes the Secret leave it alone, or choose another spec.secretName"
	}
	return mend
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
	return strings.Join(all, ", ")
}

// namesOf are the names that a Certificate asks for.
func namesOf(crt *certmanagerv1.Certificate) []string {
	s := crt.Spec
	all := slices.Concat([]string{s.CommonName}, s.DNSNames, s.IPAddresses, s.URIs, s.EmailAddresses)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool { return name == "" })
}
