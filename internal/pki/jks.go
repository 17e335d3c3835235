package pki

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the format's only hash
	"crypto/subtle"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// The tags of entries, and what is hashed between the password and the store. The format is that of OpenJDK's
// sun.security.provider.JavaKeyStore and KeyProtector; numbers are big-endian.
const (
	jksKey         = 1
	jksCertificate = 2
	jksWhitener    = "Mighty Aphrodite"
)

// oidJKSKey is the algorithm by which a Java keystore hides a key.
var oidJKSKey = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 42, 2, 17, 1, 1}

// EncodeJKS returns a Java keystore: the key with its chain under the alias, and
// each CA certificate as a trusted entry.
func EncodeJKS(k Keystore) ([]byte, error) {
	if len(k.Chain) == 0 {
		return nil, errors.New("a keystore needs a certificate, and there is none")
	}
	key, err := x509.MarshalPKCS8PrivateKey(k.Key)
	if err != nil {
		return nil, fmt.Errorf("encode private key as PKCS#8: %w", err)
	}
	salts, err := k.saltSource(saltJKS)
	if err != nil {
		return nil, err
	}
	hidden, err := hideKey(salts, key, javaChars(k.Password))
	if err != nil {
		return nil, fmt.Errorf("add the private key to the Java keystore: %w", err)
	}
	alias := strings.ToLower(k.Alias)
	if len(javaUTF(alias)) > math.MaxUint16 {
		return nil, errors.New("the alias is too long for a Java keystore: use a shorter one")
	}
	var entry jksWriter
	entry.head(jksKey, alias, k.Chain[0].NotBefore)
	entry.sized(hidden)
	entry.uint32(len(k.Chain))
	for _, c := range k.Chain {
		entry.certificate(c)
	}
	return encodeJKS(k, map[string][]byte{alias: entry.Bytes()}), nil
}

// EncodeJKSTruststore returns a Java keystore with each CA certificate as a trusted entry.
func EncodeJKSTruststore(k Keystore) ([]byte, error) {
	if len(k.CA) == 0 {
		return nil, errNoCA
	}
	return encodeJKS(k, map[string][]byte{}), nil
}

// encodeJKS adds the CA certificates to entries as ca, ca-1, ca-2, …, passes over an alias that is taken, and returns
// the store with its entries in the order of their aliases.
func encodeJKS(k Keystore, entries map[string][]byte) []byte {
	n := 0
	for _, c := range k.CA {
		if entries[jksAlias(n)] != nil {
			n++
		}
		var entry jksWriter
		entry.head(jksCertificate, jksAlias(n), c.NotBefore)
		entry.certificate(c)
		entries[jksAlias(n)] = entry.Bytes()
		n++
	}
	var out jksWriter
	out.uint32(0xfeedfeed)
	out.uint32(2) // the version
	out.uint32(len(entries))
	for _, alias := range slices.Sorted(maps.Keys(entries)) {
		out.Write(entries[alias])
	}
	sum := sha1.Sum(slices.Concat(javaChars(k.Password), []byte(jksWhitener), out.Bytes())) //nolint:gosec // the format's only hash
	return append(out.Bytes(), sum[:]...)
}

func jksAlias(n int) string {
	if n == 0 {
		return "ca"
	}
	return fmt.Sprintf("ca-%d", n)
}

// jksWriter writes what Java's DataInputStream reads.
type jksWriter struct{ bytes.Buffer }

func (w *jksWriter) uint32(n int) {
	w.Write(binary.BigEndian.AppendUint32(nil, uint32(n))) //nolint:gosec // numbers and lengths of what is in a Secret
}

func (w *jksWriter) sized(content []byte) {
	w.uint32(len(content))
	w.Write(content)
}

func (w *jksWriter) text(s string) {
	encoded := javaUTF(s)
	w.Write(binary.BigEndian.AppendUint16(nil, uint16(len(encoded)))) //nolint:gosec // EncodeJKS has looked at the alias
	w.Write(encoded)
}

func (w *jksWriter) head(tag int, alias string, made time.Time) {
	w.uint32(tag)
	w.text(alias)
	w.Write(binary.BigEndian.AppendUint64(nil, uint64(made.UnixMilli())))
}

func (w *jksWriter) certificate(c *x509.Certificate) {
	w.text("X509")
	w.sized(c.Raw)
}

// javaUTF is a text in the form of Java's DataInput.readUTF: UTF-8 of each UTF-16 code unit, and two bytes for U+0000.
func javaUTF(s string) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune(s)) {
		switch {
		case unit == 0:
			out = append(out, 0xc0, 0x80)
		case utf16.IsSurrogate(rune(unit)): // which utf8 does not encode
			out = append(out, 0xe0|byte(unit>>12), 0x80|byte(unit>>6&0x3f), 0x80|byte(unit&0x3f))
		default:
			out = utf8.AppendRune(out, rune(unit))
		}
	}
	return out
}

// javaChars are the two bytes of each char of a password, as Java has them: UTF-16 code units.
func javaChars(password string) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune(passwordText(password))) {
		out = binary.BigEndian.AppendUint16(out, unit)
	}
	return out
}

// hideKey encrypts a PKCS#8 key with SHA-1 of password and salt as a key stream, and appends a hash of the two.
func hideKey(random io.Reader, key, password []byte) ([]byte, error) {
	salt := make([]byte, sha1.Size)
	if _, err := io.ReadFull(random, salt); err != nil {
		return nil, fmt.Errorf("draw a salt: %w", err)
	}
	digest := func(b []byte) []byte {
		sum := sha1.Sum(slices.Concat(password, b)) //nolint:gosec // the format's only hash
		return sum[:]
	}
	var stream []byte
	for block := salt; len(stream) < len(key); {
		block = digest(block)
		stream = append(stream, block...)
	}
	hidden := make([]byte, len(key))
	subtle.XORBytes(hidden, key, stream)
	return asn1.Marshal(struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}{pkix.AlgorithmIdentifier{Algorithm: oidJKSKey, Parameters: asn1.NullRawValue}, slices.Concat(salt, hidden, digest(key))})
}
