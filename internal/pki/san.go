package pki

import (
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

var (
	oidSubjectAltName   = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidKeyUsage         = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidExtKeyUsage      = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidBasicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidNameConstraints  = asn1.ObjectIdentifier{2, 5, 29, 30}
)

// Tags of GeneralName (RFC 5280 §4.2.1.6).
const (
	tagOtherName = 0
	tagEmail     = 1
	tagDNS       = 2
	tagURI       = 6
	tagIP        = 7
)

// OtherName is a subject alternative name of a type of its own.
type OtherName struct {
	// OID is the type, in dotted decimal.
	OID string
	// Value is the text of a UTF8String. Where a certificate carries anything but a
	// string, Value is # and the DER in hex.
	Value string
}

// AltNames are the subject alternative names of a request or certificate (RFC 5280 §4.2.1.6), in their order.
type AltNames struct {
	DNSNames, IPAddresses, URIs, EmailAddresses []string
	OtherNames                                  []OtherName
}

// Extension returns the names as an extension of a certificate, which is critical if the certificate has no subject
// (RFC 5280 §4.2.1.6). It is an error if a name cannot be encoded.
func (n AltNames) Extension(critical bool) (pkix.Extension, error) {
	var x extensions
	if n.encode(&x, critical); x.err != nil || len(x.list) == 0 {
		return pkix.Extension{}, cmp.Or(x.err, errors.New("there are no names"))
	}
	return x.list[0], nil
}

// encode adds the names, if there are any, all of one type together, and each once: by its first spelling.
func (n AltNames) encode(x *extensions, critical bool) {
	var names []asn1.RawValue
	known := map[string]bool{}
	add := func(name asn1.RawValue, err error) {
		text := string(name.Bytes)
		switch name.Tag {
		case tagDNS:
			text = canonicalDNSName(text)
		case tagEmail:
			text = canonicalEmail(text)
		}
		if key := fmt.Sprint(name.Tag, " ", text); !known[key] {
			known[key], names = true, append(names, name)
		}
		x.err = cmp.Or(x.err, err)
	}
	for _, v := range n.DNSNames {
		add(dnsName(v))
	}
	for _, v := range n.IPAddresses {
		add(ipAddress(v))
	}
	for _, v := range n.URIs {
		add(uniformResourceIdentifier(v))
	}
	for _, v := range n.EmailAddresses {
		add(rfc822Name(v))
	}
	for _, v := range n.OtherNames {
		add(v.generalName())
	}
	if len(names) > 0 {
		x.add(oidSubjectAltName, critical, names)
	}
}

func dnsName(v string) (asn1.RawValue, error) {
	if v == "" || !IsIA5(v) {
		return asn1.RawValue{}, fmt.Errorf("DNS name %q is empty or not ASCII: write it in its xn-- form", v)
	}
	return generalName(tagDNS, []byte(v)), nil
}

// CheckDNSName returns an error if clients match no host with a DNS name (RFC 5280 §4.2.1.6, RFC 1034 §3.5, RFC 9525
// §6.3). It accepts underscores, because names with them are in use, and an asterisk anywhere in the first label.
func CheckDNSName(v string) error {
	labels := strings.Split(v, ".")
	wrong := len(v) > maxDNSName
	for i, label := range labels {
		wrong = wrong || label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool {
			letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
			return !letter && (r != '*' || i > 0)
		})
	}
	if wrong {
		return fmt.Errorf("%.300q is no DNS name: a name has 253 characters at most, and each label 1 to 63, of letters, digits, '-' and '_'; the first may have a '*'", v)
	}
	return nil
}

func ipAddress(v string) (asn1.RawValue, error) {
	ip := net.ParseIP(v)
	if ip == nil {
		return asn1.RawValue{}, fmt.Errorf("IP address %q does not parse", v)
	}
	if four := ip.To4(); four != nil {
		ip = four
	}
	return generalName(tagIP, ip), nil
}

func uniformResourceIdentifier(v string) (asn1.RawValue, error) {
	u, err := url.Parse(v)
	if err != nil || v == "" || !IsIA5(u.String()) {
		return asn1.RawValue{}, fmt.Errorf("URI %q does not parse or is not ASCII", v)
	}
	return generalName(tagURI, []byte(u.String())), nil
}

func rfc822Name(v string) (asn1.RawValue, error) {
	if v == "" || !IsIA5(v) {
		return asn1.RawValue{}, fmt.Errorf("e-mail address %q is empty or not ASCII", v)
	}
	return generalName(tagEmail, []byte(v)), nil
}

func generalName(tag int, content []byte) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: content}
}

// generalName encodes [0] IMPLICIT SEQUENCE { type-id, [0] EXPLICIT UTF8String }.
func (o OtherName) generalName() (asn1.RawValue, error) {
	oid, err := parseOID(o.OID)
	if err != nil {
		return asn1.RawValue{}, fmt.Errorf("otherName %q: %w", o.OID, err)
	}
	if o.Value == "" || !utf8.ValidString(o.Value) {
		return asn1.RawValue{}, fmt.Errorf("otherName %s: the value must be a non-empty UTF-8 string", o.OID)
	}
	id, err := asn1.Marshal(oid)
	if err != nil {
		return asn1.RawValue{}, fmt.Errorf("otherName %s: %w", o.OID, err)
	}
	text, err := asn1.MarshalWithParams(o.Value, "utf8")
	if err != nil {
		return asn1.RawValue{}, fmt.Errorf("otherName %s: %w", o.OID, err)
	}
	value, err := asn1.Marshal(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: text})
	if err != nil {
		return asn1.RawValue{}, fmt.Errorf("otherName %s: %w", o.OID, err)
	}
	name := generalName(tagOtherName, append(id, value...))
	name.IsCompound = true
	return name, nil
}

// parseOID reads a dotted number; its arcs must fit encoding/asn1, which 31 bits do.
func parseOID(s string) (asn1.ObjectIdentifier, error) {
	oid, err := x509.ParseOID(s)
	if err != nil {
		return nil, errors.New("invalid oid syntax")
	}
	content, err := oid.MarshalBinary()
	if err != nil {
		return nil, errors.New("invalid oid syntax")
	}
	der, err := asn1.Marshal(asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagOID, Bytes: content})
	if err != nil {
		return nil, errors.New("invalid oid syntax")
	}
	var out asn1.ObjectIdentifier
	if _, err := asn1.Unmarshal(der, &out); err != nil {
		return nil, errors.New("invalid oid: a number in it is too large")
	}
	return out, nil
}

// HasNames reports whether a certificate has these alternative names and no others, of whatever type, in any order.
func HasNames(cert *x509.Certificate, names AltNames) bool {
	want, err := names.Extension(false)
	has := findExtension(cert.Extensions, oidSubjectAltName)
	return err == nil && has != nil && slices.Equal(sortedNames(has.Value), sortedNames(want.Value))
}

// sortedNames are the names of an encoded subjectAltName extension; nil if it does not parse.
func sortedNames(extension []byte) (out []string) {
	var names []asn1.RawValue
	if rest, err := asn1.Unmarshal(extension, &names); err != nil || len(rest) > 0 {
		return nil
	}
	for _, name := range names {
		out = append(out, string(name.FullBytes))
	}
	slices.Sort(out)
	return out
}

// parseOtherNames returns the names of crypto/x509's blind spot from an encoded subjectAltName extension.
func parseOtherNames(extensions []pkix.Extension) ([]OtherName, error) {
	e := findExtension(extensions, oidSubjectAltName)
	if e == nil {
		return nil, nil
	}
	var names []asn1.RawValue
	if rest, err := asn1.Unmarshal(e.Value, &names); err != nil || len(rest) > 0 {
		return nil, errors.New("the subject alternative names do not parse")
	}
	var out []OtherName
	for _, name := range names {
		if name.Class != asn1.ClassContextSpecific || name.Tag != tagOtherName {
			continue
		}
		var oid asn1.ObjectIdentifier
		rest, err := asn1.Unmarshal(name.Bytes, &oid)
		if err != nil {
			return nil, fmt.Errorf("type of an otherName: %w", err)
		}
		var wrapped asn1.RawValue
		if rest, err = asn1.Unmarshal(rest, &wrapped); err != nil || len(rest) > 0 {
			return nil, fmt.Errorf("value of otherName %s does not parse", oid)
		}
		out = append(out, OtherName{OID: oid.String(), Value: otherNameValue(wrapped.Bytes)})
	}
	return out, nil
}

func otherNameValue(der []byte) string {
	var text asn1.RawValue
	rest, err := asn1.Unmarshal(der, &text)
	if err == nil && len(rest) == 0 && text.Class == asn1.ClassUniversal && text.Tag == asn1.TagUTF8String && utf8.Valid(text.Bytes) {
		return string(text.Bytes)
	}
	return "#" + hex.EncodeToString(der)
}

func findExtension(extensions []pkix.Extension, oid asn1.ObjectIdentifier) *pkix.Extension {
	for i := range extensions {
		if extensions[i].Id.Equal(oid) {
			return &extensions[i]
		}
	}
	return nil
}

// maxDNSName is how long a DNS name can be (RFC 1035 §2.3.4, without the length and the root).
const maxDNSName = 253

// DNSNameKey is what a DNS name is compared by: in small letters (RFC 4343), without the dot that some write at its
// end, and with labels of other scripts as the DNS has them (RFC 5891 §5, as browsers look names up by UTS #46). It is
// for comparing only: what is asked for stays as it was written, and requests refuse other scripts (CheckDNSName).
func DNSNameKey(name string) string {
	name = strings.TrimSuffix(name, ".")
	if !IsIA5(name) && len(name) <= utf8.UTFMax*maxDNSName { // encoding takes the square of the length
		lookup := idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false)) // *. and _ stay
		if ascii, err := lookup.ToASCII(name); err == nil {
			name = ascii
		}
	}
	return strings.ToLower(name)
}

// canonicalDNSName spells a name in small letters: capitals are the same (RFC 4343).
func canonicalDNSName(name string) string { return strings.ToLower(name) }

// canonicalEmail spells the host of an e-mail address in small letters: capitals are the same there, and another
// mailbox before the @ (RFC 5280 §7.5).
func canonicalEmail(address string) string {
	at := strings.LastIndex(address, "@")
	return address[:at+1] + strings.ToLower(address[at+1:])
}

func each(names []string, canonical func(string) string) []string {
	out := make([]string, 0, len(names))
	for _, s := range names {
		out = append(out, canonical(s))
	}
	return out
}

// CanonicalDNSNames spells DNS names so that the same name is the same text.
func CanonicalDNSNames(names []string) []string { return each(names, canonicalDNSName) }

// CanonicalEmails spells e-mail addresses so that the same mailbox is the same text.
func CanonicalEmails(addresses []string) []string { return each(addresses, canonicalEmail) }

// CanonicalIPs spells IP addresses as certificates give them back. What is none stays as it is.
func CanonicalIPs(ips []string) []string {
	return each(ips, func(s string) string {
		if a, err := netip.ParseAddr(s); err == nil {
			return a.Unmap().String()
		}
		return s
	})
}

// CanonicalURIs spells URIs as requests and certificates give them back.
func CanonicalURIs(uris []string) []string {
	return each(uris, func(s string) string {
		if u, err := url.Parse(s); err == nil {
			return u.String()
		}
		return s
	})
}
