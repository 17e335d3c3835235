// Package pki makes, reads and compares private keys, certificate requests and certificates: the X.509 (RFC 5280) and
// PKCS#10 (RFC 2986) side of Chancery.
//
// Controllers and signers share this code. It generates and encodes keys, defines the exact form of certificate
// requests, makes the templates of certificates, and puts the certificates of a chain in order. Usages, algorithms and
// encodings have the same names as in the API, as plain strings.
//
// The package knows no Kubernetes object, reads no clock and keeps no state. It does not decide whether a certificate
// is issued, and it fetches nothing.
package pki
