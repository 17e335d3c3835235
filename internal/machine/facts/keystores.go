package facts

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

// KeystoresAnnotation is on target Secrets. It says what the keystores were made of, but only to those who have the
// private key.
const KeystoresAnnotation = "chancery.dev/keystores"

// Passwords are those of the keystores that a Certificate wants.
type Passwords struct {
	JKS, PKCS12 string
	// Error says why one of them is not known; the keystores cannot be made then.
	Error error
}

// WantedExtras lists the keys of data that a spec asks for beside those of
// kubernetes.io/tls. Truststores need a CA to trust.
func WantedExtras(spec *certmanagerv1.CertificateSpec, hasCA bool) []string {
	var out []string
	for _, format := range spec.AdditionalOutputFormats {
		switch format.Type {
		case certmanagerv1.OutputFormatDER:
			out = append(out, certmanagerv1.DERKeyKey)
		case certmanagerv1.OutputFormatCombinedPEM:
			out = append(out, certmanagerv1.CombinedPEMKey)
		}
	}
	add := func(store, trust string) {
		out = append(out, store)
		if hasCA {
			out = append(out, trust)
		}
	}
	if wantsPKCS12(spec) {
		add(certmanagerv1.PKCS12KeystoreKey, certmanagerv1.PKCS12TruststoreKey)
	}
	if wantsJKS(spec) {
		add(certmanagerv1.JKSKeystoreKey, certmanagerv1.JKSTruststoreKey)
	}
	return out
}

func wantsPKCS12(spec *certmanagerv1.CertificateSpec) bool {
	return spec.Keystores != nil && spec.Keystores.PKCS12 != nil && spec.Keystores.PKCS12.Create
}

func wantsJKS(spec *certmanagerv1.CertificateSpec) bool {
	return spec.Keystores != nil && spec.Keystores.JKS != nil && spec.Keystores.JKS.Create
}

// WantsKeystores reports whether a spec asks for a keystore of any kind.
func WantsKeystores(spec *certmanagerv1.CertificateSpec) bool {
	return wantsPKCS12(spec) || wantsJKS(spec)
}

// KeystoreMark says what keystores are made of, so that a change is seen without
// opening them; empty for none. It is keyed: a password cannot be guessed from it
// without the private key, and whoever has that needs no password.
func KeystoreMark(seal, leaf Digest, spec *certmanagerv1.CertificateSpec, p Passwords) string {
	var made []string
	if wantsJKS(spec) {
		made = append(made, "JKS", aliasOf(spec.Keystores.JKS), p.JKS)
	}
	if wantsPKCS12(spec) {
		made = append(made, "PKCS12", string(spec.Keystores.PKCS12.Profile), p.PKCS12)
	}
	if made == nil {
		return ""
	}
	text, err := json.Marshal(made)
	if err != nil {
		return "" // strings always have a JSON form
	}
	mac := hmac.New(sha256.New, seal[:])
	mac.Write(leaf[:])
	mac.Write(text)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil)[:18])
}

// aliasOf is the alias that a JKS is asked to have; empty for the default.
func aliasOf(jks *certmanagerv1.JKSKeystore) string {
	if jks.Alias == nil {
		return ""
	}
	return *jks.Alias
}

// KeystoreOf decodes what goes into keystores beside the key.
func KeystoreOf(chain, ca []byte) (pki.Keystore, error) {
	var store pki.Keystore
	var err error
	if store.Chain, err = pki.DecodeChain(chain); err != nil {
		return store, err
	}
	if len(ca) > 0 {
		store.CA, err = pki.DecodeBundle(ca)
	}
	return store, err
}
