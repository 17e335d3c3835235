package solver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// SecretReader reads Secrets for solvers. A Secret that does not exist is an
// error for which apierrors.IsNotFound is true.
type SecretReader interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// SecretValue reads one entry of a Secret. Its errors name the Secret and the entry, never a value.
func SecretValue(ctx context.Context, r SecretReader, namespace, name, key string) (string, error) {
	s, err := r.Secret(ctx, namespace, name)
	if err != nil {
		return "", fmt.Errorf("reading Secret %s/%s: %w", namespace, name, err)
	}
	value, ok := s.Data[key]
	if !ok {
		return "", fmt.Errorf("the Secret %s/%s has no entry %q", namespace, name, key)
	}
	return string(value), nil
}
