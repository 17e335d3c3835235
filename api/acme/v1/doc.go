// Package v1 defines the API group acme.cert-manager.io/v1: Orders and Challenges (RFC 8555), and the part of an
// issuer that configures ACME and its solvers, from which they are made.
//
// It is not a protocol client and decides nothing: it says what the API server stores and accepts.
//
// +kubebuilder:object:generate=true
// +groupName=acme.cert-manager.io
package v1
