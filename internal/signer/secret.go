package signer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// SecretReader reads the Secrets that signers keep their credentials in.
type SecretReader interface {
	// Secret returns a Secret that the caller MUST NOT change. A Secret that is not
	// there is an error for which apierrors.IsNotFound is true.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}
