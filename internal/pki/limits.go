package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"chancery.dev/internal/limits"
)

// CheckLimits returns an error if the certificates of an authority, the signing one first, do not allow a certificate
// that the authority has signed: verifiers refuse such a certificate (RFC 5280 §6.1). The limits are key usage, path
// length, extended key usages, and name constraints for DNS names, addresses, e-mail addresses and URIs. Validity is no
// such limit.
func CheckLimits(cert *x509.Certificate, authority []*x509.Certificate) error {
	below := 0 // CA certificates below the one that is looked at
	if cert.IsCA {
		below++
	}
	for _, ca := range authority {
		if ca.KeyUsage != 0 && ca.KeyUsage&x509.KeyUsageCertSign == 0 {
			return fmt.Errorf("the CA certificate %q has key usages without cert sign: it may sign no certificates", name(ca))
		}
		if limit := ca.MaxPathLen; (limit > 0 || limit == 0 && ca.MaxPathLenZero) && below > limit {
			return fmt.Errorf("the path length of the CA certificate %q is %d: it may have no more CA certificates than that below it", name(ca), limit)
		}
		if err := checkUsages(cert, ca); err != nil {
			return err
		}
		if err := checkNames(cert, ca); err != nil {
			return fmt.Errorf("the name constraints of the CA certificate %q: %w", name(ca), err)
		}
		if !bytes.Equal(ca.RawSubject, ca.RawIssuer) { // self-issued ones do not count
			below++
		}
	}
	return nil
}

func checkUsages(cert, ca *x509.Certificate) error {
	allowed, err := extendedUsages(ca)
	if err != nil || forAll(allowed) {
		return err
	}
	usages, err := extendedUsages(cert)
	permitted := oidSet(allowed)
	for _, usage := range usages {
		if !permitted[usage.String()] {
			return fmt.Errorf("the CA certificate %q is for the usages %q only, not for %q", name(ca),
				KeyUsages{Extended: allowed[:min(len(allowed), limits.Listed)]}.UsageNames(), KeyUsages{Extended: []asn1.ObjectIdentifier{usage}}.UsageNames())
		}
	}
	return err
}

var oidAnyExtKeyUsage = asn1.ObjectIdentifier{2, 5, 29, 37, 0}

func extendedUsages(cert *x509.Certificate) (usages []asn1.ObjectIdentifier, err error) {
	if e := findExtension(cert.Extensions, oidExtKeyUsage); e != nil {
		if _, err := asn1.Unmarshal(e.Value, &usages); err != nil {
			return nil, fmt.Errorf("the extended key usages of %q do not parse: %w", name(cert), err)
		}
	}
	return usages, nil
}

// checkNames compares names with the constraints of a CA. It lets Go's verifier judge stand-ins, a CA with the same
// constraints and certificates with the same names: the verifier may refuse the real certificates for other reasons.
func checkNames(cert, ca *x509.Certificate) error {
	constraints := findExtension(ca.Extensions, oidNameConstraints)
	if constraints == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	const life = time.Hour
	now := time.Unix(0, 0)
	issue := func(template, parent *x509.Certificate) (*x509.Certificate, error) {
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), now, now.Add(life)
		if parent == nil {
			parent = template
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
		if err != nil {
			return nil, err
		}
		return x509.ParseCertificate(der)
	}
	// Not critical: a verifier passes over the kinds of names that it does not know.
	root, err := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "stand-in"}, IsCA: true, BasicConstraintsValid: true,
		ExtraExtensions: []pkix.Extension{{Id: constraints.Id, Value: constraints.Value}},
	}, nil)
	if err != nil {
		return err
	}
	templates := []*x509.Certificate{{}}
	if e := findExtension(cert.Extensions, oidSubjectAltName); e != nil {
		templates[0].ExtraExtensions = []pkix.Extension{{Id: e.Id, Value: e.Value}}
	}
	if cn := cert.Subject.CommonName; isHostname(cn) && !slices.Contains(cert.DNSNames, cn) { // some verifiers take it for one
		templates = append(templates, &x509.Certificate{DNSNames: []string{cn}})
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	options.Roots.AddCert(root)
	for _, template := range templates {
		leaf, err := issue(template, root)
		if err != nil {
			return err
		}
		leaf.UnhandledCriticalExtensions = nil
		if _, err := leaf.Verify(options); err != nil {
			return err
		}
	}
	return nil
}

// isHostname reports whether a common name may be taken for a DNS name.
func isHostname(cn string) bool {
	return strings.Contains(cn, ".") && IsIA5(cn) && !strings.ContainsAny(cn, " @/:")
}
