// Package v1 defines the API group cert-manager.io/v1: Certificates, CertificateRequests, Issuers and ClusterIssuers,
// the types and reasons of their conditions, and the rules by which conditions change.
//
// The package signs nothing and decides nothing: it defines what the API server stores and accepts.
//
// +kubebuilder:object:generate=true
// +groupName=cert-manager.io
package v1
