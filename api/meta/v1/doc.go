// Package v1 holds the reference types that both API groups share: how an object names an issuer, a
// Secret, or a key inside a Secret.
//
// It is not a kind of its own: nothing here is stored on the API server by itself, and it knows nothing
// about certificates or ACME.
//
// +kubebuilder:object:generate=true
package v1
