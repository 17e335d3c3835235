package client

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
)

// accountKey signs requests (RFC 8555 §6.2).
type accountKey struct {
	signing    jose.SigningKey
	public     jose.JSONWebKey
	thumbprint string
}

// jwsHeader is the protected header of a request. Without kid the public key itself is
// embedded ("jwk"); without nonce none is sent (inner JWS of §7.3.4 and §7.3.5).
type jwsHeader struct {
	url, nonce, kid string
}

// newAccountKey wraps a key. It fails for a kind of key that no algorithm of RFC 8555 §6.2 covers.
func newAccountKey(key crypto.Signer) (*accountKey, error) {
	alg, err := algorithm(key.Public())
	if err != nil {
		return nil, err
	}
	sum, err := Thumbprint(key.Public())
	if err != nil {
		return nil, err
	}
	return &accountKey{
		signing:    jose.SigningKey{Algorithm: alg, Key: cryptosigner.Opaque(key)},
		public:     jose.JSONWebKey{Key: key.Public()},
		thumbprint: sum,
	}, nil
}

// algorithm is the JWS algorithm for a public key: RS256, ES256, ES384, ES512 or EdDSA.
func algorithm(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case ed25519.PublicKey:
		return jose.EdDSA, nil
	case *ecdsa.PublicKey:
		switch k.Params().BitSize {
		case 256:
			return jose.ES256, nil
		case 384:
			return jose.ES384, nil
		case 521:
			return jose.ES512, nil
		}
	}
	return "", fmt.Errorf("acme: account key of type %T: use RSA, ECDSA (P-256, P-384, P-521) or Ed25519", public)
}

// sign makes the flattened JSON serialization of RFC 8555 §6.2.
func (k *accountKey) sign(payload []byte, h jwsHeader) ([]byte, error) {
	opts := &jose.SignerOptions{EmbedJWK: h.kid == ""}
	opts.WithHeader("url", h.url)
	if h.nonce != "" {
		opts.WithHeader("nonce", h.nonce)
	}
	if h.kid != "" {
		opts.WithHeader("kid", h.kid)
	}
	return signJWS(k.signing, opts, payload)
}

func signJWS(key jose.SigningKey, opts *jose.SignerOptions, payload []byte) ([]byte, error) {
	signer, err := jose.NewSigner(key, opts)
	if err != nil {
		return nil, fmt.Errorf("acme: signing with %s: %w", key.Algorithm, err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return nil, fmt.Errorf("acme: signing with %s: %w", key.Algorithm, err)
	}
	return []byte(jws.FullSerialize()), nil
}

// Thumbprint is the RFC 7638 SHA-256 thumbprint of a public key, base64url without padding.
func Thumbprint(public crypto.PublicKey) (string, error) {
	jwk := jose.JSONWebKey{Key: public}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("acme: thumbprint of a key of type %T: %w", public, err)
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}
