package podrequest

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"chancery.dev/internal/pki"
)

// aside is how far from now a certificate may begin: the API server takes no other one.
const aside = 5 * time.Minute

// Refuses returns an error if a certificate must not be handed out for a request that StepSign signs. A Signer that
// asks a server does not know what the server does with the names, and with the lifetime, that it asks for. Whether the
// key is that of the request, the Signer has checked.
func (a *Action) Refuses(leaf *x509.Certificate, now time.Time) error {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	switch {
	case leaf.IsCA, leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
		return errors.New("it is a CA certificate")
	case len(leaf.Subject.Names) > 0:
		return fmt.Errorf("it has the subject %.200q, and has to have none", leaf.Subject.String())
	case !pki.HasNames(leaf, a.Names):
		return fmt.Errorf("it has the names %s, and has to have %s", names(leaf), slices.Concat(a.Names.URIs, a.Names.DNSNames))
	case leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0, !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth), !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return errors.New("it lacks one of the usages digital signature, server auth and client auth")
	case life < Shortest || life > a.Duration:
		return fmt.Errorf("it is valid for %s, and has to be valid for %s to %s", life, Shortest, a.Duration)
	case leaf.NotBefore.Sub(now).Abs() > aside:
		return fmt.Errorf("it is valid from %s on, and has to be valid from now, with %s to either side", leaf.NotBefore.UTC().Format(time.RFC3339), aside)
	default:
		return nil
	}
}

// names are those of a certificate, for people.
func names(leaf *x509.Certificate) string {
	n, err := pki.CertificateAltNames(leaf)
	if err != nil {
		return err.Error()
	}
	all := slices.Concat(n.URIs, n.DNSNames, n.IPAddresses, n.EmailAddresses)
	for _, other := range n.OtherNames {
		all = append(all, other.Value)
	}
	return fmt.Sprintf("%.300q", all)
}
