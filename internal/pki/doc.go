// Package pki makes, reads and compares private keys, certificate requests and
// certificates: the X.509 (RFC 5280) and PKCS#10 (RFC 2986) side of Chancery.
//
// It is what every certificate controller and signer shares: key generation and
// encoding, the exact shape of a certificate request, the template that a request
// becomes, and the rule that orders certificates into a chain. Names of usages,
// algorithms and encodings are the words of the API, given as plain strings.
//
// It knows no Kubernetes object, reads no clock and keeps no state. It does not
// decide whether anything should be issued, and it does not fetch anything.
package pki
