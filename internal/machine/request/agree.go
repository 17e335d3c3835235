package request

import (
	"crypto/x509"
	"fmt"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// Asked is what approvers judge of a request, and its PKCS#10 request.
type Asked struct {
	// CSR is the PKCS#10 request in PEM.
	CSR []byte
	// IsCA and Usages are what the certificate is to be good for.
	IsCA   bool
	Usages []certmanagerv1.KeyUsage
	// CertSign says that IsCA implies the usage cert sign: it does for CertificateRequests only
	// (spec §4.4).
	CertSign bool
	// Server is the type of the issuer where another program signs, which takes no ML-DSA keys; empty for others.
	Server string
}

// Disagreement says where the PKCS#10 request contradicts what the request says; nil if it does not. Some issuers hand
// the PKCS#10 request on as it is, so an approver that judges the request would approve something else. A PKCS#10
// request without extensions for usages or basic constraints says nothing. It is an error as well if an issuer may find
// in it what we cannot read. The Signer refuses what is no PKCS#10 request at all. The error is a fault.Terminal with
// the reason.
func Disagreement(a Asked, reason string) error {
	csr, err := pki.ParseCSR(a.CSR)
	if err != nil {
		return nil //nolint:nilerr // the Signer says so
	}
	if err := a.against(csr); err != nil {
		return fault.Failed(fault.ClassPermanent, reason, "%w", err)
	}
	return nil
}

func (a Asked) against(csr *x509.CertificateRequest) error {
	if a.Server != "" && pki.IsMLDSA(csr.PublicKey) {
		return fmt.Errorf("an issuer of the type %s takes no ML-DSA keys: take a CA or SelfSigned issuer, or another privateKey.algorithm", a.Server)
	}
	usages, err := pki.ParseUsages(a.Usages, a.IsCA && a.CertSign, csr.PublicKey)
	if err != nil {
		return err
	}
	facts, err := pki.InspectCSR(csr)
	if err != nil {
		return err
	}
	if err := facts.Disagreement(a.IsCA, usages); err != nil {
		return fmt.Errorf("the request contradicts its encoded certificate request: %w", err)
	}
	return pki.HiddenExtensions(csr)
}
