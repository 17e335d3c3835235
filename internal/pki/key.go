package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/mldsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"chancery.dev/internal/limits"
)

// Key algorithms, as privateKey.algorithm of a Certificate spells them.
const (
	RSA     = "RSA"
	ECDSA   = "ECDSA"
	Ed25519 = "Ed25519"
	// The parameter sets of ML-DSA (FIPS 204). Such a key signs, and does nothing else (RFC 9881 §5).
	MLDSA44 = "MLDSA44"
	MLDSA65 = "MLDSA65"
	MLDSA87 = "MLDSA87"
)

// parametersOf returns the parameter set of an algorithm; false for one that is not ML-DSA.
func parametersOf(algorithm string) (mldsa.Parameters, bool) {
	set, is := map[string]mldsa.Parameters{MLDSA44: mldsa.MLDSA44(), MLDSA65: mldsa.MLDSA65(), MLDSA87: mldsa.MLDSA87()}[algorithm]
	return set, is
}

// IsMLDSA reports whether a public key is one of ML-DSA.
func IsMLDSA(public crypto.PublicKey) bool {
	_, is := public.(*mldsa.PublicKey)
	return is
}

// Key encodings, as privateKey.encoding of a Certificate spells them.
const (
	// PKCS1 means RFC 8017 for RSA and SEC 1 (RFC 5915) for ECDSA.
	PKCS1 = "PKCS1"
	// PKCS8 is RFC 5958, the only encoding of Ed25519 and ML-DSA (RFC 9881 §6, as a seed).
	PKCS8 = "PKCS8"
)

// Sizes of keys in bits: what no size means, and what RSA is held to.
const (
	DefaultRSASize   = 2048
	DefaultECDSASize = 256
	MinRSASize       = 2048
	MaxRSASize       = limits.RSABits
	// maxForeignRSASize bounds the keys of others: to verify with a key as large as a PEM text may be would take
	// minutes.
	maxForeignRSASize = 16384
)

// The fields of a Certificate that a key may violate, as conditions name them (spec §2.1).
const (
	ViolationKeyAlgorithm = "spec.privateKey.algorithm"
	ViolationKeySize      = "spec.privateKey.size"
)

const (
	pemPKCS1 = "RSA PRIVATE KEY"
	pemSEC1  = "EC PRIVATE KEY"
	pemPKCS8 = "PRIVATE KEY"
)

// KeySpec says what kind of key is wanted.
type KeySpec struct {
	// Algorithm is one of the key algorithms; empty means RSA.
	Algorithm string
	// Size is in bits; 0 means the default of the algorithm. Only RSA and ECDSA have one.
	Size int
}

func (s KeySpec) withDefaults() KeySpec {
	if s.Algorithm == "" {
		s.Algorithm = RSA
	}
	switch {
	case s.Algorithm != RSA && s.Algorithm != ECDSA:
		s.Size = 0
	case s.Size != 0:
	case s.Algorithm == RSA:
		s.Size = DefaultRSASize
	default:
		s.Size = DefaultECDSASize
	}
	return s
}

// Slow reports whether the making of such a key takes long: an RSA key takes a tenth of a second of CPU, and one of
// MaxRSASize up to a minute.
func (s KeySpec) Slow() bool { return s.withDefaults().Algorithm == RSA }

// GenerateKey makes a new private key. It fails if the algorithm is unknown, or the size is none of the algorithm's.
func GenerateKey(spec KeySpec) (crypto.Signer, error) {
	spec = spec.withDefaults()
	switch spec.Algorithm {
	case RSA:
		if spec.Size < MinRSASize || spec.Size > MaxRSASize {
			return nil, fmt.Errorf("RSA keys have %d to %d bits, not %d: change privateKey.size", MinRSASize, MaxRSASize, spec.Size)
		}
		return rsa.GenerateKey(rand.Reader, spec.Size)
	case ECDSA:
		curve, err := curveOf(spec.Size)
		if err != nil {
			return nil, err
		}
		return ecdsa.GenerateKey(curve, rand.Reader)
	case Ed25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	set, is := parametersOf(spec.Algorithm)
	if !is {
		return nil, fmt.Errorf("key algorithm %q is unknown: privateKey.algorithm is one of RSA, ECDSA, Ed25519, MLDSA44, MLDSA65 and MLDSA87", spec.Algorithm)
	}
	key, err := mldsa.GenerateKey(set)
	if err != nil { // not a nil key in an interface
		return nil, fmt.Errorf("make an ML-DSA key: %w: choose another privateKey.algorithm", err)
	}
	return key, nil
}

func curveOf(size int) (elliptic.Curve, error) {
	switch size {
	case 256:
		return elliptic.P256(), nil
	case 384:
		return elliptic.P384(), nil
	case 521:
		return elliptic.P521(), nil
	default:
		return nil, fmt.Errorf("ECDSA keys have 256, 384 or 521 bits, not %d: change privateKey.size", size)
	}
}

// ViolationsOf returns the fields of the spec that a public key does not match (ViolationKeyAlgorithm,
// ViolationKeySize); empty means that the key matches.
func (s KeySpec) ViolationsOf(f PublicKeyFacts) []string {
	s = s.withDefaults()
	switch {
	case f.Algorithm != s.Algorithm:
		return []string{ViolationKeyAlgorithm}
	case f.Size != s.Size:
		return []string{ViolationKeySize}
	default:
		return nil
	}
}

// PublicKeyFacts tell a public key from others in little memory. They are comparable; those of a key of an unknown
// algorithm are zero.
type PublicKeyFacts struct {
	// Algorithm is one of the key algorithms.
	Algorithm string
	// Size is in bits, of RSA and ECDSA; 0 for others.
	Size int
	// Fingerprint is PublicKeyFingerprint.
	Fingerprint [sha256.Size]byte
}

// FactsOfKey returns the facts of a public key.
func FactsOfKey(public crypto.PublicKey) PublicKeyFacts {
	algorithm, size := describe(public)
	fingerprint, err := PublicKeyFingerprint(public)
	if algorithm == "" || err != nil {
		return PublicKeyFacts{}
	}
	return PublicKeyFacts{Algorithm: algorithm, Size: size, Fingerprint: fingerprint}
}

// Same reports whether the facts are those of one key, of a known algorithm.
func (f PublicKeyFacts) Same(other PublicKeyFacts) bool { return f.Algorithm != "" && f == other }

// describe returns the algorithm and size of a public key; "" for an unknown algorithm.
func describe(public crypto.PublicKey) (algorithm string, bits int) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return RSA, k.N.BitLen()
	case *ecdsa.PublicKey:
		return ECDSA, k.Curve.Params().BitSize
	case ed25519.PublicKey:
		return Ed25519, 0
	case *mldsa.PublicKey:
		return strings.ReplaceAll(k.Parameters().String(), "-", ""), 0
	default:
		return "", 0
	}
}

// checkForeignKey refuses a public key that is too large to be worked with.
func checkForeignKey(public crypto.PublicKey) error {
	if k, ok := public.(*rsa.PublicKey); ok && k.N.BitLen() > maxForeignRSASize {
		return fmt.Errorf("an RSA key of %d bits is larger than the %d that are worked with", k.N.BitLen(), maxForeignRSASize)
	}
	return nil
}

// ParsePublicKey returns an RSA, ECDSA or Ed25519 key of somebody else: PKIX, ASN.1 DER (RFC 5280 §4.1.2.7).
func ParsePublicKey(der []byte) (crypto.PublicKey, error) {
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, err
	}
	switch key.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
		return key, checkForeignKey(key)
	default:
		return nil, fmt.Errorf("a key of the type %T does not sign", key)
	}
}

// EncodePrivateKey returns a key as PEM in the encoding asked for, PKCS1 or PKCS8;
// empty means PKCS1. Ed25519 and ML-DSA are PKCS8 always (spec §2.4).
func EncodePrivateKey(key crypto.Signer, encoding string) ([]byte, error) {
	switch encoding {
	case PKCS8:
		return EncodePKCS8(key)
	case PKCS1, "":
	default:
		return nil, fmt.Errorf("key encoding %q is unknown: privateKey.encoding is PKCS1 or PKCS8", encoding)
	}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return pemBlock(pemPKCS1, x509.MarshalPKCS1PrivateKey(k)), nil
	case *ecdsa.PrivateKey:
		der, err := x509.MarshalECPrivateKey(k)
		if err != nil {
			return nil, fmt.Errorf("encode ECDSA key: %w", err)
		}
		return pemBlock(pemSEC1, der), nil
	default:
		return EncodePKCS8(key)
	}
}

// EncodePKCS8 returns a key as PKCS#8 PEM (RFC 5958).
func EncodePKCS8(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key as PKCS#8: %w", err)
	}
	return pemBlock(pemPKCS8, der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// DecodePrivateKey reads the first private key of a PEM text of at most
// MaxPrivateKeyPEM bytes, in PKCS#1, SEC 1 or PKCS#8. Errors never quote the text.
func DecodePrivateKey(text []byte) (crypto.Signer, error) {
	if err := checkSize("private key", text, MaxPrivateKeyPEM); err != nil {
		return nil, err
	}
	for text = unmarked(text); ; {
		block, rest, err := nextBlock(text)
		if err != nil {
			return nil, fmt.Errorf("the private key: %w", err)
		}
		if block == nil {
			return nil, errors.New("no private key found: want a PEM block PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY")
		}
		// OpenSSL writes the curve in a block of its own before the key.
		if block.Type == "EC PARAMETERS" {
			text = rest
			continue
		}
		return parsePrivateKey(block)
	}
}

func parsePrivateKey(block *pem.Block) (crypto.Signer, error) {
	if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
		return nil, errors.New("the private key is encrypted: store it without a passphrase")
	}
	var key any
	var err error
	switch block.Type {
	case pemPKCS1:
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case pemSEC1:
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case pemPKCS8:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("the PEM block is a %.40q, not a private key", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("private key (%s) does not parse: %w", block.Type, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T cannot sign: use RSA, ECDSA, Ed25519 or ML-DSA", key)
	}
	if algorithm, _ := describe(signer.Public()); algorithm == "" {
		return nil, fmt.Errorf("a %T is not supported: use RSA, ECDSA, Ed25519 or ML-DSA", key)
	}
	if err := checkSigningKey(signer); err != nil {
		return nil, err
	}
	return signer, nil
}

// checkSigningKey refuses RSA keys whose signatures take seconds: one that is too large, and one of more than two
// primes (RFC 8017 §3.2), which Go signs with as if the primes were not known.
func checkSigningKey(key crypto.Signer) error {
	k, ok := key.(*rsa.PrivateKey)
	switch {
	case !ok:
		return nil
	case k.N.BitLen() > MaxRSASize:
		return fmt.Errorf("an RSA key of %d bits is larger than the %d that are signed with", k.N.BitLen(), MaxRSASize)
	case len(k.Primes) != 2:
		return fmt.Errorf("an RSA key of %d primes is slow to sign with: use one of two primes", len(k.Primes))
	default:
		return nil
	}
}

// PublicKeysEqual reports whether two public keys are the same key. Keys of different or unknown kinds are not.
func PublicKeysEqual(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && b != nil && key.Equal(b)
}

// PublicKeyFingerprint returns the SHA-256 of a key's SubjectPublicKeyInfo (RFC 5280 §4.1.2.7), in DER.
func PublicKeyFingerprint(public crypto.PublicKey) ([sha256.Size]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("fingerprint of public key: %w", err)
	}
	return sha256.Sum256(der), nil
}

// signatures are the signature algorithms of the API, each with the kind of key that it needs. The first row of a kind
// whose bits the key has is the algorithm that suits the key (spec §2.3): its hash is as strong as the key.
var signatures = []struct {
	name, key string
	bits      int
	algorithm x509.SignatureAlgorithm
}{
	{"SHA512WithRSA", RSA, 4096, x509.SHA512WithRSA},
	{"SHA384WithRSA", RSA, 3072, x509.SHA384WithRSA},
	{"SHA256WithRSA", RSA, 0, x509.SHA256WithRSA},
	{"ECDSAWithSHA512", ECDSA, 521, x509.ECDSAWithSHA512},
	{"ECDSAWithSHA384", ECDSA, 384, x509.ECDSAWithSHA384},
	{"ECDSAWithSHA256", ECDSA, 0, x509.ECDSAWithSHA256},
	{"PureEd25519", Ed25519, 0, x509.PureEd25519},
	{"PureMLDSA44", MLDSA44, 0, x509.MLDSA44},
	{"PureMLDSA65", MLDSA65, 0, x509.MLDSA65},
	{"PureMLDSA87", MLDSA87, 0, x509.MLDSA87},
}

// SignatureAlgorithmFor returns the signature algorithm that suits a key; an error if the key is of no kind we know.
func SignatureAlgorithmFor(public crypto.PublicKey) (x509.SignatureAlgorithm, error) {
	algorithm, bits := describe(public)
	for _, s := range signatures {
		if s.key == algorithm && s.bits <= bits {
			return s.algorithm, nil
		}
	}
	return 0, fmt.Errorf("no signature algorithm for a %T", public)
}

// signatureAlgorithm returns the algorithm of that name, or the one that suits the key.
func signatureAlgorithm(name string, public crypto.PublicKey) (x509.SignatureAlgorithm, error) {
	if name == "" {
		return SignatureAlgorithmFor(public)
	}
	for _, s := range signatures {
		if s.name != name {
			continue
		}
		if family, _ := describe(public); family != s.key {
			return 0, fmt.Errorf("signature algorithm %s needs an %s key, the key is %s: change signatureAlgorithm or privateKey.algorithm", name, s.key, family)
		}
		return s.algorithm, nil
	}
	return 0, fmt.Errorf("signature algorithm %q is unknown", name)
}
