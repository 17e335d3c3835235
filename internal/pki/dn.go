package pki

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

var oidDomainComponent = asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25} // RFC 4519 §2.4

// attributeKey is a key of a distinguished name's string form and its attribute type.
type attributeKey struct {
	name string
	oid  asn1.ObjectIdentifier
}

// attributeKeys are those of RFC 4514 §3 and the ones the API's subject has besides.
var attributeKeys = []attributeKey{
	{"CN", asn1.ObjectIdentifier{2, 5, 4, 3}},
	{"L", asn1.ObjectIdentifier{2, 5, 4, 7}},
	{"ST", asn1.ObjectIdentifier{2, 5, 4, 8}},
	{"O", asn1.ObjectIdentifier{2, 5, 4, 10}},
	{"OU", asn1.ObjectIdentifier{2, 5, 4, 11}},
	{"C", asn1.ObjectIdentifier{2, 5, 4, 6}},
	{"STREET", asn1.ObjectIdentifier{2, 5, 4, 9}},
	{"DC", oidDomainComponent},
	{"UID", asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}},
	{"SERIALNUMBER", asn1.ObjectIdentifier{2, 5, 4, 5}},
	{"POSTALCODE", asn1.ObjectIdentifier{2, 5, 4, 17}},
}

// maxLiteralSubject bounds the work done on a name; a real one has some hundred bytes.
const maxLiteralSubject = 16 << 10

// ParseLiteralSubject reads a distinguished name in the string form of RFC 4514. The result is in the order of DER,
// which is the reverse of the string's (RFC 4514 §2.1). An empty string is the empty name.
func ParseLiteralSubject(s string) (pkix.RDNSequence, error) {
	if len(s) > maxLiteralSubject {
		return nil, fmt.Errorf("literal subject has %d bytes, more than %d", len(s), maxLiteralSubject)
	}
	if !utf8.ValidString(s) {
		return nil, errors.New("literal subject is not valid UTF-8")
	}
	if strings.TrimSpace(s) == "" {
		return pkix.RDNSequence{}, nil
	}
	var rdns pkix.RDNSequence
	var rdn pkix.RelativeDistinguishedNameSET
	for {
		attribute, separator, rest, err := parseAttribute(s)
		if err != nil {
			return nil, err
		}
		rdn = append(rdn, attribute)
		if separator != '+' {
			rdns = append(rdns, rdn)
			rdn = nil
		}
		if separator == 0 {
			break
		}
		s = rest
	}
	slices.Reverse(rdns)
	return rdns, nil
}

// LiteralSubjectDER is ParseLiteralSubject, encoded.
func LiteralSubjectDER(s string) ([]byte, error) {
	rdns, err := ParseLiteralSubject(s)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(rdns)
}

// parseAttribute reads one key=value and returns the separator after it, 0 at the end.
func parseAttribute(s string) (attribute pkix.AttributeTypeAndValue, separator byte, rest string, err error) {
	if at := strings.IndexAny(s, ",+;="); at >= 0 && s[at] != '=' && strings.TrimSpace(s[:at]) == "" {
		return attribute, 0, "", fmt.Errorf("Literal subject contains unrecognized key with value [%s]: there is nothing in front of a %q, remove it", emptyPart(s), s[at])
	}
	key, s, found := strings.Cut(s, "=")
	key = strings.TrimSpace(key)
	if !found {
		return attribute, 0, "", fmt.Errorf("literal subject: %q is not of the form key=value (RFC 4514): escape commas in values with \\", key)
	}
	raw, separator, rest := cutValue(s)
	hexed := strings.HasPrefix(raw, "#")
	value := raw
	if !hexed {
		if value, err = unescape(raw); err != nil {
			return attribute, 0, "", fmt.Errorf("literal subject: value of %s: %w", key, err)
		}
	}
	// The text up to the colon is fixed (spec §1.1).
	oid, ok := attributeType(key)
	if !ok {
		return attribute, 0, "", fmt.Errorf("Literal subject contains unrecognized key with value [%s]: the key is %q, known are %s", value, key, knownKeys())
	}
	attribute.Type = oid
	attribute.Value, err = attributeValue(oid, value, hexed)
	if err != nil {
		return attribute, 0, "", fmt.Errorf("literal subject: value of %s: %w", key, err)
	}
	return attribute, separator, rest, nil
}

// emptyPart returns the value after separators that have nothing between them.
func emptyPart(s string) string {
	_, value, _ := strings.Cut(s, "=")
	value, _, _ = cutValue(value)
	return value
}

// cutValue splits off an attribute value at the first separator that is not escaped. A semicolon separates too (RFC
// 2253 §4). Spaces around the value go, unless escaped.
func cutValue(s string) (value string, separator byte, rest string) {
	end := len(s)
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			continue
		}
		if s[i] == ',' || s[i] == '+' || s[i] == ';' {
			end, separator, rest = i, s[i], s[i+1:]
			break
		}
	}
	value = strings.TrimLeft(s[:end], " ")
	trimmed := strings.TrimRight(value, " ")
	backslashes := len(trimmed) - len(strings.TrimRight(trimmed, `\`))
	if backslashes%2 == 1 && len(trimmed) < len(value) {
		trimmed += " "
	}
	return trimmed, separator, rest
}

// unescape undoes the escapes of RFC 4514 §2.4: a special character or a pair of hex digits.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		i++
		switch {
		case i < len(s) && strings.IndexByte(` "#+,;<=>\`, s[i]) >= 0:
			out = append(out, s[i])
		default:
			octet, err := hex.DecodeString(s[i:min(i+2, len(s))])
			if err != nil || len(octet) == 0 {
				return "", errors.New(`a \ must be followed by one of  "#+,;<=>\ or by two hex digits`)
			}
			out = append(out, octet...)
			i++
		}
	}
	if !utf8.Valid(out) {
		return "", errors.New("the escaped bytes are not valid UTF-8")
	}
	return string(out), nil
}

// attributeType finds the type of a key: a name in any case, or a dotted number (RFC 4514 §2.3).
func attributeType(key string) (asn1.ObjectIdentifier, bool) {
	for _, known := range attributeKeys {
		if strings.EqualFold(known.name, key) {
			return known.oid, true
		}
	}
	if !strings.Contains(key, ".") {
		return nil, false
	}
	oid, err := parseOID(key)
	return oid, err == nil
}

func knownKeys() string {
	names := make([]string, 0, len(attributeKeys))
	for _, k := range attributeKeys {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// attributeValue returns what to marshal: a string, or DER for domain components,
// which are IA5Strings (RFC 5280 appendix A.1), and for values given in hex.
func attributeValue(oid asn1.ObjectIdentifier, value string, hexed bool) (any, error) {
	if hexed {
		der, err := hex.DecodeString(value[1:])
		if err != nil {
			return nil, errors.New("a value that starts with # is hex digits: escape the # if it is none")
		}
		var raw asn1.RawValue
		if rest, err := asn1.Unmarshal(der, &raw); err != nil || len(rest) > 0 {
			return nil, errors.New("the hex digits after # are not one BER value (RFC 4514 §2.4)")
		}
		return raw, nil
	}
	if value == "" {
		return nil, errors.New("it is empty: leave the key out")
	}
	if oid.Equal(oidDomainComponent) {
		if !IsIA5(value) {
			return nil, errors.New("a domain component is ASCII: write it in its xn-- form")
		}
		return asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagIA5String, Bytes: []byte(value)}, nil
	}
	return value, nil
}

// IsIA5 reports whether a text is ASCII, as names of hosts, URIs and e-mail addresses are (RFC 5280 §4.2.1.6).
func IsIA5(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// SubjectsEqual reports whether two encoded names have the same attributes in the same order. Which of the string types
// carries a value does not matter, so that names written by different software compare.
func SubjectsEqual(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}
	x, errX := decodeName(a)
	y, errY := decodeName(b)
	if errX != nil || errY != nil {
		return false
	}
	return slices.EqualFunc(x, y, func(r, s pkix.RelativeDistinguishedNameSET) bool {
		return slices.EqualFunc(r, s, func(p, q pkix.AttributeTypeAndValue) bool {
			v, isString := p.Value.(string)
			w, alsoString := q.Value.(string)
			return p.Type.Equal(q.Type) && isString && alsoString && v == w
		})
	})
}

// SubjectOf returns the parts of an encoded name; none of one that does not parse.
func SubjectOf(der []byte) pkix.Name {
	var name pkix.Name
	if rdns, err := decodeName(der); err == nil {
		name.FillFromRDNSequence(&rdns)
	}
	return name
}

func decodeName(der []byte) (pkix.RDNSequence, error) {
	var rdns pkix.RDNSequence
	err := unmarshalAll(der, &rdns)
	return rdns, err
}
