package certificate

import (
	"fmt"
	"strings"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/facts"
)

// Violation is why a Certificate is not what it should be.
type Violation struct {
	// Reason is a word of spec appendix B.
	Reason string
	// Message is for a person.
	Message string
}

// inspect returns the first thing that is wrong with the Secret of a Certificate
// (spec §2.1, policy 1 to 8), or nil.
func inspect(s *State) *Violation {
	for _, check := range []func(*State) *Violation{
		secretHoldsPair, secretIsOurs, keyMatchesSpec, requestMatchesSecret, requestMatchesSpec,
	} {
		if v := check(s); v != nil {
			return v
		}
	}
	return nil
}

func violation(reason, format string, args ...any) *Violation {
	return &Violation{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func secretHoldsPair(s *State) *Violation {
	name, f := s.Certificate.Spec.SecretName, s.Secret
	switch {
	case f == nil:
		return violation(certmanagerv1.CertificateReasonDoesNotExist, "Secret %q does not exist", name)
	case f.Empty:
		return violation(certmanagerv1.CertificateReasonMissingData, "Secret %q has no data", name)
	case !f.HasKey:
		return violation(certmanagerv1.CertificateReasonMissingData, "Secret %q has no private key in %s", name, cmmeta.TLSPrivateKeyKey)
	case !f.HasCertificate:
		return violation(certmanagerv1.CertificateReasonMissingData, "Secret %q has no certificate in %s", name, cmmeta.TLSCertKey)
	case f.KeyError != nil:
		return violation(certmanagerv1.CertificateReasonInvalidKeyPair, "Secret %q holds a private key that cannot be read: %v", name, f.KeyError)
	case f.CertificateError != nil:
		return violation(certmanagerv1.CertificateReasonInvalidCertificate, "Secret %q holds a certificate that cannot be read: %v", name, f.CertificateError)
	case !f.Key.Same(f.Leaf.Key):
		return violation(certmanagerv1.CertificateReasonInvalidKeyPair, "Secret %q holds a private key that does not belong to its certificate", name)
	default:
		return nil
	}
}

func secretIsOurs(s *State) *Violation {
	crt, f := s.Certificate, s.Secret
	was := f.Issuer
	if !f.IssuerSaid {
		was.Name = crt.Spec.IssuerRef.Name // without any annotation, the name is not compared (spec §2.1, policy 4)
	}
	if f.Leaf.Temporary {
		// The spec has it pass for some kinds of issuers: nobody would replace it once the issuance has failed.
		return violation(certmanagerv1.CertificateReasonIncorrectIssuer,
			"Secret %q holds a temporary certificate, until the issuer in spec.issuerRef has issued one", crt.Spec.SecretName)
	}
	if !was.Equivalent(crt.Spec.IssuerRef) {
		return violation(certmanagerv1.CertificateReasonIncorrectIssuer,
			"Secret %q was issued by %s.%s/%s, not by the issuer in spec.issuerRef",
			crt.Spec.SecretName, was.KindOrDefault(), was.GroupOrDefault(), was.Name)
	}
	if f.Named && f.CertificateName != crt.Name {
		return violation(certmanagerv1.CertificateReasonIncorrectCertificate,
			"Secret %q was issued for Certificate %q", crt.Spec.SecretName, f.CertificateName)
	}
	return nil
}

func keyMatchesSpec(s *State) *Violation {
	wrong := facts.KeySpecOf(&s.Certificate.Spec).ViolationsOf(s.Secret.Key)
	if len(wrong) == 0 {
		return nil
	}
	return violation(certmanagerv1.CertificateReasonSecretMismatch,
		"the private key in Secret %q does not match the spec: %s", s.Certificate.Spec.SecretName, strings.Join(wrong, ", "))
}

func requestMatchesSecret(s *State) *Violation {
	r, ok := s.current()
	if !ok {
		return nil
	}
	if r.Error != nil {
		return violation(certmanagerv1.CertificateReasonInvalidCertificateRequest,
			"CertificateRequest %q cannot be read: %v", r.Name, r.Error)
	}
	if !r.Public.Same(s.Secret.Key) {
		return violation(certmanagerv1.CertificateReasonSecretMismatch,
			"Secret %q holds another private key than CertificateRequest %q was made with", s.Certificate.Spec.SecretName, r.Name)
	}
	return nil
}

func requestMatchesSpec(s *State) *Violation {
	spec := &s.Certificate.Spec
	if r, ok := s.current(); ok {
		wrong, err := facts.RequestViolations(spec, r)
		if err != nil || len(wrong) == 0 {
			return nil
		}
		return violation(certmanagerv1.CertificateReasonRequestChanged,
			"the spec has changed since the certificate was issued: %s", strings.Join(wrong, ", "))
	}
	if wrong := facts.Violations(spec, s.Secret.Leaf); len(wrong) > 0 {
		return violation(certmanagerv1.CertificateReasonSecretMismatch,
			"the certificate in Secret %q does not match the spec: %s", spec.SecretName, strings.Join(wrong, ", "))
	}
	return nil
}

// expired is the last check for readiness (spec §2.5).
func expired(s *State, now time.Time) *Violation {
	if end := s.Secret.Leaf.NotAfter; now.After(end) {
		return violation(certmanagerv1.CertificateReasonExpired, "Certificate expired on %s", end.UTC().Format(time.RFC1123))
	}
	return nil
}
