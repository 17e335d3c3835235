package pki

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net"
)

// NameConstraints limit what a CA may sign (RFC 5280 §4.2.1.10).
type NameConstraints struct {
	// Critical makes software that does not understand the limits refuse the CA.
	Critical bool
	// Permitted and Excluded are the subtrees inside and outside the limits.
	Permitted, Excluded Subtrees
}

// Subtrees are parts of the spaces of names.
type Subtrees struct {
	// IPRanges are in CIDR notation.
	DNSDomains, IPRanges, EmailAddresses, URIDomains []string
}

// generalSubtree has no minimum and maximum: RFC 5280 forbids them.
type generalSubtree struct {
	Base asn1.RawValue
}

type constraints struct {
	Permitted []generalSubtree `asn1:"optional,omitempty,tag:0"`
	Excluded  []generalSubtree `asn1:"optional,omitempty,tag:1"`
}

// extension encodes the constraints; nil if there are none.
func (n *NameConstraints) extension() (*pkix.Extension, error) {
	if n == nil {
		return nil, nil
	}
	permitted, err := n.Permitted.encode("permitted")
	if err != nil {
		return nil, err
	}
	excluded, err := n.Excluded.encode("excluded")
	if err != nil {
		return nil, err
	}
	if len(permitted) == 0 && len(excluded) == 0 {
		return nil, nil
	}
	der, err := asn1.Marshal(constraints{Permitted: permitted, Excluded: excluded})
	if err != nil {
		return nil, fmt.Errorf("encode name constraints: %w", err)
	}
	return &pkix.Extension{Id: oidNameConstraints, Critical: n.Critical, Value: der}, nil
}

func (s Subtrees) encode(which string) ([]generalSubtree, error) {
	var out []generalSubtree
	add := func(tag int, content []byte) { out = append(out, generalSubtree{generalName(tag, content)}) }
	text := func(tag int, field string, values []string) error {
		for _, v := range values {
			if !isIA5(v) {
				return fmt.Errorf("nameConstraints.%s.%s: %q is not ASCII", which, field, v)
			}
			add(tag, []byte(v))
		}
		return nil
	}
	if err := text(tagDNS, "dnsDomains", s.DNSDomains); err != nil {
		return nil, err
	}
	for _, v := range s.IPRanges {
		_, network, err := net.ParseCIDR(v)
		if err != nil {
			return nil, fmt.Errorf("nameConstraints.%s.ipRanges: %q is not a CIDR such as 10.0.0.0/8", which, v)
		}
		add(tagIP, append([]byte(network.IP), network.Mask...))
	}
	err := errors.Join(
		text(tagEmail, "emailAddresses", s.EmailAddresses),
		text(tagURI, "uriDomains", s.URIDomains),
	)
	return out, err
}
