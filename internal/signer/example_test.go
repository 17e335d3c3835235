package signer_test

import (
	"context"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// house is a new type of issuer: it signs with a CA that it has at hand. internal/app/wire.go is where it gets its
// place among the others.
type house struct {
	ca  *x509.Certificate
	key crypto.Signer
	now func() time.Time
}

// Sign implements signer.Signer.
func (h *house) Sign(_ context.Context, _ certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	template, err := r.Template(pki.Issuance{NotBefore: h.now()})
	if err != nil {
		// Repeating does not cure what is asked for.
		return signer.Result{}, fault.Failed(fault.ClassPermanent, "SigningError", "the request cannot be signed: %w", err)
	}
	leaf, err := pki.Sign(template, h.ca, h.key)
	if err != nil {
		return signer.Result{}, err // it is tried again, with back-off
	}
	return signer.Result{Bundle: signer.Bundle{Chain: pki.EncodeCertificates(leaf), CA: pki.EncodeCertificates(h.ca)}}, nil
}

// NeedsKey implements signer.InLine: nothing leaves the process.
func (h *house) NeedsKey() bool { return false }

func ExampleSigner() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		panic(err)
	}
	root := &x509.Certificate{
		Subject: pkix.Name{CommonName: "house"}, NotBefore: now, NotAfter: now.AddDate(1, 0, 0), PublicKey: key.Public(),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca, err := pki.Sign(root, root, key)
	if err != nil {
		panic(err)
	}
	var s signer.Signer = &house{ca: ca, key: key, now: func() time.Time { return now }}
	csr, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"www.example.com"}}}, key)
	if err != nil {
		panic(err)
	}
	result, err := s.Sign(context.Background(), &certmanagerv1.Issuer{}, signer.Request{
		CSR: csr, Duration: 24 * time.Hour, Usages: []certmanagerv1.KeyUsage{certmanagerv1.UsageServerAuth}, SourceKind: certmanagerv1.CertificateRequestKind,
	})
	if err != nil {
		panic(err)
	}
	leaf, err := pki.DecodeCertificate(result.Bundle.Chain)
	fmt.Println(leaf.DNSNames, leaf.Issuer.CommonName, leaf.NotAfter.Sub(now), err)
	// Output: [www.example.com] house 24h0m0s <nil>
}
