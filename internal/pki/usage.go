package pki

import (
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"maps"
	"slices"
)

// usage is what one usage name stands for: a bit of the key usage extension or an extended key usage.
type usage struct {
	name string
	bit  x509.KeyUsage
	eku  asn1.ObjectIdentifier
}

// usages are the 23 names of the API (spec §1.1). Where two names mean the same,
// the first is the one that UsageNames gives back.
var usages = []usage{
	{name: "digital signature", bit: x509.KeyUsageDigitalSignature},
	{name: "signing", bit: x509.KeyUsageDigitalSignature},
	{name: "content commitment", bit: x509.KeyUsageContentCommitment},
	{name: "key encipherment", bit: x509.KeyUsageKeyEncipherment},
	{name: "data encipherment", bit: x509.KeyUsageDataEncipherment},
	{name: "key agreement", bit: x509.KeyUsageKeyAgreement},
	{name: "cert sign", bit: x509.KeyUsageCertSign},
	{name: "crl sign", bit: x509.KeyUsageCRLSign},
	{name: "encipher only", bit: x509.KeyUsageEncipherOnly},
	{name: "decipher only", bit: x509.KeyUsageDecipherOnly},
	// RFC 5280 §4.2.1.12, RFC 4945 §5.1.3.12, and two of the browser wars.
	{name: "any", eku: asn1.ObjectIdentifier{2, 5, 29, 37, 0}},
	{name: "server auth", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}},
	{name: "client auth", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 2}},
	{name: "code signing", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 3}},
	{name: "email protection", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 4}},
	{name: "s/mime", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 4}},
	{name: "ipsec end system", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 5}},
	{name: "ipsec tunnel", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 6}},
	{name: "ipsec user", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 7}},
	{name: "timestamping", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 8}},
	{name: "ocsp signing", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 9}},
	{name: "microsoft sgc", eku: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 10, 3, 3}},
	{name: "netscape sgc", eku: asn1.ObjectIdentifier{2, 16, 840, 1, 113730, 4, 1}},
}

// KeyUsages is what a key may be used for.
type KeyUsages struct {
	// Bits of the key usage extension (RFC 5280 §4.2.1.3).
	Bits x509.KeyUsage
	// Extended usages (RFC 5280 §4.2.1.12), in the order they were asked for.
	Extended []asn1.ObjectIdentifier
}

// encipherment are the usages that no ML-DSA key has (RFC 9881 §5).
const encipherment = x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment | x509.KeyUsageKeyAgreement | x509.KeyUsageEncipherOnly | x509.KeyUsageDecipherOnly

// ParseUsages translates usage names of the API, for a key. No name at all means digital signature and, if the key can
// do that, key encipherment; certSign adds the right to sign certificates, which the usages of a CA certificate imply.
// An unknown name is an error, and so is encipherment or key agreement for a key that only signs. The key may be nil.
func ParseUsages[S ~string](names []S, certSign bool, key crypto.PublicKey) (KeyUsages, error) {
	signs := IsMLDSA(key)
	if len(names) == 0 && signs {
		names = []S{"digital signature"}
	} else if len(names) == 0 {
		names = []S{"digital signature", "key encipherment"}
	}
	var u KeyUsages
	for _, name := range names {
		i := slices.IndexFunc(usages, func(u usage) bool { return u.name == string(name) })
		if i < 0 {
			return KeyUsages{}, fmt.Errorf("usage %q is unknown: see the list of usages in the Certificate API", name)
		}
		u.Bits |= usages[i].bit
		if eku := usages[i].eku; eku != nil && !containsOID(u.Extended, eku) {
			u.Extended = append(u.Extended, eku)
		}
	}
	if wrong := u.Bits & encipherment; signs && wrong != 0 {
		return KeyUsages{}, fmt.Errorf("an ML-DSA key only signs: remove %q from usages (RFC 9881 §5)", KeyUsages{Bits: wrong}.UsageNames())
	}
	if certSign {
		u.Bits |= x509.KeyUsageCertSign
	}
	return u, nil
}

// UsageNames translates back: each usage by its canonical name, an extended usage that has none by its dotted number.
func (u KeyUsages) UsageNames() []string {
	var names []string
	var seen x509.KeyUsage
	for _, known := range usages {
		if known.bit&u.Bits&^seen != 0 {
			names = append(names, known.name)
			seen |= known.bit
		}
	}
	for _, oid := range u.Extended {
		i := slices.IndexFunc(usages, func(k usage) bool { return k.eku.Equal(oid) })
		if i < 0 {
			names = append(names, oid.String())
			continue
		}
		names = append(names, usages[i].name)
	}
	return names
}

// Uses is a set of the extended usages that have a name: a bit for each row of usages.
type Uses uint32

// UsesOf returns what a certificate may be used for.
func UsesOf(cert *x509.Certificate) (uses Uses) {
	extended, err := extendedUsages(cert)
	if err != nil || forAll(extended) {
		return ^Uses(0)
	}
	for i, u := range usages {
		if u.eku != nil && containsOID(extended, u.eku) {
			uses |= 1 << i
		}
	}
	return uses
}

// Lacking returns those names of extended usages that are not in the set, in their order.
func Lacking[S ~string](uses Uses, names []S) (lacking []S) {
	for _, name := range names {
		i := slices.IndexFunc(usages, func(u usage) bool { return u.name == string(name) })
		if i >= 0 && usages[i].eku != nil && uses&(1<<i) == 0 {
			lacking = append(lacking, name)
		}
	}
	return lacking
}

// forAll reports whether a certificate with these extended usages may be used for all (RFC 5280 §4.2.1.12).
func forAll(extended []asn1.ObjectIdentifier) bool {
	return len(extended) == 0 || containsOID(extended, oidAnyExtKeyUsage)
}

// sameExtended reports whether two lists hold the same extended usages in any order.
func sameExtended(a, b []asn1.ObjectIdentifier) bool {
	return maps.Equal(oidSet(a), oidSet(b))
}

// oidSet holds the dotted numbers of a list.
func oidSet(list []asn1.ObjectIdentifier) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, oid := range list {
		out[oid.String()] = true
	}
	return out
}

func containsOID(list []asn1.ObjectIdentifier, oid asn1.ObjectIdentifier) bool {
	return slices.ContainsFunc(list, oid.Equal)
}
