// Package v1 holds the API group acme.cert-manager.io/v1: Orders, Challenges, and the configuration of
// an ACME issuer and its solvers that they are made from (RFC 8555).
//
// It is not a protocol client and decides nothing: it says what is stored and what the API server
// accepts.
//
// +kubebuilder:object:generate=true
// +groupName=acme.cert-manager.io
package v1
