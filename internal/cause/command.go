package cause

import (
	"cmp"
	"slices"
	"strings"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// Command is what to run first against a cause: it helps, or shows what has to be changed. It is quoted for a shell,
// since strangers choose names; it is empty where nothing is known that one could run.
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
	unproved := Class(s.Cause.Class) == Class(fault.ClassValidation) || Class(s.Cause.Class) == Class(fault.ClassSelfCheck) ||
		slices.Contains([]acme.Code{
			acme.CodeConnection, acme.CodeTLS, acme.CodeDNS, acme.CodeUnauthorized, acme.CodeIncorrectResponse,
		}, code)
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
		if s.OtherKind != "" && s.Certificate != "" {
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
		return "kubectl get pods -n cert-manager"
	case Denied, CAExpired, Class(fault.ClassPolicy), Class(fault.ClassPermanent):
		if s.Certificate != "" {
			return shell("kubectl", "chancery", "renew", "-n", s.Namespace, s.Certificate)
		}
	default:
	}
	return ""
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
