// Package pki makes, reads and compares private keys, certificate requests and
// certificates: the X.509 (RFC 5280) and PKCS#10 (RFC 2986) side of Chancery.
//
// Controllers and signers share the code of this package: for the generation and encoding of keys, the exact form of a
// certificate request, the template of a certificate, and the order of certificates in a chain. Usages, algorithms and
// encodings have the same names as in the API, as plain strings.
//
// The package knows no Kubernetes object, reads no clock and keeps no state. It does not decide whether a certificate
// is issued, and it fetches nothing.
package pki
