package vault

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// order is a request in the form that Vault signs.
type order struct {
	path string
	body map[string]any
	csr  *x509.CertificateRequest
	r    signer.Request
}

// backdated is how long before now the certificates of a role begin whose not_before_duration nobody has set.
const backdated = 30 * time.Second

// newOrder translates a request into Vault's parameters (spec appendix D). The alternative names are also parameters,
// for roles that do not take them from the CSR. Where the names are not those of the CSR, the request is a Pod's: its
// Duration is the longest lifetime, from the beginning of the certificate on.
func newOrder(path string, r signer.Request) (*order, error) {
	csr, err := pki.DecodeCSR(r.CSR)
	if err != nil {
		return nil, fmt.Errorf("decode the CSR: %w", err)
	}
	names, ttl := pki.AltNames{DNSNames: csr.DNSNames}, r.Duration
	for _, ip := range csr.IPAddresses {
		names.IPAddresses = append(names.IPAddresses, ip.String())
	}
	for _, uri := range csr.URIs {
		names.URIs = append(names.URIs, uri.String())
	}
	if r.Names != nil {
		names, ttl = *r.Names, r.Duration-backdated
	}
	return &order{path: strings.Trim(path, "/"), csr: csr, r: r, body: map[string]any{
		"common_name":          csr.Subject.CommonName,
		"alt_names":            strings.Join(names.DNSNames, ","),
		"ip_sans":              strings.Join(names.IPAddresses, ","),
		"uri_sans":             strings.Join(names.URIs, ","),
		"ttl":                  ttl.String(),
		"csr":                  string(r.CSR),
		"exclude_cn_from_sans": "true",
	}}, nil
}

// place asks Vault to sign.
func (o *order) place(ctx context.Context, s *session) (signer.Result, error) {
	raw, err := s.write(ctx, o.path, o.body)
	if err != nil {
		return signer.Result{}, err
	}
	result, err := o.read(ctx, raw)
	switch {
	case ctx.Err() != nil:
		return signer.Result{}, s.explain(ctx.Err(), stageSign, o.path)
	case err != nil:
		return signer.Result{}, rejected("Vault %s did not answer with a certificate for the request: %s: spec.vault.path %q has to be one that signs, such as pki/sign/<role>", s.server, fault.Quote(err.Error()), o.path)
	}
	return result, nil
}

// read makes one chain of all certificates in Vault's answer (spec §3.4). The path in Vault, not the request, decides
// whether the certificate is a CA: if the request asks for the other kind, the result has a warning.
func (o *order) read(ctx context.Context, raw json.RawMessage) (signer.Result, error) {
	var signed struct {
		Certificate string   `json:"certificate"`
		IssuingCA   string   `json:"issuing_ca"`
		CAChain     []string `json:"ca_chain"`
	}
	if err := json.Unmarshal(raw, &signed); err != nil {
		return signer.Result{}, err
	}
	leaf, err := pki.DecodeCertificate([]byte(signed.Certificate))
	if err != nil {
		return signer.Result{}, err
	}
	if err := o.r.Refuses(leaf, o.csr.PublicKey); err != nil {
		return signer.Result{}, err
	}
	all := []*x509.Certificate{leaf}
	for _, text := range append(signed.CAChain, signed.IssuingCA) {
		if strings.TrimSpace(text) == "" {
			continue
		}
		certs, err := pki.DecodeBundle([]byte(text))
		if err != nil {
			return signer.Result{}, err
		}
		all = append(all, certs...)
	}
	chain, err := pki.BuildChain(ctx, all)
	if err != nil {
		return signer.Result{}, err
	}
	var out signer.Result
	out.Bundle.Chain, out.Bundle.CA = chain.PEM()
	if o.r.IsCA != leaf.IsCA {
		out.WarningReason = "BasicConstraintsDiffer"
		out.Warning = fmt.Sprintf("isCA is %t in the request and %t in the certificate: that is up to Vault's path %q; CAs are signed by <mount>/root/sign-intermediate", o.r.IsCA, leaf.IsCA, o.path)
	}
	return out, nil
}
