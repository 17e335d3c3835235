package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"chancery.dev/internal/fault"
)

// Chain is a downloaded certificate with its issuers (RFC 8555 §7.4.2).
type Chain struct {
	// PEM is the chain as the server sent it, checked to hold certificates only.
	PEM []byte
	// Certificates are the parsed chain, end entity first.
	Certificates []*x509.Certificate
	// Alternates are the URLs of other chains for the same certificate (§7.4.2), at most 8 of them.
	Alternates []string
}

// FetchCertificate downloads a chain from an order's certificate URL or from an alternate's.
func (c *Client) FetchCertificate(ctx context.Context, url string) (*Chain, error) {
	r, err := c.postKID(ctx, call{action: ActionFetchCert, url: url, limit: maxCertificateBody}, nil)
	if err != nil {
		return nil, err
	}
	certs, err := parseChain(r.body)
	if err != nil {
		return nil, r.broken(err)
	}
	return &Chain{PEM: r.body, Certificates: certs, Alternates: r.alternates(maxAlternates)}, nil
}

// maxAlternates bounds how many alternate chains are returned: each may be downloaded.
const maxAlternates = 8

// parseChain reads a PEM chain. RFC 8555 §11.4 has us refuse anything but certificates: a private
// key in a file that a web server loads would be used.
func parseChain(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := data; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			if len(bytes.TrimSpace(rest)) > 0 {
				return nil, errors.New("the certificate chain holds something that is not PEM")
			}
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("the certificate chain holds a PEM block %q", fault.Quote(block.Type))
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("the certificate chain: %w", err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("the certificate chain is empty")
	}
	return certs, nil
}

// alternates are the targets of the Link headers with the relation "alternate" (RFC 8555 §7.4.2, RFC 8288), as absolute
// URLs: the first ones, at most limit.
func (r *response) alternates(limit int) []string {
	var urls []string
	for _, header := range r.header.Values("Link") {
		for header != "" && len(urls) < limit {
			var target, params string
			target, params, header = cutLink(header)
			if target != "" && hasRelation(params, "alternate") {
				if url := r.absolute(target); url != "" {
					urls = append(urls, url)
				}
			}
		}
	}
	return urls
}

// cutLink splits off the first link-value of a Link header: its target and its parameters.
func cutLink(header string) (target, params, rest string) {
	_, header, ok := strings.Cut(header, "<")
	if !ok {
		return "", "", ""
	}
	target, header, ok = strings.Cut(header, ">")
	if !ok {
		return "", "", ""
	}
	// The next link-value starts at a comma outside of quotes.
	quoted := false
	for i := range len(header) {
		switch {
		case header[i] == '"':
			quoted = !quoted
		case header[i] == ',' && !quoted:
			return target, header[:i], header[i+1:]
		}
	}
	return target, header, ""
}

// hasRelation reports whether link parameters name the relation; rel may list several.
func hasRelation(params, relation string) bool {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "rel") {
			continue
		}
		for rel := range strings.FieldsSeq(strings.Trim(strings.TrimSpace(value), `"`)) {
			if strings.EqualFold(rel, relation) {
				return true
			}
		}
	}
	return false
}
