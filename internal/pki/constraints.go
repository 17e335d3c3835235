package pki

import (
	"cmp"
	"encoding/asn1"
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

// encode adds the constraints, if there are any.
func (n *NameConstraints) encode(x *extensions) {
	if n == nil {
		return
	}
	permitted, err := n.Permitted.encode("permitted")
	excluded, err2 := n.Excluded.encode("excluded")
	x.err = cmp.Or(x.err, err, err2)
	if len(permitted)+len(excluded) > 0 {
		x.add(oidNameConstraints, n.Critical, constraints{Permitted: permitted, Excluded: excluded})
	}
}

func (s Subtrees) encode(which string) ([]generalSubtree, error) {
	var out []generalSubtree
	for _, kind := range []struct {
		tag    int
		field  string
		values []string
	}{
		{tagDNS, "dnsDomains", s.DNSDomains}, {tagIP, "ipRanges", s.IPRanges},
		{tagEmail, "emailAddresses", s.EmailAddresses}, {tagURI, "uriDomains", s.URIDomains},
	} {
		for _, v := range kind.values {
			content := []byte(v)
			if kind.tag == tagIP {
				_, network, err := net.ParseCIDR(v)
				if err != nil {
					return nil, fmt.Errorf("nameConstraints.%s.ipRanges: %q is not a CIDR such as 10.0.0.0/8", which, v)
				}
				content = append([]byte(network.IP), network.Mask...)
			} else if !IsIA5(v) {
				return nil, fmt.Errorf("nameConstraints.%s.%s: %q is not ASCII", which, kind.field, v)
			}
			out = append(out, generalSubtree{generalName(kind.tag, content)})
		}
	}
	return out, nil
}
