// Package v1 holds the types that both API groups share. With most of these types, an object refers to an issuer, a
// Secret, or a key inside a Secret. The type Cause says what prevents a certificate.
//
// No type of this package is a kind: the API server stores these types only as fields of other objects. The package has
// no code for certificates or ACME.
//
// +kubebuilder:object:generate=true
package v1
