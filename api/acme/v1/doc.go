// Package v1 defines the API group acme.cert-manager.io/v1: Orders and Challenges (RFC 8555), and the part of an issuer
// that configures ACME and its solvers. The controllers make Orders and Challenges as this part of the issuer says.
//
// The package only defines what the API server accepts and stores: it is not an ACME client and makes no decisions.
//
// +kubebuilder:object:generate=true
// +groupName=acme.cert-manager.io
package v1
