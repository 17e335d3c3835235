package cause

import (
	"cmp"
	"strings"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// Command returns what to run first against a cause: it helps, or shows what has to be changed. It is quoted for a
// shell, since strangers choose names. It is empty if no command is known.
func (s *Scene) Command() string {
	if s.Cause == nil || s.Cause.Class == string(fault.ClassPaused) {
		return ""
	}
	return cmp.Or(s.look(), s.act())
}

// look shows what the CA sees.
func (s *Scene) look() string {
	code, host := acme.CodeOf(s.Cause.ProblemType), s.host()
	if code == acme.CodeCAA {
		return shell("dig", "CAA", host)
	}
	class := Class(s.Cause.Class)
	unproved := class == Class(fault.ClassValidation) || class == Class(fault.ClassSelfCheck) || unproved(class, code)
	switch {
	case s.Challenge == nil:
		return ""
	case unproved && s.Challenge.Spec.Type == acmev1.ChallengeTypeHTTP01:
		return shell("curl", "-v", "http://"+host+"/.well-known/acme-challenge/test")
	case unproved && s.Challenge.Spec.Type == acmev1.ChallengeTypeTLSALPN01:
		return shell("openssl", "s_client", "-alpn", "acme-tls/1", "-servername", host, "-connect", host+":443")
	case unproved:
		return shell("dig", "+trace", "TXT", "_acme-challenge."+host)
	case Class(s.Cause.Class) == Class(fault.ClassSolver):
		return shell("dig", "+trace", "NS", host)
	default:
		return ""
	}
}

// act goes by the class.
func (s *Scene) act() string {
	switch Class(s.Cause.Class) {
	case IssuerMissing:
		switch {
		case s.OtherKind != "" && s.Owner != "":
			return s.annotate()
		case s.OtherKind != "" && s.Certificate != "":
			return shell("kubectl", "patch", "certificate", "-n", s.Namespace, s.Certificate, "--type", "merge", "-p",
				`{"spec":{"issuerRef":{"kind":"`+s.OtherKind+`"}}}`)
		}
		return "kubectl get clusterissuers,issuers" + s.inNamespace()
	case IssuerNotReady, Class(fault.ClassConfiguration), NoSolver:
		return s.issuer("edit")
	case Class(fault.ClassCredential): // the issuer names the Secret
		return s.issuer("get", "-o", "yaml")
	case NotApproved:
		if s.Request != nil {
			return shell("kubectl", "chancery", "approve", "-n", s.Request.Namespace, s.Request.Name)
		}
	case Immutable, InTheWay:
		if kind, name, ok := strings.Cut(s.Cause.Subject, " "); ok && s.Namespace != "" {
			return shell("kubectl", "delete", "-n", s.Namespace, strings.ToLower(kind), name)
		}
	case Quota:
		return "kubectl describe resourcequota" + s.inNamespace()
	case Paused:
		return shell("kubectl", "annotate", "certificate", "-n", s.Namespace, s.Certificate, cmmeta.PausedAnnotation+"-")
	case NoController:
		if group, is := s.external(); is {
			return shell("kubectl", "api-resources", "--api-group="+group)
		}
		return "kubectl get pods -n cert-manager"
	case Webhook:
		return webhooks
	case Denied, CAExpired, Class(fault.ClassPolicy), Class(fault.ClassPermanent):
		if s.Certificate != "" {
			return shell("kubectl", "chancery", "renew", "-n", s.Namespace, s.Certificate)
		}
	default:
	}
	return ""
}

// annotate has the owner of the Certificate name the issuer by the annotation for its kind.
func (s *Scene) annotate() string {
	kind, name, _ := strings.Cut(s.Owner, " ")
	_, issuer, found := strings.Cut(s.Cause.Subject, "/")
	if !found {
		_, issuer, _ = strings.Cut(s.Cause.Subject, " ")
	}
	right, wrong := certmanagerv1.IngressClusterIssuerAnnotation, certmanagerv1.IngressIssuerAnnotation
	if s.OtherKind != cmmeta.ClusterIssuerKind {
		right, wrong = wrong, right
	}
	return shell("kubectl", "annotate", strings.ToLower(kind), "-n", s.Namespace, name, right+"="+issuer, wrong+"-")
}

// external is the group of an issuer that is not ours; false if it is.
func (s *Scene) external() (group string, is bool) {
	if s.Request == nil || !s.Request.Spec.IssuerRef.IsExternal() {
		return "", false
	}
	return s.Request.Spec.IssuerRef.Group, true
}

// issuer is a command about the issuer.
func (s *Scene) issuer(verb string, flags ...string) string {
	switch i := s.Issuer.(type) {
	case *certmanagerv1.ClusterIssuer:
		return shell(append([]string{"kubectl", verb, "clusterissuer", i.Name}, flags...)...)
	case *certmanagerv1.Issuer:
		return shell(append([]string{"kubectl", verb, "issuer", "-n", i.Namespace, i.Name}, flags...)...)
	default:
		return ""
	}
}

func (s *Scene) inNamespace() string {
	if s.Namespace == "" {
		return ""
	}
	return " -n " + shell(s.Namespace)
}

// shell joins the words of a command.
func shell(words ...string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:/+@=,"
	for i, word := range words {
		if word == "" || strings.Trim(word, plain) != "" {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
