package explain

import (
	"fmt"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/pki"
)

// The classes of trouble with a CA.
const (
	classCAExpired  = "CA expired"
	classCATooShort = "CA too short"
	classCAExpires  = "CA expires soon"
)

// ofAuthority says what is wrong with a CA above a certificate that is good: it has expired, it expires before the
// certificate, or the certificate was shortened to its end. A CA issuer signs all the same.
func (w *World) ofAuthority(crt *certmanagerv1.Certificate) Trouble {
	request := w.requestOf(crt)
	if request == nil || Describe(request).Outcome != Issued {
		return Trouble{}
	}
	chain, err := pki.DecodeChain(request.Status.Certificate)
	if err != nil || len(chain) == 0 {
		return Trouble{} // what cannot be read says nothing
	}
	above, _ := pki.DecodeBundle(request.Status.CA)
	first := pki.FirstToExpire(append(chain[1:len(chain):len(chain)], above...))
	if first == nil || first.Equal(chain[0]) {
		return Trouble{}
	}
	scene := w.sceneOf(crt, cause.New(cause.CAExpired, "", "", ""))
	t := Trouble{WhatToDo: scene.Cure()}
	leaf, ends := chain[0], first.NotAfter.UTC().Format(time.RFC3339)
	asked := request.Spec.Duration
	switch {
	case w.now.After(first.NotAfter):
		t.Class = classCAExpired
		t.Cause = fmt.Sprintf("the CA certificate %q above this certificate expired on %s: clients do not trust it", first.Subject, ends)
	case first.NotAfter.Before(leaf.NotAfter):
		t.Class = classCATooShort
		t.Cause = fmt.Sprintf("the CA certificate %q above this certificate expires on %s, before the certificate does: clients do not trust it from then on",
			first.Subject, ends)
	case first.NotAfter.Sub(leaf.NotAfter) < time.Minute && asked != nil && leaf.NotAfter.Sub(leaf.NotBefore) < asked.Duration:
		t.Class = classCATooShort
		t.Cause = fmt.Sprintf("the certificate was shortened: it expires on %s with the CA certificate %q, and not after the %s that were asked for",
			ends, first.Subject, asked.Duration)
	default:
		return Trouble{}
	}
	if crt.Status.RenewalTime != nil {
		t.NextTry = "with the renewal, at " + crt.Status.RenewalTime.UTC().Format(time.RFC3339)
	}
	return t
}

// The CA of an issuer expires soon if less than soon is left, and less than this part of its lifetime: a CA that is
// renewed by itself in time does not. The alert ChanceryCAExpiring goes by the same numbers.
const (
	soon     = 30 * 24 * time.Hour
	soonPart = 4
)

// CAExpiresSoon reports whether a CA that is valid from notBefore until notAfter should have been renewed by now.
func CAExpiresSoon(notBefore, notAfter, now time.Time) bool {
	return notAfter.Sub(now) < min(soon, notAfter.Sub(notBefore)/soonPart)
}

// ofIssuersCA says whether the CA of an issuer has expired, or expires soon.
func ofIssuersCA(name string, issuer certmanagerv1.GenericIssuer, now time.Time) Trouble {
	ca := issuer.GetStatus().CA
	if issuer.GetSpec().CA == nil || ca == nil || ca.NotAfter == nil || ca.NotBefore == nil {
		return Trouble{}
	}
	ends, words := ca.NotAfter.Time, ca.NotAfter.UTC().Format(time.RFC3339)
	t := Trouble{
		NextTry: "as soon as the Secret has another CA",
		WhatToDo: fmt.Sprintf("Renew the CA in Secret %s. If a Certificate writes that Secret, see why it is not renewed: kubectl chancery status secret/%[1]s",
			issuer.GetSpec().CA.SecretName),
	}
	switch {
	case !now.Before(ends):
		t.Class, t.Cause = classCAExpired, fmt.Sprintf("a CA certificate of %s expired on %s: clients trust nothing that the issuer has signed", name, words)
	case CAExpiresSoon(ca.NotBefore.Time, ends, now):
		t.Class, t.Cause = classCAExpires, fmt.Sprintf("a CA certificate of %s expires on %s: from then on, clients trust nothing that the issuer has signed", name, words)
	default:
		return Trouble{}
	}
	return t
}
