package venafi

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Venafi/vcert/v5/pkg/certificate"

	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// order is a request in the form that is handed in.
type order struct {
	csr *x509.CertificateRequest
	r   signer.Request
	// fields holds the origin too.
	fields []certificate.CustomField
}

// newOrder checks what every server requires (spec §3.4).
func newOrder(r signer.Request, fields []certificate.CustomField) (order, error) {
	csr, err := pki.DecodeCSR(r.CSR)
	if err != nil {
		return order{}, err
	}
	if len(csr.Subject.Names) == 0 {
		return order{}, errors.New("the certificate request has an empty subject, which Certificate Manager does not issue for: set a common name or another field of the subject")
	}
	if _, is := csr.PublicKey.(ed25519.PublicKey); is {
		return order{}, errors.New("the vcert library does not hand in requests for Ed25519 keys: use RSA or ECDSA")
	}
	return order{csr, r, fields}, nil
}

// wire returns the order for the library: a new one each time, because the library writes to it.
func (o order) wire() (*certificate.Request, error) {
	duration := o.r.Duration
	w := &certificate.Request{
		Subject: o.csr.Subject, DNSNames: o.csr.DNSNames, EmailAddresses: o.csr.EmailAddresses,
		IPAddresses: o.csr.IPAddresses, URIs: o.csr.URIs,
		FriendlyName: friendlyName(o.csr), CsrOrigin: certificate.UserProvidedCSR,
		ChainOption: certificate.ChainOptionRootLast, ValidityDuration: &duration,
		CustomFields: slices.Clone(o.fields),
	}
	switch key := o.csr.PublicKey.(type) {
	case *rsa.PublicKey:
		w.KeyType, w.KeyLength = certificate.KeyTypeRSA, key.N.BitLen()
	case *ecdsa.PublicKey:
		w.KeyType = certificate.KeyTypeECDSA
		if err := w.KeyCurve.Set(key.Curve.Params().Name); err != nil {
			return nil, err
		}
	}
	return w, w.SetCSR(o.r.CSR)
}

// hasCustomFields reports whether there are any beside the origin.
func (o order) hasCustomFields() bool { return len(o.fields) > 1 }

// friendlyName is the name of the object at the server: the first name of the request (spec appendix D).
func friendlyName(csr *x509.CertificateRequest) string {
	switch {
	case csr.Subject.CommonName != "":
		return csr.Subject.CommonName
	case len(csr.DNSNames) > 0:
		return csr.DNSNames[0]
	case len(csr.URIs) > 0:
		return csr.URIs[0].String()
	case len(csr.EmailAddresses) > 0:
		return csr.EmailAddresses[0]
	case len(csr.IPAddresses) > 0:
		return csr.IPAddresses[0].String()
	default:
		return ""
	}
}

// bundle orders what was retrieved into the request's chain.
func (o order) bundle(ctx context.Context, got *certificate.PEMCollection) (signer.Bundle, error) {
	text := strings.Join(append([]string{got.Certificate}, got.Chain...), "\n")
	certs, err := pki.DecodeChain([]byte(text))
	if err != nil {
		return signer.Bundle{}, err
	}
	if err := o.r.Refuses(certs[0], o.csr.PublicKey); err != nil {
		return signer.Bundle{}, err
	}
	chain, err := pki.BuildChain(ctx, certs)
	if err != nil {
		return signer.Bundle{}, err
	}
	if !chain.Certificates[0].Equal(certs[0]) {
		return signer.Bundle{}, fmt.Errorf("the certificate %q is not the lowest of the chain that came with it", certs[0].Subject)
	}
	var b signer.Bundle
	b.Chain, b.CA = chain.PEM()
	return b, nil
}
