// Package v1 holds the API group cert-manager.io/v1: Certificates, CertificateRequests, Issuers and
// ClusterIssuers, the words of their conditions, and the rules by which conditions change.
//
// It signs and decides nothing: it says what is stored and what the API server accepts.
//
// +kubebuilder:object:generate=true
// +groupName=cert-manager.io
package v1
