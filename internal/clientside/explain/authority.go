package explain

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/pki"
)

// The classes of trouble with a CA.
const (
	ClassCAExpired  = "CA expired"
	classCATooShort = "CA too short"
	classCAExpires  = "CA expires soon"
)

// signed is what is known of a certificate and what is above it.
type signed struct {
	// ends is when the certificate expires, and lives how long it is valid; asked is what was asked for.
	ends  time.Time
	lives time.Duration
	asked *metav1.Duration
	// ca names the certificate of the CA that expires first, and caEnds is when.
	ca     string
	caEnds time.Time
}

// above is what is known of the CA above a certificate: from the last request that was issued or, where none is
// there, from the status of a CA issuer; nil for nothing.
func (w *Cluster) above(crt *certmanagerv1.Certificate) *signed {
	for _, request := range slices.Backward(w.Requests(crt)) {
		if Describe(request).Outcome == Issued {
			return aboveIn(request)
		}
	}
	issuer, _ := w.issuer(crt.Spec.IssuerRef, crt.Namespace)
	s := crt.Status
	if issuer == nil || issuer.GetSpec().CA == nil || issuer.GetStatus().CA == nil || issuer.GetStatus().CA.NotAfter == nil ||
		s.NotAfter == nil || s.NotBefore == nil {
		return nil
	}
	return &signed{
		ends: s.NotAfter.Time, lives: s.NotAfter.Sub(s.NotBefore.Time), asked: crt.Spec.Duration,
		ca: "of " + Name(KindOf(issuer), issuer.GetNamespace(), issuer.GetName()), caEnds: issuer.GetStatus().CA.NotAfter.Time,
	}
}

// aboveIn is what the certificates of a request say.
func aboveIn(request *certmanagerv1.CertificateRequest) *signed {
	chain, err := pki.DecodeChain(request.Status.Certificate)
	if err != nil || len(chain) == 0 {
		return nil // what cannot be read says nothing
	}
	cas, _ := pki.DecodeBundle(request.Status.CA)
	above := chain[1:]
	if len(cas) > 0 { // the others are older roots, and links to them
		path, _ := pki.SplitPath(chain[0], above, cas[0])
		above = slices.Concat(path, cas[:1])
	}
	first := pki.FirstToExpire(above)
	if first == nil || first.Equal(chain[0]) {
		return nil
	}
	return &signed{
		ends: chain[0].NotAfter, lives: chain[0].NotAfter.Sub(chain[0].NotBefore), asked: request.Spec.Duration,
		ca: strconv.Quote(first.Subject.String()), caEnds: first.NotAfter,
	}
}

// ofAuthority says what is wrong with a CA above a certificate that is good: it has expired, it expires before the
// certificate, or the certificate was shortened to its end. A CA issuer signs all the same.
func (w *Cluster) ofAuthority(crt *certmanagerv1.Certificate, above *signed) Trouble {
	if above == nil {
		return Trouble{}
	}
	scene := w.sceneOf(crt, cause.New(cause.CAExpired, "", "", ""))
	t := Trouble{WhatToDo: scene.Cure(), Command: scene.Command()}
	ends := above.caEnds.UTC().Format(time.RFC3339)
	switch {
	case !w.now.Before(above.caEnds):
		t.Class = ClassCAExpired
		t.Cause = fmt.Sprintf("the CA certificate %s above this certificate expired on %s: clients do not trust it", above.ca, ends)
	case above.caEnds.Before(above.ends):
		t.Class = classCATooShort
		t.Cause = fmt.Sprintf("the CA certificate %s above this certificate expires on %s, before the certificate does: clients do not trust it from then on",
			above.ca, ends)
	case above.caEnds.Sub(above.ends) < time.Minute && above.asked != nil && above.lives < above.asked.Duration:
		t.Class = classCATooShort
		t.Cause = fmt.Sprintf("the certificate was shortened: it expires on %s with the CA certificate %s, and not after the %s that were asked for",
			ends, above.ca, above.asked.Duration)
	default:
		return Trouble{}
	}
	if due := crt.Status.RenewalTime; due != nil {
		t.NextTry = "with the renewal, at " + due.UTC().Format(time.RFC3339)
		if due.After(above.caEnds) {
			t.NextTry += ", after the CA certificate has expired"
		}
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
		t.Class, t.Cause = ClassCAExpired, fmt.Sprintf("a CA certificate of %s expired on %s: clients trust nothing that the issuer has signed", name, words)
	case CAExpiresSoon(ca.NotBefore.Time, ends, now):
		t.Class, t.Cause = classCAExpires, fmt.Sprintf("a CA certificate of %s expires on %s: from then on, clients trust nothing that the issuer has signed", name, words)
	default:
		return Trouble{}
	}
	return t
}
