package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
)

// Chain is a downloaded certificate with its issuers (RFC 8555 §7.4.2).
type Chain struct {
	// PEM is the certificates and nothing else, whatever the server sent around them.
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
	return &Chain{PEM: pki.EncodeCertificates(certs...), Certificates: certs, Alternates: r.alternates(maxAlternates)}, nil
}

// maxAlternates bounds how many alternate chains are returned: each may be downloaded.
const maxAlternates = limits.Alternates

// parseChain reads a PEM chain. RFC 8555 §11.4 tells us to refuse anything but certificates: a private
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
	// The decoder passes over a block that it cannot read, and another reader may not: it may be a key.
	if bytes.Count(data, []byte("-----BEGIN")) != len(certs) {
		return nil, errors.New("the certificate chain holds a PEM block that does not parse")
	}
	return certs, nil
}

// alternates are the targets of the Link headers with the relation "alternate" (RFC 8555 §7.4.2, RFC 8288), as absolute
// URLs: the first ones, at most limit.
func (r *response) alternates(limit int) []string {
	var urls []string
	for _, header := range r.header.Values("Link") {
		for len(urls) < limit {
			target, relation, rest, ok := cutLink(header)
			if !ok {
				break
			}
			if header = rest; slices.ContainsFunc(strings.Fields(relation), func(r string) bool { return strings.EqualFold(r, "alternate") }) {
				if url := r.absolute(target); url != "" {
					urls = append(urls, url)
				}
			}
		}
	}
	return urls
}

// cutLink splits off the first link-value of a Link header: its target, and the first rel, whose further ones are to be
// ignored (RFC 8288 §3.3). What is malformed ends the list.
func cutLink(header string) (target, relation, rest string, ok bool) {
	header, ok = strings.CutPrefix(strings.TrimLeft(header, " \t,"), "<")
	if !ok {
		return "", "", "", false
	}
	if target, rest, ok = strings.Cut(header, ">"); !ok {
		return "", "", "", false
	}
	for seen := false; ; {
		if rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " \t"), ";"); !ok {
			break
		}
		var name, value string
		name, value, rest = cutParameter(rest)
		if !seen && strings.EqualFold(name, "rel") {
			relation, seen = value, true
		}
	}
	if rest != "" && rest[0] != ',' {
		rest = ""
	}
	return target, relation, rest, true
}

// cutParameter splits off a parameter of a link: a name, and perhaps a value, which may be in quotes (RFC 9110 §5.6.4).
func cutParameter(s string) (name, value, rest string) {
	s = strings.TrimLeft(s, " \t")
	name, rest = cutAny(s, " \t=;,")
	rest = strings.TrimLeft(rest, " \t")
	s, ok := strings.CutPrefix(rest, "=")
	if !ok {
		return name, "", rest
	}
	s = strings.TrimLeft(s, " \t")
	if !strings.HasPrefix(s, `"`) {
		value, rest = cutAny(s, ";,")
		return name, strings.TrimRight(value, " \t"), rest
	}
	var text strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return name, text.String(), s[i+1:]
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		text.WriteByte(s[i])
	}
	return name, text.String(), ""
}

// cutAny cuts a text before the first of some characters.
func cutAny(s, chars string) (before, rest string) {
	if at := strings.IndexAny(s, chars); at >= 0 {
		return s[:at], s[at:]
	}
	return s, ""
}
