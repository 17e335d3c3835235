package rfc2136

import (
	"crypto/hmac"
	"crypto/md5"  //nolint:gosec // RFC 8945 §6 keeps HMAC-MD5 for old servers, and it is the API's default
	"crypto/sha1" //nolint:gosec // HMAC-SHA1, RFC 8945 §6
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"

	"github.com/miekg/dns"
)

// Key is a TSIG key (RFC 8945). It implements dns.TsigProvider, with HMAC-MD5,
// which the DNS library no longer offers but which is the API's default.
type Key struct {
	// Name is the key's name, fully qualified, in lower case.
	Name string
	// Algorithm is the algorithm's domain name (RFC 8945 §6).
	Algorithm string

	secret []byte
	digest func() hash.Hash
}

// NewKey makes a key of the API's words: algorithm is one of HMACMD5, HMACSHA1, HMACSHA256 and HMACSHA512 in any case,
// or empty for HMACMD5; secret is base64, as key files carry it.
func NewKey(name, algorithm, secret string) (*Key, error) {
	if _, ok := dns.IsDomainName(name); !ok || name == "" {
		return nil, fmt.Errorf("TSIG key name %q is not a domain name", name)
	}
	k := &Key{Name: dns.CanonicalName(name)}
	switch strings.ToUpper(algorithm) {
	case "", "HMACMD5":
		k.Algorithm, k.digest = "hmac-md5.sig-alg.reg.int.", md5.New
	case "HMACSHA1":
		k.Algorithm, k.digest = dns.HmacSHA1, sha1.New
	case "HMACSHA256":
		k.Algorithm, k.digest = dns.HmacSHA256, sha256.New
	case "HMACSHA512":
		k.Algorithm, k.digest = dns.HmacSHA512, sha512.New
	default:
		return nil, fmt.Errorf("TSIG algorithm %q is not known: use HMACMD5, HMACSHA1, HMACSHA256 or HMACSHA512", algorithm)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(secret), ""))
	if err != nil {
		return nil, errors.New("the TSIG secret is not base64: store the text of the key file's secret")
	}
	if len(raw) == 0 {
		return nil, errors.New("the TSIG secret is empty")
	}
	k.secret = raw
	return k, nil
}

// size is an upper bound of the size of the record that signs a message, in octets.
func (k *Key) size() int {
	const fixed = 64 // of the record's header and of the TSIG (RFC 8945 §4.2), and more
	return len(k.Name) + len(k.Algorithm) + k.digest().Size() + fixed
}

// Generate returns the MAC of msg (RFC 8945 §5.2).
func (k *Key) Generate(msg []byte, t *dns.TSIG) ([]byte, error) {
	if dns.CanonicalName(t.Hdr.Name) != k.Name {
		return nil, dns.ErrSecret
	}
	if dns.CanonicalName(t.Algorithm) != k.Algorithm {
		return nil, dns.ErrKeyAlg
	}
	mac := hmac.New(k.digest, k.secret)
	mac.Write(msg)
	return mac.Sum(nil), nil
}

// Verify returns nil when t carries the MAC of msg.
func (k *Key) Verify(msg []byte, t *dns.TSIG) error {
	want, err := k.Generate(msg, t)
	if err != nil {
		return err
	}
	got, err := hex.DecodeString(t.MAC)
	if err != nil || !hmac.Equal(got, want) {
		return dns.ErrSig
	}
	return nil
}
