package pki

import (
	"crypto"
	"crypto/sha3"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"software.sslmate.com/src/go-pkcs12"
)

// Keystore is what a Java or PKCS#12 keystore is made of (spec §2.4).
//
// The same contents give the same bytes: the salts come from a stream that the private key seeds, and the entries of
// Java keystores have the dates of their certificates. So a keystore that is applied again changes nothing. Keystores
// are compared as bytes, and never opened: somebody may have made a keystore in a Secret to exhaust its readers.
// Keystores of other software never have these bytes.
type Keystore struct {
	// Alias of the key in a Java keystore, in lower case. PKCS#12 does not use it.
	Alias string
	// Password of the store and of its key: UTF-8, or else ISO 8859-1, as OpenSSL takes it. Nothing is trimmed. PKCS#12
	// has no characters past U+FFFF.
	Password string
	// Key is the private key of the first certificate.
	Key crypto.Signer
	// Chain is the certificates of tls.crt, leaf first; one at least.
	Chain []*x509.Certificate
	// CA is the certificates of ca.crt; a truststore needs one at least.
	CA []*x509.Certificate
}

// PKCS12Profile is a set of algorithms for PKCS#12, as keystores.pkcs12.profile of a Certificate spells it.
type PKCS12Profile string

// The profiles. LegacyRC2 is what an empty one means.
const (
	// LegacyRC2 encrypts certificates with 40 bits of RC2 and the key with 3DES: read
	// by everything old, by OpenSSL 3 with -legacy only.
	LegacyRC2 PKCS12Profile = "LegacyRC2"
	// LegacyDES encrypts both with 3DES: read by nearly everything.
	LegacyDES PKCS12Profile = "LegacyDES"
	// Modern2023 uses AES-256-CBC, PBKDF2 and HMAC-SHA-256.
	Modern2023 PKCS12Profile = "Modern2023"
	// Modern2026 is Modern2023 with PBMAC1 (RFC 9579): OpenSSL 3.4, Java 26 and later.
	Modern2026 PKCS12Profile = "Modern2026"
)

// What salts are drawn for. A Java truststore has none.
const (
	saltJKS              = "keystore.jks"
	saltPKCS12           = "keystore.p12"
	saltPKCS12Truststore = "truststore.p12"
)

var errNoCA = errors.New("a truststore needs a CA certificate, and there is none")

// EncodePKCS12 returns a PKCS#12 keystore (RFC 7292): the key, its certificate, the
// rest of the chain, and the CA certificates.
func EncodePKCS12(k Keystore, profile PKCS12Profile) ([]byte, error) {
	if len(k.Chain) == 0 {
		return nil, errors.New("a keystore needs a certificate, and there is none")
	}
	encoder, err := k.encoder(profile, saltPKCS12)
	if err != nil {
		return nil, err
	}
	out, err := encoder.Encode(k.Key, k.Chain[0], slices.Concat(k.Chain[1:], k.CA), passwordText(k.Password))
	if err != nil {
		return nil, fmt.Errorf("encode the PKCS#12 keystore: %w", err)
	}
	return out, nil
}

// EncodePKCS12Truststore returns a PKCS#12 file with the CA certificates, marked as trust anchors for Java.
func EncodePKCS12Truststore(k Keystore, profile PKCS12Profile) ([]byte, error) {
	if len(k.CA) == 0 {
		return nil, errNoCA
	}
	encoder, err := k.encoder(profile, saltPKCS12Truststore)
	if err != nil {
		return nil, err
	}
	out, err := encoder.EncodeTrustStoreEntries(trustEntries(k.CA), passwordText(k.Password))
	if err != nil {
		return nil, fmt.Errorf("encode the PKCS#12 truststore: %w", err)
	}
	return out, nil
}

// trustEntries names each certificate by its subject. Java keeps one certificate of a name, so the second of a name (a
// CA on its way to a new key) gets a number; and the encoding, BMPString, lacks the characters past U+FFFF.
func trustEntries(certs []*x509.Certificate) []pkcs12.TrustStoreEntry {
	entries := make([]pkcs12.TrustStoreEntry, 0, len(certs))
	seen := map[string]int{}
	for _, c := range certs {
		named := strings.Map(func(r rune) rune {
			if r > '\uffff' {
				return '\ufffd'
			}
			return r
		}, c.Subject.String())
		key := strings.ToLower(named)
		seen[key]++
		if n := seen[key]; n > 1 {
			named = fmt.Sprintf("%s (%d)", named, n)
		}
		entries = append(entries, pkcs12.TrustStoreEntry{Cert: c, FriendlyName: named})
	}
	return entries
}

func (k Keystore) encoder(profile PKCS12Profile, purpose string) (*pkcs12.Encoder, error) {
	encoder, ok := map[PKCS12Profile]*pkcs12.Encoder{
		"": pkcs12.LegacyRC2, LegacyRC2: pkcs12.LegacyRC2, LegacyDES: pkcs12.LegacyDES, Modern2023: pkcs12.Modern2023, Modern2026: pkcs12.Modern2026,
	}[profile]
	if !ok {
		return nil, fmt.Errorf("PKCS#12 profile %q is unknown: keystores.pkcs12.profile is LegacyRC2, LegacyDES, Modern2023 or Modern2026", profile)
	}
	if strings.ContainsFunc(passwordText(k.Password), func(r rune) bool { return r > '\uffff' }) {
		return nil, errors.New("the password has a character past U+FFFF, which PKCS#12 has no place for: use another password")
	}
	salts, err := k.saltSource(purpose, string(profile))
	if err != nil {
		return nil, err
	}
	return encoder.WithRand(salts), nil
}

// passwordText is a password as UTF-8. One that is not UTF-8 is taken as ISO 8859-1, a character of each byte.
func passwordText(password string) string {
	if utf8.ValidString(password) {
		return password
	}
	var chars []rune
	for _, b := range []byte(password) {
		chars = append(chars, rune(b))
	}
	return string(chars)
}

// saltSource returns an endless stream that looks random to all who lack the private key (SHAKE256, FIPS 202, keyed by
// its first input). Each contents and each purpose has another stream, as RFC 6979 does for signatures.
func (k Keystore) saltSource(purpose ...string) (io.Reader, error) {
	key, err := x509.MarshalPKCS8PrivateKey(k.Key)
	if err != nil {
		return nil, fmt.Errorf("encode private key as PKCS#8: %w", err)
	}
	stream := sha3.NewSHAKE256()
	absorb := func(part []byte) {
		_, _ = stream.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = stream.Write(part)
	}
	absorb(key)
	for _, p := range purpose {
		absorb([]byte(p))
	}
	absorb([]byte(k.Password))
	for _, certs := range [][]*x509.Certificate{k.Chain, k.CA} {
		var raw []byte
		for _, c := range certs {
			raw = append(raw, c.Raw...)
		}
		absorb(raw)
	}
	return stream, nil
}
