// Package v1 defines the API group acme.cert-manager.io/v1: Orders and Challenges (RFC 8555), and the part of an issuer
// that configures ACME and its solvers. Orders and Challenges are made from this part.
//
// The package is not a protocol client and decides nothing: it defines what the API server stores and accepts.
//
// +kubebuilder:object:generate=true
// +groupName=acme.cert-manager.io
package v1
