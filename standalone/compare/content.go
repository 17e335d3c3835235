package main

import (
	"bytes"
	"crypto"
	"crypto/sha1" //nolint:gosec // how most CAs compute a key identifier (RFC 5280 §4.2.1.2)
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// addSecret adds what each entry of a Secret's data is.
func (o object) addSecret(content map[string]any) {
	data, _ := content["data"].(map[string]any)
	decoded := map[string][]byte{}
	for name, value := range data {
		encoded, _ := value.(string)
		decoded[name], _ = base64.StdEncoding.DecodeString(encoded) // the API server has encoded it
	}
	for name, value := range decoded {
		path := "data[" + name + "]"
		switch name {
		case cmmeta.TLSCertKey, "ca.crt":
			o.addCertificates(path, value)
		case cmmeta.TLSPrivateKeyKey:
			o.addKey(path, value, decoded[cmmeta.TLSCertKey])
		case "keystore.jks", "truststore.jks":
			o.addJKS(path, value)
		case "keystore.p12", "truststore.p12":
			o.addPKCS12(path, value, strings.HasPrefix(name, "trust"))
		case "tls-combined.pem":
			o.facts[path] = fmt.Sprintf("tls.key, a line feed and tls.crt: %t", bytes.Equal(value, bytes.Join([][]byte{decoded[cmmeta.TLSPrivateKeyKey], decoded[cmmeta.TLSCertKey]}, []byte("\n"))))
		case "key.der":
			block, _ := pem.Decode(decoded[cmmeta.TLSPrivateKeyKey])
			o.facts[path] = fmt.Sprintf("tls.key without PEM: %t", block != nil && bytes.Equal(block.Bytes, value))
		default:
			o.facts[path] = fmt.Sprintf("%q", value)
		}
	}
}

// addKey says of a private key what it is, and whether the certificate is for it.
func (o object) addKey(path string, text, certificate []byte) {
	block, _ := pem.Decode(text)
	key, err := pki.DecodePrivateKey(text)
	if err != nil || block == nil {
		o.facts[path] = "is no private key"
		return
	}
	o.facts[path] = block.Type + ", " + keyKind(key.Public())
	if leaf, _, err := pki.FirstOf(certificate); err == nil {
		o.facts[path+" is that of tls.crt"] = fmt.Sprint(pki.PublicKeysEqual(key.Public(), leaf.PublicKey))
	}
}

func keyKind(public crypto.PublicKey) string {
	f := pki.FactsOfKey(public)
	return fmt.Sprintf("%s %d", f.Algorithm, f.Size)
}

// addCertificates adds the fields of the certificates of a chain.
func (o object) addCertificates(path string, text []byte) {
	certs, err := pki.DecodeBundle(text)
	if err != nil {
		o.facts[path] = "is no chain of certificates"
		return
	}
	o.facts[path] = fmt.Sprintf("certificates: %d", len(certs))
	for i, c := range certs {
		o.addX509(fmt.Sprintf("%s, certificate %d", path, i+1), c)
	}
}

// addX509 adds the fields of a certificate, and each extension, byte for byte.
func (o object) addX509(path string, c *x509.Certificate) {
	o.addNames(path, c.RawSubject, c.Extensions, c.PublicKey)
	o.facts[path+": issuer"] = nameOf(c.RawIssuer)
	o.facts[path+": signature"] = c.SignatureAlgorithm.String()
	o.facts[path+": version"] = fmt.Sprint(c.Version)
	if pki.IsTemporary(c) {
		o.facts[path+": temporary"] = "yes"
	}
	// The end of the CA's certificate may be the end: seconds differ from run to run then.
	o.facts[path+": lifetime"] = c.NotAfter.Sub(c.NotBefore).Round(time.Minute).String()
	usages := fmt.Sprintf("%b %v %v", c.KeyUsage, c.ExtKeyUsage, c.UnknownExtKeyUsage)
	o.facts[path+": usages"] = usages
	o.facts[path+": CA"] = fmt.Sprintf("%t, path length %d", c.IsCA, c.MaxPathLen)
	o.facts[path+": CRLs, OCSP, CA certificates"] = fmt.Sprint(c.CRLDistributionPoints, c.OCSPServer, c.IssuingCertificateURL)
}

// addRequest adds the fields of a certificate request.
func (o object) addRequest(path string, text []byte) {
	csr, err := pki.DecodeCSR(text)
	if err != nil {
		o.facts[path] = "is no certificate request"
		return
	}
	o.addNames(path, csr.RawSubject, csr.Extensions, csr.PublicKey)
	o.facts[path+": signature"] = csr.SignatureAlgorithm.String()
}

// addNames adds what a certificate and a request have in common.
func (o object) addNames(path string, subject []byte, extensions []pkix.Extension, public crypto.PublicKey) {
	o.facts[path+": subject"] = nameOf(subject)
	if !bytes.Contains(subject, []byte("Pebble ")) { // it has a new name each time
		o.facts[path+": subject in DER"] = fmt.Sprintf("% x", subject)
	}
	o.facts[path+": key"] = keyKind(public)
	var order []string
	for _, e := range extensions {
		order = append(order, e.Id.String())
		value := fmt.Sprintf("% x", e.Value)
		switch {
		case e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 14}):
			value = fmt.Sprintf("%d bytes, SHA-1 of the key: %t", len(e.Value), isSHA1(e.Value, public))
		case e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 35}): // depends on the key of the CA
			value = fmt.Sprintf("%d bytes", len(e.Value))
		case e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}):
			value = fmt.Sprintf("%q", e.Value)
		}
		o.facts[path+": extension "+e.Id.String()] = fmt.Sprintf("critical=%t %s", e.Critical, value)
	}
	o.facts[path+": order of extensions"] = strings.Join(order, " ")
}

// isSHA1 reports whether a key identifier, in DER, is the SHA-1 of the public key's bits.
func isSHA1(identifier []byte, public crypto.PublicKey) bool {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return false
	}
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &info); err != nil {
		return false
	}
	sum := sha1.Sum(info.Key.Bytes) //nolint:gosec // as above
	return bytes.HasSuffix(identifier, sum[:])
}

// nameOf writes a distinguished name, and masks what Pebble makes new each time.
func nameOf(der []byte) string {
	var rdns pkix.RDNSequence
	if _, err := asn1.Unmarshal(der, &rdns); err != nil {
		return "is no distinguished name"
	}
	said := rdns.String()
	if before, _, found := strings.Cut(said, "CN=Pebble "); found {
		return before + "CN=Pebble …"
	}
	return said
}

// addJKS says what is in a Java keystore.
func (o object) addJKS(path string, data []byte) {
	store := keystore.New(keystore.WithOrderedAliases())
	if err := store.Load(bytes.NewReader(data), []byte(password)); err != nil {
		o.facts[path] = "cannot be read with its password"
		return
	}
	for _, alias := range store.Aliases() {
		if store.IsPrivateKeyEntry(alias) {
			entry, err := store.GetPrivateKeyEntry(alias, []byte(password))
			o.facts[path+" entry "+alias] = fmt.Sprintf("private key, readable %t, %d certificates", err == nil, len(entry.CertificateChain))
			continue
		}
		entry, err := store.GetTrustedCertificateEntry(alias)
		o.facts[path+" entry "+alias] = fmt.Sprintf("certificate, readable %t, %s", err == nil, entry.Certificate.Type)
	}
}

// addPKCS12 says what is in a PKCS#12 keystore, and by which algorithms it is made.
func (o object) addPKCS12(path string, data []byte, trust bool) {
	for name, oid := range map[string]string{
		"40-bit RC2": "2a864886f70d010c0106", "3DES": "2a864886f70d010c0103", "PBES2": "2a864886f70d01050d", "PBMAC1": "2a864886f70d01050e",
	} {
		id, _ := new(big.Int).SetString(oid, 16)
		o.facts[path+" made with "+name] = fmt.Sprint(bytes.Contains(data, id.Bytes()))
	}
	if trust {
		certs, err := pkcs12.DecodeTrustStore(data, password)
		o.facts[path] = fmt.Sprintf("readable %t, %d certificates", err == nil, len(certs))
		return
	}
	key, leaf, above, err := pkcs12.DecodeChain(data, password)
	o.facts[path] = fmt.Sprintf("readable %t, key %t, certificate %t, %d above", err == nil, key != nil, leaf != nil, len(above))
}
